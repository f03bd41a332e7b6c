// A row of tabs. Pages are the kernel's: it makes one when its tab is first chosen.

import { element, keepKeys, themeOf, watchTheme } from "./markup.js";

/** The tab that a key leads to, of `count`; null for other keys. Rows go round. */
export function tabAfter(key, chosen, count) {
  const places = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, Home: 0, End: count - 1 };
  return key in places ? (places[key] + count) % count : null;
}

function render({ model, el }) {
  const root = element("div", { class: "labkit labkit-tabs", role: "tablist", "aria-label": model.get("label") });
  const buttons = model.get("names").map((name) => element("button", { type: "button", role: "tab" }, name));
  const show = () => buttons.forEach((button, k) => {
    const isChosen = k === model.get("chosen");
    button.setAttribute("aria-selected", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
  });
  const choose = (k) => { model.set("chosen", k); model.save_changes(); buttons[k].focus(); };
  buttons.forEach((button, k) => { button.onclick = () => choose(k); });
  root.onkeydown = (event) => {
    const next = tabAfter(event.key, model.get("chosen"), buttons.length);
    if (next === null) return;
    event.preventDefault();
    choose(next);
  };
  root.append(...buttons);
  keepKeys(root);
  const retheme = () => { root.dataset.theme = themeOf(model.get("theme")); };
  const stop = watchTheme(retheme);
  model.on("change:chosen", show);
  show(); retheme();
  el.append(root);
  return () => { stop(); model.off("change:chosen", show); root.remove(); };
}

export default { render };
