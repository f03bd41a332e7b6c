// The dashboard's form: groups of inputs, presets, Run and Cancel, progress of the ranks. The kernel checks the plan.

import { element, keepKeys, themeOf, watchTheme } from "./markup.js";

/** Seconds still to go, from seconds gone and steps done; null while nothing can be said. */
export const secondsLeft = (gone, done, total) => (done > 0 && total > 0 ? (gone / done) * (total - done) : null);

/** "dp 2 × tp 1 × pp 4 = 8 ranks" */
export function ranksText({ dp, tp, pp }) {
  const ranks = dp * tp * pp;
  return `data ${dp} × tensor ${tp} × pipeline ${pp} = ${ranks} ${ranks === 1 ? "rank" : "ranks"}`;
}

/** Whether a field applies, given the others: a switch that is on, or a degree above 1. */
export const applies = ({ needs }, values) => !needs || values[needs] === true || values[needs] > 1;

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
    this.root.append(this.presets(), element("div", { class: "lk-groups" }, ...model.get("groups").map((group) => this.group(group))), this.verdict(), this.actions(), this.progress());
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

  group({ title, fields }) {
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
    const marks = element("span", { class: "lk-marks", "aria-hidden": "true" }, ...field.choices.map(([, text]) => element("span", {}, text)));
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
    return element("div", { class: "lk-verdict" }, this.problem);
  }

  actions() {
    this.run = element("button", { type: "submit", class: "lk-main" }, "Run");
    this.cancel = element("button", { type: "button" }, "Cancel");
    this.status = element("span", { class: "lk-status", role: "status" });
    return element("div", { class: "lk-actions" }, this.run, this.cancel, this.ranks, this.status);
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
      steps_done: () => this.showProgress(), num_steps: () => this.showProgress(),
    };
    for (const [name, show] of Object.entries(shows)) this.model.on(`change:${name}`, show);
    const stopTheme = watchTheme(() => this.retheme()), beat = setInterval(() => this.showProgress(), 500);
    this.stop = () => {
      for (const [name, show] of Object.entries(shows)) this.model.off(`change:${name}`, show);
      clearInterval(beat);
      stopTheme();
    };
  }

  change(values) {
    this.model.set("values", { ...this.model.get("values"), ...values });
    this.model.save_changes();
    this.showValues();
  }

  // ---- showing --------------------------------------------------------------------------------------------------------

  showAll() { this.startedAt = performance.now(); this.showValues(); this.showState(); this.showProgress(); }

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
    this.ranks.textContent = ranksText(values);
  }

  showState() {
    const state = this.model.get("state"), problem = this.model.get("problem"), failure = this.model.get("failure");
    this.problem.textContent = problem || failure;
    this.problem.hidden = !(problem || failure);
    this.run.disabled = Boolean(problem) || state !== "idle";
    this.run.textContent = state === "idle" ? "Run" : "Running …";
    this.cancel.disabled = state !== "running";
    this.cancel.textContent = state === "cancelling" ? "Stopping …" : "Cancel";
    this.root.dataset.state = state;
  }

  showProgress() {
    const state = this.model.get("state"), done = this.model.get("steps_done"), total = this.model.get("num_steps");
    this.bars.hidden = state === "idle";
    if (state === "idle") { this.status.textContent = ""; return; }
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
