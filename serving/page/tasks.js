// The tab of a fine-tuned XLNet: classes, scores, choices and answers.

import { ask } from "./api.js";
import { bars, element, onSend, percent } from "./dom.js";
import { offer } from "./examples.js";

const TEXT = ["text", "Text", 5];
const PAIR = [TEXT, ["text_b", "Second text of a pair (may be empty)", 3]];
const ofPair = ({ text, text_b = "" }) => ({ texts: [text], second: [text_b] });

/** By route: the tab's title, the button, the inputs as [name, label, rows], the request, and what shows its answer. */
export const TASKS = {
  "/classify": {
    title: "Classify",
    inputs: PAIR,
    request: ofPair,
    show: ({ probabilities: [found] }) => [
      bars(Object.entries(found).sort((a, b) => b[1] - a[1]), "Probability of each class"),
    ],
  },
  "/label": {
    title: "Label",
    inputs: PAIR,
    request: ofPair,
    show: ({ labels: [given], probabilities: [found] }, _, { threshold }) => [
      element("p", { className: "answer" }, given.join(", ") || "No label fits."),
      bars(Object.entries(found).sort((a, b) => b[1] - a[1]), "Probability of each label" +
        (threshold === undefined ? "" : `; those from ${percent(threshold)} on, at the line, are given`), threshold),
    ],
  },
  "/regress": {
    title: "Rate",
    inputs: PAIR,
    request: ofPair,
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
    inputs: [["text", "Text", 8]],
    request: ({ text }) => ({ texts: [text] }),
    show: ({ entities: [found], words: [words] }, { texts: [text] }) => {
      const characters = Array.from(text); // places are counted in characters
      const cut = (begin, end) => characters.slice(begin, end).join("");
      const parts = found.flatMap(({ label, begin, end }, i) => {
        const own = words.filter((word) => begin <= word.begin && word.begin < end);
        const sure = percent(Math.min(...own.map(({ probability }) => probability))); // as its least sure word
        const mark = coloured("mark", label, cut(begin, end), element("small", {}, ` ${label} ${sure}`));
        return [cut(i ? found[i - 1].end : 0, begin), mark];
      });
      const rest = cut(found.length ? found[found.length - 1].end : 0);
      const kinds = new Map(found.map(({ label }) => [label, found.filter((one) => one.label === label).length]));
      return [
        found.length
          ? element("ul", { className: "kinds" },
              ...[...kinds].map(([label, count]) => coloured("li", label, `${label} `, element("small", {}, count))))
          : element("p", { className: "answer" }, "Nothing is marked."),
        element("div", { className: "text" }, ...parts, rest),
      ];
    },
  },
};

const hues = new Map(); // of kinds of names, in the order in which they were first seen

/** An element in the colour of a kind; neighbours are a golden angle apart. */
function coloured(name, kind, ...children) {
  if (!hues.has(kind)) hues.set(kind, (hues.size * 137.5 + 45) % 360);
  const made = element(name, { className: "kind", title: kind }, ...children);
  made.style.setProperty("--hue", hues.get(kind));
  return made;
}

/** Sets the tab up for a route of TASKS; model: as GET /model has it. */
export function setUp(panel, route, model) {
  const { title, inputs, request, show } = TASKS[route];
  const fields = {};
  for (const [name, label, rows] of inputs) {
    if (name === "text_b" && model.pairs === false) continue; // it learned from single texts
    fields[name] = element("textarea", { id: `input-${name}`, rows, spellcheck: false });
    panel.querySelector("#inputs").append(element("label", { htmlFor: `input-${name}` }, label), fields[name]);
  }
  panel.querySelector(".primary").textContent = title;
  offer(panel, model.examples ?? [], fields);
  onSend(panel, async () => {
    const sent = request(Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value])));
    panel.querySelector(".result").replaceChildren(...show(await ask(route, sent), sent, model));
  });
}
