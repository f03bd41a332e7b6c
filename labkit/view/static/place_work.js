// A board on which a reader places the forwards and backwards of a pipeline, one rank a row, and sees what they cost.

import { element, keepKeys, themeOf, watchTheme } from "./markup.js";
import { clocked, heldBy, isComplete, nextOf, orderText, ordersOf, refusal, summary } from "./place_work_geometry.js";

const KINDS = { F: "forward", B: "backward" };

class PlaceWorkView {
  constructor(model, el) {
    this.model = model;
    this.rules = { microbatches: model.get("num_microbatches"), maxHeld: model.get("max_held") };
    this.durations = { forward: model.get("forward"), backward: model.get("backward") };
    this.ranks = model.get("num_ranks");
    this.orders = ordersOf(model.get("order"), this.ranks) || Array.from({ length: this.ranks }, () => []);
    this.moves = []; // ranks, in the order in which they were given work
    this.orders.forEach((order, rank) => order.forEach(() => this.moves.push(rank)));
    this.root = element("div", { class: "labkit labkit-place-work", role: "group", "aria-label": model.get("task") });
    this.root.append(element("p", { class: "lk-task" }, element("span", { class: "lk-mark", "aria-hidden": "true" }, "?"), element("span", {}, model.get("task"))), this.board(), this.bar(), this.verdict());
    el.append(this.root);
    keepKeys(this.root);
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.onState = () => this.showRun();
    for (const name of ["state", "failure"]) model.on(`change:${name}`, this.onState);
    this.stopTheme = watchTheme(() => this.retheme());
    this.retheme();
    this.show("");
  }

  // ---- elements -------------------------------------------------------------------------------------------------------

  board() {
    this.rows = Array.from({ length: this.ranks }, (_, rank) => {
      const buttons = ["F", "B"].map((kind) => {
        const button = element("button", { type: "button", class: `lk-next lk-${KINDS[kind]}` });
        button.onclick = () => this.place(rank, kind);
        return button;
      });
      const lane = element("div", { class: "lk-lane" }), held = element("span", { class: "lk-held" });
      return { rank, buttons, lane, held };
    });
    const lines = this.rows.map(({ rank, buttons, lane, held }) => element("div", { class: "lk-row" },
      element("span", { class: "lk-rank" }, `rank ${rank}`, held), element("span", { class: "lk-choices" }, ...buttons), lane));
    return element("div", { class: "lk-board" }, ...lines);
  }

  bar() {
    this.undoButton = element("button", { type: "button", title: "Take back (Backspace)" }, "Take back");
    this.clearButton = element("button", { type: "button" }, "Start again");
    this.runButton = element("button", { type: "button", class: "lk-main" }, "Run it");
    this.undoButton.onclick = () => this.takeBack();
    this.clearButton.onclick = () => this.startAgain();
    this.runButton.onclick = () => this.model.send({ do: "run" });
    this.sum = element("span", { class: "lk-sum" });
    return element("div", { class: "lk-actions" }, this.undoButton, this.clearButton, this.runButton, this.sum);
  }

  verdict() {
    this.reply = element("p", { class: "lk-reply", role: "status" });
    return this.reply;
  }

  // ---- moves ----------------------------------------------------------------------------------------------------------

  onKey(event) {
    if (event.key !== "Backspace" || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.takeBack();
  }

  place(rank, kind) {
    const why = refusal(this.orders, rank, kind, this.rules);
    if (why) { this.show(`Not yet: ${why}.`, "wrong"); return; }
    this.orders[rank].push([kind, nextOf(this.orders[rank], kind)]);
    this.moves.push(rank);
    this.changed();
  }

  takeBack() {
    if (!this.moves.length) return;
    this.orders[this.moves.pop()].pop();
    this.changed();
  }

  startAgain() {
    this.orders.forEach((order) => order.splice(0));
    this.moves.length = 0;
    this.changed();
  }

  changed() {
    const { model } = this, done = isComplete(this.orders, this.rules.microbatches), { length } = summary(this.orders, this.durations);
    model.set("order", orderText(this.orders));
    if (done) {
      model.set("num_tries", model.get("num_tries") + 1);
      model.set("is_right", length <= model.get("target"));
      model.set("given", `${length} units`);
    }
    model.save_changes();
    this.show(done ? this.judged(length) : "", done ? (length <= model.get("target") ? "right" : "wrong") : "");
  }

  judged(length) {
    const target = this.model.get("target");
    if (length < target) return `Done in ${length}: better than the target of ${target}.`;
    if (length === target) return `Done in ${length}, which is the target. Run it, and see whether real processes agree.`;
    return `It works, but takes ${length}; the target is ${target}. Look at where a rank stands still, and take back to there.`;
  }

  // ---- showing --------------------------------------------------------------------------------------------------------

  show(text, state = "") {
    const slots = clocked(this.orders, this.durations), { length, bubble } = summary(this.orders, this.durations);
    const span = Math.max(this.model.get("target"), length);
    this.rows.forEach((row) => this.showRow(row, slots.filter(({ rank }) => rank === row.rank), span));
    this.sum.textContent = length ? `${length} of ${this.model.get("target")} units, ranks stand still ${(100 * bubble).toFixed(0)} % of the time` : `target: ${this.model.get("target")} units`;
    this.reply.textContent = text;
    this.root.dataset.state = state;
    this.undoButton.disabled = this.clearButton.disabled = !this.moves.length;
    this.showRun();
  }

  showRow({ rank, buttons, lane, held }, slots, span) {
    ["F", "B"].forEach((kind, i) => {
      const microbatch = nextOf(this.orders[rank], kind), why = refusal(this.orders, rank, kind, this.rules), isOver = microbatch >= this.rules.microbatches;
      buttons[i].textContent = isOver ? `${kind}–` : `${kind}${microbatch}`;
      buttons[i].disabled = isOver;
      buttons[i].classList.toggle("lk-not-yet", Boolean(why));
      buttons[i].setAttribute("aria-label", isOver ? `rank ${rank}: every ${KINDS[kind]} is placed` : `rank ${rank}: place the ${KINDS[kind]} of microbatch ${microbatch}`);
      buttons[i].title = why;
    });
    held.textContent = `holds ${heldBy(this.orders[rank])} of ${this.rules.maxHeld}`;
    const percent = (units) => `${(100 * units) / span}%`;
    lane.replaceChildren(...slots.map(({ kind, microbatch, start, end }) =>
      element("span", { class: `lk-slot lk-${KINDS[kind]}`, style: `left:${percent(start)};width:${percent(end - start)}` }, `${kind}${microbatch}`)),
      element("span", { class: "lk-target", style: `left:${percent(this.model.get("target"))}` }));
    lane.setAttribute("aria-label", slots.map(({ kind, microbatch, start, end }) => `${kind}${microbatch} from ${start} to ${end}`).join(", ") || "empty");
    lane.setAttribute("role", "img");
  }

  showRun() {
    const state = this.model.get("state"), failure = this.model.get("failure");
    this.runButton.disabled = state !== "idle" || !isComplete(this.orders, this.rules.microbatches);
    this.runButton.textContent = state === "idle" ? "Run it" : "Running …";
    if (failure) this.reply.textContent = failure;
  }

  retheme() { this.root.dataset.theme = themeOf(this.model.get("theme")); }
}

function render({ model, el }) {
  const view = new PlaceWorkView(model, el);
  return () => {
    for (const name of ["state", "failure"]) model.off(`change:${name}`, view.onState);
    view.stopTheme();
    view.root.remove();
  };
}

export default { render };
