// The player's elements. Text from a trace is only ever set as textContent, so markup in names stays text.

const ICONS = {
  play: "M3 1.5v11l9.5-5.5z", pause: "M3 1.5h3v11H3zM8.5 1.5h3v11h-3z",
  back: "M2 1.5h2v11H2zM12.5 1.5v11L4.5 7z", forth: "M10 1.5h2v11h-2zM1.5 1.5v11L9.5 7z",
  loop: "M7 2.2V0l3.6 3L7 6V4a3.4 3.4 0 1 0 3.4 3.4h1.8A5.2 5.2 0 1 1 7 2.2z",
  fit: "M1 7l3.6-3.4v2.5h4.8V3.6L13 7l-3.6 3.4V7.9H4.6v2.5z", plus: "M6 2h2v4h4v2H8v4H6V8H2V6h4z", minus: "M2 6h10v2H2z",
};

/** An element: `element("button", {class: "lk-main", "aria-label": "Play"}, child, ...)`. Children may be text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children);
  return made;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ width: 14, height: 14, viewBox: "0 0 14 14", fill: "currentColor", "aria-hidden": "true" })) svg.setAttribute(key, value);
  const path = document.createElementNS(svg.namespaceURI, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

export const iconButton = (name, label, attributes = {}) =>
  element("button", { type: "button", title: label, "aria-label": label, ...attributes }, icon(name));

/** Buttons that belong together. */
export const group = (...parts) => element("span", { class: "lk-joined", role: "group" }, ...parts);

export function choice(label, options) {
  return element("select", { "aria-label": label, title: label }, ...options.map(([value, text]) => element("option", { value }, text)));
}

/** Title, badge and notes, the same on every player. */
export function headOf(model) {
  const [heading, source, source_help, notes] = ["heading", "source", "source_help", "notes"].map((name) => model.get(name));
  const badge = element("span", { class: "lk-badge", title: source_help, tabindex: "0" }, `times: ${source}`,
    element("span", { class: "lk-unseen" }, ` (${source_help})`));
  return [
    element("div", { class: "lk-head" }, element("div", { class: "lk-title" }, heading), badge),
    element("ul", { class: "lk-notes", "aria-label": "Notes" }, ...notes.map((note) => element("li", {}, note))),
  ];
}

/** JupyterLab's command keys (x, d d ...) act on the cell unless the focused element itself carries this mark. */
export function keepKeys(root) {
  for (const one of root.querySelectorAll("canvas, button, input, select, summary, textarea, [tabindex]")) one.dataset.lmSuppressShortcuts = "true";
}

/** "light" or "dark": what was asked for, else what the page is, else what the system is. */
export function themeOf(asked) {
  if (asked !== "auto") return asked;
  const isLight = document.body.dataset.jpThemeLight;
  if (isLight) return isLight === "false" ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Calls back when the page's theme changes; returns a function that stops it. */
export function watchTheme(callback) {
  const observer = new MutationObserver(callback), system = matchMedia("(prefers-color-scheme: dark)");
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  system.addEventListener("change", callback);
  return () => { observer.disconnect(); system.removeEventListener("change", callback); };
}
