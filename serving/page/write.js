// The tab that continues a prompt, token by token.

import { lines } from "./api.js";
import { element, onSend } from "./dom.js";
import { offer } from "./examples.js";
import { TokenText, bits, legend } from "./tokens.js";

const ALTERNATIVES = 8;
const DEFAULT_TOKENS = 200;

/** Sets the tab up; sampling: the settings of sampling, as GET /sampling has them. */
export function setUp(panel, model, sampling, card) {
  const [start, stop, result] = ["#start", "#stop", ".result"].map((name) => panel.querySelector(name));
  const settings = [
    { name: "max_tokens", help: "tokens to write", type: "int", default: DEFAULT_TOKENS, low: 1, high: model.max_tokens },
    { name: "seed", help: "the same seed gives the same text; empty: another one each time", type: "int" },
    ...sampling,
  ];
  if (!model.note) offer(panel, model.examples ?? [], { text: panel.querySelector("#prompt") });
  panel.querySelector("#note").textContent = model.note ?? "";
  panel.querySelector("#settings").append(...settings.map(field));
  let abort = null;
  stop.addEventListener("click", () => abort?.abort());
  panel.addEventListener("keydown", (event) => event.key === "Escape" && abort?.abort());

  onSend(panel, async (say) => {
    const request = { prompt: panel.querySelector("#prompt").value, seed: Math.floor(Math.random() * 2 ** 31) };
    for (const { name } of settings) {
      const { value } = panel.querySelector(`#setting-${name}`);
      if (value !== "") request[name] = Number(value);
    }
    if (model.top) request.top = Math.min(ALTERNATIVES, model.top);
    const text = new TokenText(card, "The text that was written, token by token");
    const plain = element("span");
    const before = element("span", { className: "given" }, request.prompt);
    const show = () =>
      result.replaceChildren(
        ...(model.top ? [legend("surprisal")] : []),
        element("div", { className: "text" }, before, model.top ? text.element : plain),
      );
    abort = new AbortController();
    stop.disabled = false;
    if (document.activeElement === start) stop.focus();
    start.disabled = true;
    const begun = performance.now();
    let end = "Done";
    try {
      for await (const line of lines("/stream", request, abort.signal)) {
        if (!plain.isConnected && !text.element.isConnected) show(); // an error leaves what was there
        if (model.top) text.add(line.tokens);
        else plain.append(line.text);
        say(`Writing: ${summary(text.tokens, begun)}`);
      }
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      end = "Stopped";
    } finally {
      start.disabled = false;
      if (document.activeElement === stop) start.focus();
      stop.disabled = true;
    }
    return `${end}: ${summary(text.tokens, begun)}; seed ${request.seed}`;
  });
}

function summary(tokens, begun) {
  if (!tokens.length) return "no tokens yet";
  const mean = bits(tokens.reduce((sum, token) => sum + token.log_prob, 0) / tokens.length);
  const speed = tokens.length / ((performance.now() - begun) / 1000);
  return `${tokens.length} tokens, ${mean.toFixed(2)} bits each, ${speed.toPrecision(2)} a second`;
}

/** A setting as a labelled field. */
function field({ name, help, type, default: value = "", low, high }) {
  const id = `setting-${name}`;
  const step = type === "int" ? 1 : "any";
  const input = element("input", { id, type: "number", step, value, "aria-describedby": `${id}-help` });
  if (low !== undefined) input.min = low;
  if (high !== undefined && high !== null) input.max = high;
  const about = element("p", { id: `${id}-help`, className: "hint" }, help);
  return element("div", {}, element("label", { htmlFor: id }, name), input, about);
}
