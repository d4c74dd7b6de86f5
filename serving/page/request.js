// Under a tab's answer: a button that copies it, and the requests that gave it, for those who ask without the page.

import { sent } from "./api.js";
import { element } from "./dom.js";

/** Shows both in a tab, for the requests that were sent since the last call. */
export function showRequests(panel) {
  panel.querySelector(".after")?.remove();
  const commands = sent.splice(0).map(({ route, body, locked }) => command(route, body, locked)).join("\n");
  if (!commands) return;
  const result = panel.querySelector(".result");
  panel.append(
    element("div", { className: "after" },
      copying("Copy the answer", () => result.innerText),
      element("details", {},
        element("summary", {}, "Use via API"),
        element("pre", { className: "text" }, commands),
        copying("Copy the request", () => commands),
      ),
    ),
  );
}

/** The request as a command of a shell. */
function command(route, body, locked) {
  const token = locked ? ` -H "Authorization: Bearer $TOKEN"` : "";
  return `curl ${location.origin}${route}${token} -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** A button that copies a text. */
function copying(title, text) {
  const button = element("button", { type: "button", className: "minor" }, title);
  button.addEventListener("click", async () => {
    button.textContent = (await copy(text())) ? "Copied" : "The browser does not allow it";
    setTimeout(() => (button.textContent = title), 1500);
  });
  return button;
}

/** Whether a text was copied. Pages without TLS have no clipboard but the old command. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const area = element("textarea", { value: text });
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}
