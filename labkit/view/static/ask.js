// A question and its answer. It is judged here; Python only hears what was given and whether it was right.

import { element, keepKeys, themeOf, watchTheme } from "./markup.js";

/** A number as a reader may write it: "1,200", "37.5 %", "3/11", with or without the unit. NaN: not a number. */
export function numberOf(text, unit = "") {
  const plain = text.trim().replace(unit || "\0", "").replace(/[\s,_]/g, "").replace(/^([-+\d./e]+)×$/, "$1");
  const percent = plain.endsWith("%"), fraction = plain.replace("%", "").split("/");
  if (fraction.length > 2 || fraction.some((part) => part === "" || !Number.isFinite(Number(part)))) return NaN;
  const value = fraction.length === 2 ? Number(fraction[0]) / Number(fraction[1]) : Number(fraction[0]);
  return percent ? value / 100 : value;
}

/** Whether a number answers the question. A hair is added, so that an answer at the very edge counts. */
export const isWithin = (given, answer, within) => Number.isFinite(given) && Math.abs(given - answer) <= within + 1e-9 * Math.max(1, Math.abs(answer));

let numQuestions = 0;

class AskView {
  constructor(model, el) {
    this.model = model;
    this.name = `lk-ask-${++numQuestions}`;
    this.choices = model.get("choices");
    this.root = element("form", { class: "labkit labkit-ask", autocomplete: "off" });
    this.reply = element("p", { class: "lk-reply", role: "status" });
    const question = element("p", { class: "lk-question", id: this.name }, element("span", { class: "lk-mark", "aria-hidden": "true" }, "?"), element("span", {}, model.get("question")));
    this.root.append(question, this.choices.length ? this.options() : this.number(), this.reply);
    this.root.onsubmit = (event) => { event.preventDefault(); this.judgeNumber(); };
    el.append(this.root);
    keepKeys(this.root);
    this.stopTheme = watchTheme(() => this.retheme());
    this.retheme();
    if (model.get("given")) this.show();
  }

  options() {
    const options = this.choices.map(([text], i) => {
      const radio = element("input", { type: "radio", name: this.name, value: i });
      radio.onchange = () => this.take(text, text === this.model.get("answer"));
      return element("label", { class: "lk-option" }, radio, element("span", {}, text));
    });
    return element("div", { class: "lk-options", role: "radiogroup", "aria-labelledby": this.name }, ...options, this.hint());
  }

  number() {
    this.input = element("input", { type: "text", inputmode: "decimal", "aria-labelledby": this.name, value: this.model.get("given") });
    return element("div", { class: "lk-answer" }, this.input, element("span", {}, this.model.get("unit")), element("button", { type: "submit", class: "lk-main" }, "Check"), this.hint());
  }

  hint() {
    const hint = this.model.get("hint");
    return hint ? element("details", { class: "lk-hint" }, element("summary", {}, "Hint"), element("p", {}, hint)) : "";
  }

  judgeNumber() {
    if (!this.input) return;
    const text = this.input.value, value = numberOf(text, this.model.get("unit"));
    if (Number.isFinite(value)) this.take(text, isWithin(value, this.model.get("answer"), this.model.get("within")));
    else this.tell("", text.trim() ? `“${text}” is no number: write it like 12.5, 3/8 or 40 %.` : "Write a number first.");
  }

  take(text, isRight) {
    const { model } = this;
    model.set("given", text);
    model.set("is_right", isRight);
    model.set("num_tries", model.get("num_tries") + 1);
    model.save_changes();
    this.show();
  }

  show() {
    const given = this.model.get("given"), isRight = this.model.get("is_right"), chosen = this.choices.findIndex(([text]) => text === given);
    if (chosen >= 0) this.root.querySelectorAll("input")[chosen].checked = true;
    const own = chosen >= 0 ? this.choices[chosen][1] : "";
    this.tell(isRight ? "right" : "wrong", [isRight ? "Right." : "Not yet.", own, isRight ? this.model.get("why") : ""].filter(Boolean).join(" "));
  }

  tell(state, text) {
    this.root.dataset.state = state;
    this.reply.textContent = text;
  }

  retheme() { this.root.dataset.theme = themeOf(this.model.get("theme")); }
}

function render({ model, el }) {
  const view = new AskView(model, el);
  return () => { view.stopTheme(); view.root.remove(); };
}

export default { render };
