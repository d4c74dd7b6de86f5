// The tab that scores a text, and shows where a Transformer-XL's memory helps.

import { ask } from "./api.js";
import { element, onSend } from "./dom.js";
import { TokenText, bits, legend } from "./tokens.js";

const ALTERNATIVES = 8;

/** Sets the tab up. */
export function setUp(panel, model, card) {
  const area = panel.querySelector("#text");
  const result = panel.querySelector(".result");
  const whole = model.routes.includes("/fill"); // an XLNet, which reads a text at once
  const { top, segment } = whole ? { top: 0, segment: 0 } : model;
  area.placeholder = "Paste a text.";
  if (segment) area.placeholder += ` Memory can help from its token ${segment + 1} on.`;

  onSend(panel, async () => {
    const request = { texts: [area.value] };
    const wanted = { ...request, pieces: model.pieces };
    if (top) wanted.top = Math.min(ALTERNATIVES, top);
    const found = await ask("/score", wanted);
    const alone = segment ? await ask("/score", { ...request, memory: false }) : null;
    const count = found.tokens[0].length;
    if (!count) throw new Error("There is no token in this text.");
    const facts = [
      ["tokens", count],
      ["bits per token", (bits(found.total[0]) / count).toFixed(3)],
      [whole ? "pseudo-perplexity" : "perplexity", Math.exp(-found.total[0] / count).toPrecision(4)],
    ];
    if (alone) facts.push([`bits per token without memory`, (bits(alone.total[0]) / count).toFixed(3)]);
    const list = element("dl", { className: "facts" });
    for (const [name, value] of facts) {
      list.append(element("div", {}, element("dt", {}, name), element("dd", {}, String(value))));
    }
    result.replaceChildren(list);
    if (whole) {
      result.append(element("p", { className: "hint" }, "An XLNet scores each token given all the others."));
    }
    if (!found.pieces) return;
    const text = new TokenText(card, "The text that was scored, token by token");
    text.add(
      found.pieces[0].map((piece, i) => ({
        text: piece,
        token: found.tokens[0][i],
        log_prob: found.log_probs[0][i],
        ...(found.top ? { top: found.top[0][i] } : {}),
        ...(alone ? { without: alone.log_probs[0][i] } : {}),
      })),
    );
    const key = element("div", {}, legend("surprisal"));
    if (alone) result.append(views(text, key, segment));
    result.append(key, element("div", { className: "text" }, text.element));
  });
}

/** The choice of what the colours show. */
function views(text, key, segment) {
  const choice = element("fieldset", { className: "views" }, element("legend", {}, "Colours show"));
  for (const [view, title] of [["surprisal", "surprisal"], ["memory", "where memory helps"]]) {
    const input = element("input", { type: "radio", name: "view", value: view, checked: view === "surprisal" });
    input.addEventListener("change", () => {
      text.element.dataset.view = view;
      key.replaceChildren(legend(view));
    });
    choice.append(element("label", {}, input, ` ${title}`));
  }
  const about = `Without memory the model reads each segment of ${segment} tokens as if it were a text of its own.`;
  return element("div", {}, choice, element("p", { className: "hint" }, about));
}
