// The card around a scene's picture: head, legend, picture, line of facts, control bar, the picture in words.

import { filled, swatch } from "./fills.js";
import { element, headOf, keepKeys } from "./markup.js";

export class Card {
  constructor(el, name) {
    this.root = element("div", { class: `labkit labkit-player labkit-${name}` });
    this.head = element("div");
    this.empty = element("p", { class: "lk-empty" });
    this.root.append(this.head);
    el.append(this.root);
  }

  /** Title, badge and notes; `saves`: the Save menu, if there is something to save; `missing`: why there is nothing. */
  showHead(model, missing, saves) {
    this.head.replaceChildren(...headOf(model));
    this.empty.textContent = missing;
    if (missing) { this.head.after(this.empty); return; }
    this.empty.remove();
    this.head.querySelector(".lk-head").append(saves);
  }

  /** Everything below the head. */
  build(role, hint, keys, bar) {
    this.hint = hint;
    this.picture = element("canvas", { class: "lk-picture", tabindex: "0", role: "application", "aria-roledescription": role });
    this.legend = element("ul", { class: "lk-legend", "aria-label": "Legend" });
    this.facts = element("div", { class: "lk-facts" });
    this.live = element("div", { class: "lk-unseen", "aria-live": "polite" });
    this.words = element("div");
    this.bar = bar;
    const words = element("details", { class: "lk-words" }, element("summary", {}, "In words, and keys"), this.words, element("p", {}, keys));
    this.root.append(this.legend, this.picture, this.facts, bar, words, this.live);
    keepKeys(this.root);
  }

  showBar(bar) {
    this.bar.replaceWith(bar);
    this.bar = bar;
    keepKeys(bar);
  }

  showLegend(entries) { this.legend.replaceChildren(...entries.map(([paint, text]) => element("li", {}, swatch(paint), text))); }

  /** Facts, or the hint where there are none. `key` changes when they do. */
  showFacts(key, tell) {
    if (key === this.key) return;
    this.key = key;
    const { title, facts, fill, colour = fill?.base } = tell(), sample = (one) => (one ? [swatch(filled(one))] : []);
    const parts = facts.map(([name, value, own]) => element("span", {}, element("i", {}, name), ...sample(own), String(value)));
    if (title) parts.unshift(element("span", {}, ...sample(fill), element("b", {}, title)));
    this.facts.replaceChildren(...(parts.length ? parts : [element("div", { class: "lk-hint" }, this.hint)]));
    this.facts.style.borderLeftColor = colour || "";
  }

  /** Show facts anew, whatever their key: colours or answers are others. */
  forgetFacts() { this.key = null; }

  showWords(label, sentences) {
    this.words.replaceChildren(...sentences.map((sentence) => element("p", {}, sentence)));
    this.picture.setAttribute("aria-label", label);
  }

  say(text) { this.live.textContent = text; }
}
