// A card of numbers, and the proof that a run equals the serial one.

import { element, themeOf, watchTheme } from "./markup.js";

function factList(pairs) {
  return element("dl", { class: "lk-facts-list" }, ...pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function proofCard(proof, note) {
  return element("section", { class: "lk-proof" }, element("h4", {}, "The same result as without parallelism?"), element("p", {}, note), factList(proof));
}

function render({ model, el }) {
  const root = element("div", { class: "labkit labkit-report" });
  const show = () => {
    const proof = model.get("proof");
    const notes = element("ul", { class: "lk-notes", "aria-label": "Notes" }, ...model.get("notes").map((note) => element("li", {}, note)));
    root.replaceChildren(notes, factList(model.get("facts")), ...(proof.length ? [proofCard(proof, model.get("proof_note"))] : []));
  };
  const retheme = () => { root.dataset.theme = themeOf(model.get("theme")); };
  const names = ["facts", "notes", "proof", "proof_note"];
  for (const name of names) model.on(`change:${name}`, show);
  const stop = watchTheme(retheme);
  show(); retheme();
  el.append(root);
  return () => { stop(); for (const name of names) model.off(`change:${name}`, show); root.remove(); };
}

export default { render };
