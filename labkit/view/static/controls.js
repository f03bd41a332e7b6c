// The dashboard's form: groups of inputs, presets, Run and Cancel, progress of the ranks. The kernel checks the plan.

import { element, keepKeys, themeOf, watchTheme } from "./markup.js";
import { hasOwnAddress, textInAddress, withText } from "./address.js";

/** Seconds still to go, from seconds gone and steps done; null while nothing can be said. */
export const secondsLeft = (gone, done, total) => (done > 0 && total > 0 ? (gone / done) * (total - done) : null);

/** What a run says while others are before it. */
export const lineText = (place, waitS) => `place ${place} in line${waitS === null ? "" : `, about ${Math.max(1, Math.round(waitS))} s`}`;

/** "dp 2 × tp 1 × pp 4 = 8 ranks" */
export function ranksText({ dp, tp, pp }) {
  const ranks = dp * tp * pp;
  return `data ${dp} × tensor ${tp} × pipeline ${pp} = ${ranks} ${ranks === 1 ? "rank" : "ranks"}`;
}

/** Whether a field applies, given the others: a switch that is on, a degree above 1, or something chosen. */
export const applies = ({ needs }, values) => !needs || values[needs] === true || values[needs] > 1 || (typeof values[needs] === "string" && values[needs] !== "");

/** What an input holds as a value of its field; null: left empty. */
export function valueOfInput(field, { value, checked }) {
  if (field.kind === "switch") return checked;
  if (field.kind === "slider") return field.choices[Number(value)][0];
  if (field.kind === "number") return value === "" || !Number.isFinite(Number(value)) ? null : Number(value);
  const known = field.choices.find(([one]) => String(one) === value);
  return known ? known[0] : value;
}

class FormView {
  constructor(model, el) {
    this.model = model;
    this.fields = model.get("groups").flatMap(({ fields }) => fields);
    this.inputs = new Map();
    this.root = element("form", { class: "labkit labkit-form", autocomplete: "off" });
    const groups = element("div", { class: "lk-groups", hidden: !this.fields.length }, ...model.get("groups").map((group) => this.group(group)));
    const heading = element("h3", {}, model.get("heading"));
    heading.hidden = !model.get("heading");
    this.root.append(heading, this.presets(), groups, this.verdict(), this.actions(), this.sharing(), this.progress());
    el.append(this.root);
    keepKeys(this.root);
    this.listen();
    this.retheme();
    this.showAll();
  }

  // ---- elements -------------------------------------------------------------------------------------------------------

  presets() {
    const buttons = Object.entries(this.model.get("presets")).map(([name, values]) => {
      const button = element("button", { type: "button" }, name);
      button.onclick = () => this.change(values);
      return button;
    });
    const row = element("div", { class: "lk-presets", role: "group", "aria-label": "Start from" }, element("span", {}, "Start from"), ...buttons);
    row.hidden = !buttons.length;
    return row;
  }

  group({ title, fields, is_folded }) {
    if (is_folded) return element("details", { class: "lk-folded" }, element("summary", {}, title), element("div", { class: "lk-grid" }, ...fields.map((field) => this.field(field))));
    return element("fieldset", {}, element("legend", {}, title), element("div", { class: "lk-grid" }, ...fields.map((field) => this.field(field))));
  }

  field(field) {
    const input = this.input(field);
    input.setAttribute("aria-label", field.label); // without the help, which a screen reader gets as a description
    input.setAttribute("aria-description", field.help);
    this.inputs.set(field.name, input);
    input.addEventListener("change", () => this.change({ [field.name]: valueOfInput(field, input) }));
    if (field.kind === "slider") return this.slider(field, input);
    const label = element("span", { class: "lk-label" }, field.label), help = element("small", {}, field.help);
    return element("label", { class: field.kind === "switch" ? "lk-field lk-switch" : "lk-field", "data-field": field.name }, label, input, help);
  }

  /** A slider over named positions; its text says where it stands, also while it is dragged. */
  slider(field, input) {
    const value = element("output", {}), label = element("span", { class: "lk-label" }, field.label, " ", value);
    const tell = () => { value.textContent = field.choices[Number(input.value)][1]; input.setAttribute("aria-valuetext", value.textContent); };
    input.addEventListener("input", tell);
    input.tell = tell;
    const marks = element("span", { class: "lk-marks", "aria-hidden": "true" }, ...field.choices.map(([, text], k) => element("span", { style: `left: calc(8px + (100% - 16px) * ${k / Math.max(1, field.choices.length - 1)})` }, text)));
    return element("label", { class: "lk-field lk-slider", "data-field": field.name }, label, input, marks, element("small", {}, field.help));
  }

  input({ kind, choices, low, high }) {
    if (kind === "slider") return element("input", { type: "range", min: 0, max: choices.length - 1, step: 1 });
    if (kind === "choice") return element("select", {}, ...choices.map(([value, text]) => element("option", { value }, text)));
    if (kind === "switch") return element("input", { type: "checkbox", role: "switch" });
    return element("input", { type: "number", min: low, max: high, step: "any", inputmode: "decimal" });
  }

  verdict() {
    this.problem = element("p", { class: "lk-problem", role: "alert" });
    this.ranks = element("span", { class: "lk-ranks" });
    this.nearest = element("button", { type: "button", class: "lk-nearest" });
    this.nearest.onclick = () => this.change(this.model.get("nearest").values);
    return element("div", { class: "lk-verdict" }, this.problem, this.nearest);
  }

  actions() {
    this.run = element("button", { type: "submit", class: "lk-main" }, this.model.get("run_text"));
    this.cancel = element("button", { type: "button" }, "Cancel");
    this.status = element("span", { class: "lk-status", role: "status" });
    this.share = element("button", { type: "button", class: "lk-share", "aria-expanded": "false" }, "Share");
    this.run.hidden = this.cancel.hidden = !this.model.get("is_run_here");
    this.share.hidden = !this.model.get("link_name");
    return element("div", { class: "lk-actions" }, this.run, this.cancel, this.ranks, this.status, this.share);
  }

  /** The plan as a short text, to copy or to paste; where the page's address is ours, as a link. */
  sharing() {
    this.text = element("input", { type: "text", "aria-label": "This plan as text; paste one to use it", placeholder: "as the form opens", spellcheck: "false", maxlength: 1000 });
    const label = hasOwnAddress() ? "Copy link" : "Copy text", copy = element("button", { type: "button" }, label);
    this.code = element("code", { "aria-label": "This plan in Python", tabindex: "0" });
    const row = element("div", { class: "lk-sharing" }, this.text, copy, this.code);
    row.hidden = true;
    this.text.addEventListener("change", () => this.model.send({ do: "take", text: this.text.value.trim() }));
    this.share.onclick = () => { row.hidden = !row.hidden; this.share.setAttribute("aria-expanded", String(!row.hidden)); if (!row.hidden) this.text.select(); };
    copy.onclick = async () => {
      const copied = await navigator.clipboard?.writeText(hasOwnAddress() ? location.href : this.text.value).then(() => true, () => false);
      if (!copied) this.text.select();
      copy.textContent = copied ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { copy.textContent = label; }, 2000);
    };
    return row;
  }

  progress() {
    this.bars = element("div", { class: "lk-bars" });
    return this.bars;
  }

  // ---- events ---------------------------------------------------------------------------------------------------------

  listen() {
    this.root.onsubmit = (event) => { event.preventDefault(); if (!this.run.disabled) this.model.send({ do: "run" }); };
    this.cancel.onclick = () => this.model.send({ do: "cancel" });
    const shows = {
      values: () => this.showValues(), problem: () => this.showState(), failure: () => this.showState(),
      state: () => { if (this.model.get("state") === "running") this.startedAt = performance.now(); this.showState(); this.showProgress(); },
      steps_done: () => this.showProgress(), num_steps: () => this.showProgress(), place: () => this.showProgress(), wait_s: () => this.showProgress(),
      nearest: () => this.showState(), plan_text: () => this.showState(), link_text: () => this.showAddress(),
    };
    const onAddress = () => this.takeAddress();
    addEventListener("hashchange", onAddress);
    for (const [name, show] of Object.entries(shows)) this.model.on(`change:${name}`, show);
    const stopTheme = watchTheme(() => this.retheme()), beat = setInterval(() => this.showProgress(), 500);
    this.stop = () => {
      for (const [name, show] of Object.entries(shows)) this.model.off(`change:${name}`, show);
      clearInterval(beat);
      removeEventListener("hashchange", onAddress);
      stopTheme();
    };
  }

  change(values) {
    this.model.set("values", { ...this.model.get("values"), ...values });
    this.model.save_changes();
    this.showValues();
  }

  /** The plan that the page's address names, if it names one. */
  takeAddress() {
    const name = this.model.get("link_name"), text = name && hasOwnAddress() ? textInAddress(location.hash, name) : null;
    if (text !== null && text !== this.model.get("link_text")) this.model.send({ do: "take", text });
  }

  // ---- showing --------------------------------------------------------------------------------------------------------

  showAll() {
    this.startedAt = performance.now();
    this.showValues(); this.showState(); this.showProgress();
    this.text.value = this.model.get("link_text");
    this.takeAddress();
  }

  showAddress() {
    const name = this.model.get("link_name"), text = this.model.get("link_text");
    this.text.value = text;
    if (name && hasOwnAddress()) history.replaceState(null, "", withText(location.hash, name, text) || location.pathname + location.search);
  }

  showValues() {
    const values = this.model.get("values");
    for (const field of this.fields) {
      const input = this.inputs.get(field.name), value = values[field.name];
      if (field.kind === "switch") input.checked = Boolean(value);
      else if (field.kind === "slider") { input.value = Math.max(0, field.choices.findIndex(([one]) => one === value)); input.tell(); }
      else if (document.activeElement !== input || valueOfInput(field, input) !== value) input.value = value ?? "";
      input.disabled = !applies(field, values);
      input.closest(".lk-field").classList.toggle("lk-off", input.disabled);
    }
    this.ranks.textContent = values.dp ? ranksText(values) : "";
  }

  showState() {
    const state = this.model.get("state"), problem = this.model.get("problem"), failure = this.model.get("failure");
    this.problem.textContent = problem || failure;
    this.problem.hidden = !(problem || failure);
    const { words } = this.model.get("nearest");
    this.nearest.hidden = !words;
    this.code.textContent = this.model.get("plan_text");
    this.nearest.textContent = `Use ${words}`;
    this.run.disabled = Boolean(problem) || state !== "idle";
    this.run.textContent = state === "idle" ? this.model.get("run_text") : "Running …";
    this.cancel.disabled = state !== "running";
    this.cancel.textContent = state === "cancelling" ? "Stopping …" : "Cancel";
    this.root.dataset.state = state;
  }

  showProgress() {
    const state = this.model.get("state"), done = this.model.get("steps_done"), total = this.model.get("num_steps");
    this.bars.hidden = state === "idle";
    if (state === "idle") { this.status.textContent = ""; return; }
    if (this.model.get("place")) { this.startedAt = performance.now(); this.bars.replaceChildren(); this.status.textContent = lineText(this.model.get("place"), this.model.get("wait_s")); return; }
    const gone = (performance.now() - this.startedAt) / 1000, slowest = done.length ? Math.min(...done) : 0;
    const left = secondsLeft(gone, slowest, total);
    this.status.textContent = done.length ? `step ${slowest} of ${total}${left === null ? "" : `, about ${Math.ceil(left)} s to go`}` : `starting the ranks, ${Math.floor(gone)} s`;
    this.bars.replaceChildren(...done.map((steps, rank) => element("div", { class: "lk-bar" }, element("span", {}, `rank ${rank}`),
      element("progress", { max: Math.max(1, total), value: steps, "aria-label": `rank ${rank}` }), element("span", {}, `${steps} / ${total}`))));
  }

  retheme() {
    const theme = themeOf(this.model.get("theme"));
    this.root.dataset.theme = theme;
    if (this.model.get("page_theme") === theme) return;
    this.model.set("page_theme", theme);
    this.model.save_changes();
  }
}

function render({ model, el }) {
  const view = new FormView(model, el);
  return () => { view.stop(); view.root.remove(); };
}

export default { render };
