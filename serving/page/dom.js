// Small pieces that the tabs share: elements, forms, bars.

import { sent } from "./api.js";
import { showRequests } from "./request.js";

/** A new element; properties: of the element, or attributes with a dash or "role". */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

/** A table of shares from 0 to 1 with bars: rows of [label, share]. A line is drawn at the threshold, if it is given. */
export function bars(rows, caption, threshold) {
  const body = element("tbody");
  for (const [label, share] of rows) {
    const bar = element("span", { className: "bar" });
    bar.style.setProperty("--share", share);
    if (threshold !== undefined) {
      bar.classList.add("limited");
      bar.style.setProperty("--threshold", threshold);
    }
    body.append(
      element("tr", { className: share >= threshold ? "given-label" : "" },
        element("th", { scope: "row" }, label), element("td", {}, percent(share)), element("td", {}, bar)),
    );
  }
  return element("table", { className: "bars" }, element("caption", {}, caption), body);
}

/** A share in percent, with as many digits as small ones need. */
export function percent(share) {
  const value = 100 * share;
  return (value >= 10 || value === 0 ? value.toFixed(1) : value >= 0.1 ? value.toFixed(2) : value.toPrecision(1)) + " %";
}

/**
 * Runs `work` when a tab's form is sent, by its button or Ctrl+Enter: shows that it runs, and what goes wrong.
 * work(say) may return a text for the status line.
 */
export function onSend(panel, work) {
  const form = panel.querySelector("form");
  const [status, error] = [".status", ".error"].map((name) => form.querySelector(name));
  let running = false;
  const say = (text) => (status.textContent = text);
  form.noValidate = true; // the server says in words what is wrong
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    running = true;
    form.setAttribute("aria-busy", "true");
    error.hidden = true;
    say("Working ..");
    try {
      sent.length = 0;
      say((await work(say)) ?? "");
      showRequests(panel);
    } catch (reason) {
      say("");
      error.textContent = reason.message;
      error.hidden = false;
    } finally {
      running = false;
      form.removeAttribute("aria-busy");
    }
  });
}
