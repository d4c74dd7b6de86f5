// The tab of a fine-tuned XLNet: classes, scores, choices and answers.

import { ask } from "./api.js";
import { bars, element, onSend, percent } from "./dom.js";

/** By route: the tab's title, the button, the inputs as [name, label, rows], the request, and what shows its answer. */
export const TASKS = {
  "/classify": {
    title: "Classify",
    inputs: [["first", "Text", 5], ["second", "Second text of a pair (may be empty)", 3]],
    request: ({ first, second }) => ({ texts: [first], second: [second] }),
    show: ({ probabilities: [found] }) => [
      bars(Object.entries(found).sort((a, b) => b[1] - a[1]), "Probability of each class"),
    ],
  },
  "/label": {
    title: "Label",
    inputs: [["first", "Text", 5], ["second", "Second text of a pair (may be empty)", 3]],
    request: ({ first, second }) => ({ texts: [first], second: [second] }),
    show: ({ labels: [given], probabilities: [found] }) => [
      element("p", { className: "answer" }, given.join(", ") || "No label fits."),
      bars(Object.entries(found).sort((a, b) => b[1] - a[1]), "Probability of each label"),
    ],
  },
  "/regress": {
    title: "Rate",
    inputs: [["first", "Text", 5], ["second", "Second text of a pair (may be empty)", 3]],
    request: ({ first, second }) => ({ texts: [first], second: [second] }),
    show: ({ scores: [score] }) => [element("p", { className: "answer" }, `Score ${score.toPrecision(4)}`)],
  },
  "/choose": {
    title: "Choose",
    inputs: [["article", "Text", 6], ["question", "Question; an option stands in the place of _", 2],
             ["options", "Options, one a line", 4]],
    request: ({ article, question, options }) => ({
      articles: [article], questions: [question], options: [options.split("\n").filter((line) => line.trim())],
    }),
    show: ({ probabilities: [found] }, { options: [options] }) => [
      bars(options.map((option, i) => [option, found[i]]), "Probability of each option"),
    ],
  },
  "/answer": {
    title: "Answer",
    inputs: [["context", "Text", 8], ["question", "Question", 2]],
    request: ({ context, question }) => ({ contexts: [context], questions: [question] }),
    show: ({ answers: [found] }, { contexts: [context] }) => {
      const characters = Array.from(context); // places are counted in characters
      const [before, answer, after] = [[0, found.begin], [found.begin, found.end], [found.end]].map((place) =>
        characters.slice(...place).join(""));
      return [
        element("p", { className: "answer" }, found.text || "No answer is possible."),
        element("p", { className: "hint" }, `${percent(found.probability)} likely; ` +
          `that the text has no answer: ${percent(found.no_answer_probability)}`),
        ...(found.begin < 0 ? [] : [element("div", { className: "text" }, before, element("mark", {}, answer), after)]),
      ];
    },
  },
  "/tag": {
    title: "Tag",
    inputs: [["first", "Text", 8]],
    request: ({ first }) => ({ texts: [first] }),
    show: ({ entities: [found] }, { texts: [text] }) => {
      const characters = Array.from(text); // places are counted in characters
      const cut = (begin, end) => characters.slice(begin, end).join("");
      const parts = found.flatMap(({ label, begin, end }, i) => [
        cut(i ? found[i - 1].end : 0, begin),
        element("mark", { title: label }, cut(begin, end), element("small", {}, ` ${label}`)),
      ]);
      const rest = cut(found.length ? found[found.length - 1].end : 0);
      return [
        ...(found.length ? [] : [element("p", { className: "answer" }, "Nothing is marked.")]),
        element("div", { className: "text" }, ...parts, rest),
      ];
    },
  },
};

/** Sets the tab up for a route of TASKS. */
export function setUp(panel, route) {
  const { title, inputs, request, show } = TASKS[route];
  const fields = {};
  for (const [name, label, rows] of inputs) {
    fields[name] = element("textarea", { id: `input-${name}`, rows, spellcheck: false });
    panel.querySelector("#inputs").append(element("label", { htmlFor: `input-${name}` }, label), fields[name]);
  }
  panel.querySelector(".primary").textContent = title;
  onSend(panel, async () => {
    const sent = request(Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value])));
    panel.querySelector(".result").replaceChildren(...show(await ask(route, sent), sent));
  });
}
