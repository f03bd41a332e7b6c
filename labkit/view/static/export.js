// The player's Save menu: a picture of this moment, or the whole player as a page that works offline.
//
// All of it happens in the browser: no kernel is asked, so it works with a dead one, and in an exported page.

import { element } from "./markup.js";
import { pictureOf } from "./export_picture.js";
import { pageOf, savedState, wholeModule } from "./export_page.js";

/** The menu's element, for the player whose outermost element is `root`. Items that cannot work here are left out. */
export function saveMenu(model, root) {
  const button = element("button", { type: "button", "aria-haspopup": "menu", "aria-expanded": "false", title: "Save this player" }, "Save");
  const told = element("span", { class: "lk-unseen", role: "status" }), menu = element("div", { role: "menu", "aria-label": "Save", hidden: true });
  const items = [["Picture of this moment (PNG)", () => savePicture(model, root)]];
  if (model.get("_esm") && model.get("saved")) items.push(["Page that works offline (HTML)", () => savePage(model)]);
  const show = (on) => { menu.hidden = !on; button.setAttribute("aria-expanded", String(on)); };
  for (const [text, save] of items) {
    const item = element("button", { type: "button", role: "menuitem", tabindex: "-1" }, text);
    item.onclick = async () => { show(false); button.focus(); told.textContent = await save().catch((error) => `Could not be saved: ${error.message}`); };
    menu.append(item);
  }
  button.onclick = () => { show(menu.hidden); if (!menu.hidden) menu.firstChild.focus(); };
  const made = element("span", { class: "lk-menu" }, button, menu, told);
  menu.addEventListener("mousedown", (event) => event.preventDefault()); // else Safari takes the focus, and closes it
  made.addEventListener("keydown", (event) => onMenuKey(event, menu, () => { show(false); button.focus(); }));
  made.addEventListener("focusout", (event) => { if (!made.contains(event.relatedTarget)) show(false); });
  return made;
}

/** Arrows, Home and End go round the items, Escape closes; other keys are the player's only while the menu is closed. */
function onMenuKey(event, menu, close) {
  if (menu.hidden) return;
  const items = [...menu.children], at = items.indexOf(document.activeElement), last = items.length - 1;
  const to = { ArrowDown: at === last ? 0 : at + 1, ArrowUp: at <= 0 ? last : at - 1, Home: 0, End: last }[event.key];
  if (to !== undefined) items[to].focus();
  else if (event.key === "Escape") close();
  if (to !== undefined || event.key === "Escape") event.preventDefault();
  event.stopPropagation();
}

async function savePicture(model, root) {
  const blob = await new Promise((done) => pictureOf([root]).toBlob(done, "image/png"));
  if (!blob) throw new Error("the picture is too big for this browser; make the window narrower");
  return download(blob, `${fileName(model)}.png`);
}

async function savePage(model) {
  const [title, theme, esm, css] = ["heading", "theme", "_esm", "_css"].map((name) => model.get(name));
  return download(new Blob([pageOf({ title, theme, saved: await savedState(model), esm: wholeModule(esm), css })], { type: "text/html" }), `${fileName(model)}.html`);
}

/** "digits, pp 4, 1f1b" becomes digits-pp-4-1f1b. */
export const fileNameOf = (heading) => heading.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "labkit";

const fileName = (model) => fileNameOf(model.get("heading"));

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  return `Saved ${name}`;
}
