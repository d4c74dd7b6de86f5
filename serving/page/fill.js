// The tab that fills blanks with an XLNet, or scores words in one.

import { ask } from "./api.js";
import { element, onSend, percent } from "./dom.js";
import { offer } from "./examples.js";

const BLANK = /_{4,}(?:\*\d+)?/;
const MOST = 5;

/** Sets the tab up. */
export function setUp(panel, model) {
  const withBlanks = (model.examples ?? []).filter(({ text }) => BLANK.test(text));
  offer(panel, withBlanks, { text: panel.querySelector("#blanks") });
  onSend(panel, async () => {
    const text = panel.querySelector("#blanks").value;
    const order = panel.querySelector("#order").value;
    const beam = Number(panel.querySelector("#beam").value);
    const candidates = panel.querySelector("#candidates").value.split(",").map((word) => word.trim()).filter(Boolean);
    const how = candidates.length ? { candidates } : { beam_size: beam, top: Math.max(1, Math.min(MOST, beam)) };
    const [fillings] = (await ask("/fill", { texts: [text], order, ...how })).fillings;
    const list = element("ol", { className: "fillings" });
    for (const filling of fillings) {
      const shown = element("div", { className: "text" }, ...marked(filling.text, text.split(BLANK)));
      list.append(element("li", {}, shown, element("p", { className: "hint" }, `${percent(Math.exp(filling.total))} likely`)));
    }
    panel.querySelector(".result").replaceChildren(list);
    return fillings.length ? "" : "There is no filling.";
  });
}

/** A filled text with what stands in the blanks marked; parts: the text around the blanks, whose spaces may differ. */
function marked(filled, parts) {
  const around = parts.map((part) => part.trim().split(/\s+/).map(escaped).join("\\s+"));
  const found = filled.match(new RegExp(`^(\\s*${around.join("\\s*)(.*?)(\\s*")}\\s*)$`, "su"));
  if (!found) return [filled]; // the model reads the text in another form
  return found.slice(1).map((part, i) => (i % 2 ? element("mark", {}, part || "(nothing)") : part));
}

const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
