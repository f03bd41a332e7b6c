// A small table of words, with what it comes to above it.

import { element, themeOf, watchTheme } from "./markup.js";

function render({ model, el }) {
  const root = element("section", { class: "labkit labkit-table" });
  const show = () => {
    const head = element("thead", {}, element("tr", {}, ...model.get("columns").map((name) => element("th", { scope: "col" }, name))));
    const rows = model.get("rows").map(([name, ...words]) => element("tr", {}, element("th", { scope: "row" }, name), ...words.map((word) => element("td", {}, word))));
    const table = element("div", { class: "lk-table" }, element("table", {}, head, element("tbody", {}, ...rows)));
    const sentences = model.get("sentences").map((sentence) => element("p", { class: "lk-sentence" }, sentence));
    root.replaceChildren(element("div", { class: "lk-title" }, model.get("heading")), ...sentences, ...(rows.length ? [table] : []));
  };
  const retheme = () => { root.dataset.theme = themeOf(model.get("theme")); };
  const stop = watchTheme(retheme), names = ["heading", "sentences", "columns", "rows"];
  for (const name of names) model.on(`change:${name}`, show);
  show(); retheme();
  el.append(root);
  return () => { stop(); for (const name of names) model.off(`change:${name}`, show); root.remove(); };
}

export default { render };
