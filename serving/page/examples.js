// The examples that the export was given, as buttons that fill the fields of a tab.

import { element } from "./dom.js";

const SHOWN = 60; // characters of an example on its button

/** Puts the buttons above a tab's form; fields: {name in an example: its field}. Examples without these are left out. */
export function offer(panel, examples, fields) {
  const fitting = examples.filter((example) => Object.keys(example).every((name) => name in fields));
  if (!fitting.length) return;
  const buttons = fitting.map((example) => {
    const [first] = Object.values(example);
    const title = Array.from(String(first)).slice(0, SHOWN).join("");
    const button = element("button", { type: "button", className: "minor" }, title);
    button.addEventListener("click", () => {
      for (const [name, field] of Object.entries(fields)) {
        const value = example[name] ?? "";
        field.value = Array.isArray(value) ? value.join("\n") : value;
      }
      panel.querySelector("form").requestSubmit();
    });
    return button;
  });
  panel.prepend(element("p", { className: "examples" }, element("span", { className: "hint" }, "Examples: "), ...buttons));
}
