// A reader's score: a row for each check, and a line of text to share.

import { element, keepKeys, themeOf, watchTheme } from "./markup.js";

const STATES = { open: ["○", "not answered"], right: ["✓", "solved"], wrong: ["…", "not yet"] };

class ScoreView {
  constructor(model, el) {
    this.model = model;
    this.list = element("ul", { class: "lk-checks" });
    this.text = element("input", { type: "text", readonly: true, "aria-label": "Score to share" });
    this.copy = element("button", { type: "button" }, "Copy");
    this.copy.onclick = () => this.copyText();
    this.root = element("div", { class: "labkit labkit-score" }, this.list, element("div", { class: "lk-share" }, this.text, this.copy));
    el.append(this.root);
    keepKeys(this.root);
    this.onChange = () => this.show();
    for (const name of ["rows", "share"]) model.on(`change:${name}`, this.onChange);
    this.stopTheme = watchTheme(() => this.retheme());
    this.retheme();
    this.show();
  }

  show() {
    this.list.replaceChildren(...this.model.get("rows").map(([name, state, tries]) => {
      const [mark, words] = STATES[state];
      return element("li", { "data-state": state }, element("span", { class: "lk-tick", "aria-hidden": "true" }, mark), element("b", {}, name), element("span", {}, tries ? `${words}, ${tries} ${tries === 1 ? "try" : "tries"}` : words));
    }));
    this.text.value = this.model.get("share");
    this.copy.textContent = "Copy";
  }

  async copyText() {
    this.text.select();
    try { await navigator.clipboard.writeText(this.text.value); this.copy.textContent = "Copied"; }
    catch { this.copy.textContent = "Press Ctrl+C"; } // a page without the right to the clipboard
  }

  retheme() { this.root.dataset.theme = themeOf(this.model.get("theme")); }
}

function render({ model, el }) {
  const view = new ScoreView(model, el);
  return () => {
    for (const name of ["rows", "share"]) model.off(`change:${name}`, view.onChange);
    view.stopTheme();
    view.root.remove();
  };
}

export default { render };
