// A sentence in place of a picture.

import { element, themeOf, watchTheme } from "./markup.js";

function render({ model, el }) {
  const root = element("div", { class: "labkit labkit-note" }), show = () => { root.textContent = model.get("text"); };
  const retheme = () => { root.dataset.theme = themeOf(model.get("theme")); };
  const stop = watchTheme(retheme);
  model.on("change:text", show);
  show(); retheme();
  el.append(root);
  return () => { stop(); model.off("change:text", show); root.remove(); };
}

export default { render };
