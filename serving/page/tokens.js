// A text whose tokens are coloured, with a card that says more of the token under the pointer or the focus.

import { bars, element } from "./dom.js";

const HOTTEST = 10; // bits of surprisal that have the full colour
const LARGEST = 3; // bits that memory helps or harms by, likewise
const MARKED = 0.5; // from so many bits on a token is underlined, too
const NAMES = { "\n": "↵", "\t": "⇥", " ": "␣" };

/** Nats of a log-probability as bits of surprisal. */
export const bits = (logProb) => -logProb / Math.LN2;

/** A token's text with white space that can be seen. */
const visible = (text) => text.replace(/[\n\t ]/g, (character) => NAMES[character]);

/** Tokens as text: {text, log_prob, top?: [{token, text, log_prob}], without?: log_prob without memory}. */
export class TokenText {
  constructor(card, label) {
    this.card = card;
    this.tokens = [];
    this.element = element("div", { className: "tokens", role: "listbox", "aria-label": label });
    this.element.dataset.view = "surprisal";
    for (const event of ["mouseover", "focusin"]) this.element.addEventListener(event, (e) => this.show(e.target));
    for (const event of ["mouseout", "focusout"]) this.element.addEventListener(event, () => (card.hidden = true));
    this.element.addEventListener("keydown", (event) => this.move(event));
    this.element.addEventListener("click", (event) => event.target.closest(".token")?.focus());
  }

  /** Appends tokens. */
  add(tokens) {
    for (const token of tokens) {
      const surprisal = bits(token.log_prob);
      const span = element("span", { className: "token", role: "option", tabIndex: this.tokens.length ? -1 : 0 });
      span.setAttribute("aria-label", `${visible(token.text) || "part of a character"}, ${surprisal.toFixed(1)} bits`);
      span.textContent = token.text;
      span.dataset.index = this.tokens.length;
      if (token.text === "") span.classList.add("part");
      if (token.text === "\n") span.classList.add("newline");
      span.style.setProperty("--heat", Math.min(1, surprisal / HOTTEST));
      if (token.without !== undefined) {
        const gain = bits(token.without) - surprisal;
        span.style.setProperty("--gain", Math.min(1, Math.abs(gain) / LARGEST));
        span.classList.add(gain >= 0 ? "helped" : "harmed");
        if (Math.abs(gain) >= MARKED) span.classList.add("marked");
      }
      this.tokens.push(token);
      this.element.append(span);
    }
  }

  move(event) {
    const all = this.element.children;
    const at = Number(event.target.dataset.index);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape") this.card.hidden = true;
    if (to === undefined) return;
    event.preventDefault();
    if (!all[to]) return;
    event.target.tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  }

  show(span) {
    const token = this.tokens[span.dataset?.index];
    if (!token) return;
    const surprisal = bits(token.log_prob);
    const facts = [`${surprisal.toFixed(2)} bits of surprisal`];
    if (token.without !== undefined) {
      const gain = bits(token.without) - surprisal;
      const effect = gain >= 0 ? "helps" : "harms";
      facts.push(`${bits(token.without).toFixed(2)} bits without memory; memory ${effect} by ${Math.abs(gain).toFixed(2)}`);
    }
    this.card.replaceChildren(
      element("p", {}, element("code", {}, visible(token.text) || "part of a character")),
      ...facts.map((fact) => element("p", {}, fact)),
    );
    if (token.top) {
      const rows = token.top.map((other) => [
        element(other.token === token.token ? "strong" : "span", {}, visible(other.text)),
        Math.exp(other.log_prob),
      ]);
      this.card.append(bars(rows, "The likeliest tokens in this place"));
    }
    this.place(span.getBoundingClientRect());
  }

  /** Puts the card under a token, or above it where there is no room; on a phone style.css puts it at the bottom. */
  place(box) {
    const { style } = this.card;
    this.card.hidden = false;
    const { width, height } = this.card.getBoundingClientRect();
    const under = box.bottom + height + 12 < innerHeight || box.top < height + 12;
    style.left = `${scrollX + Math.max(8, Math.min(box.left, document.documentElement.clientWidth - width - 8))}px`;
    style.top = `${scrollY + (under ? box.bottom + 6 : box.top - height - 6)}px`;
  }
}

/** What the colours mean. */
export function legend(view) {
  const memory = view === "memory";
  return element(
    "p",
    { className: `legend ${view}` },
    memory ? `memory harms by ${LARGEST} bits ` : "0 bits of surprisal ",
    element("span", { className: "scale", "aria-hidden": "true" }),
    memory ? ` memory helps by ${LARGEST} bits; underlined from ${MARKED} bits on` : ` ${HOTTEST} or more`,
  );
}
