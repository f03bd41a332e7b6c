// What every scene's view shares: card, canvas, control bar, keys, facts, words, theme, selection. A scene adds what it
// shows: the Scene class below lists what a subclass answers. One that runs in a trace's time also zooms: time_scene.js.

import { Card } from "./card.js";
import { createClock } from "./clock.js";
import { makeBar } from "./control_bar.js";
import { saveMenu } from "./export.js";
import { makeFills } from "./fills.js";
import { joinLinked, takeRow } from "./linking.js";
import { element, themeOf, watchTheme } from "./markup.js";

const COLOURS = ["page", "text", "muted", "line", "grid", "rail", "soft", "accent", "on-accent", "playhead", "bad-line", "good"];
const KEYS = "Keys: Space plays, ← → go from step to step, ↑ ↓ choose what is told, Home and End, L loops, Enter selects, Esc clears.";

export class Scene {
  // A subclass answers:
  //   prepare()          reads the model; returns why there is nothing to draw, or ""
  //   window, stops      [from, to] and the times between that the arrow keys go to
  //   layOut(width)      {width, height, ...}, in CSS pixels
  //   paint(g, now)      draws the moment now.t; now = {t, isStarted, hovered, selected, isCalm}
  //   items              what can be pointed at: [{row, ...}]; itemAt(x, y) gives a number, -1 for none
  //   tell(i)            {title, facts: [[name, value, fill]], fill, colour} of an item; tellNow() the same of the moment
  //   clockText(t)       the moment in words, short; sentences() the whole picture in words
  // and, where it differs from what stands below:
  //   rowOf(i), indexOf(row)   an item's place in trace.events, and back
  //   nsOf(t), momentOf(ns)    the moment in the trace's time (null: nowhere), and back
  //   legend()           [[paint(g, width, height), text]]; choices() further elements of the control bar; keys() in words
  //   toldKey()          changes when what is told does

  constructor(model, el, { name, role, hint }) {
    Object.assign(this, { model, hint, role, items: [], stops: [], isCalm: matchMedia("(prefers-reduced-motion: reduce)") });
    this.now = { t: 0, isStarted: false, hovered: -1, selected: -1 };
    this.card = new Card(el, name);
    this.root = this.card.root;
    this.ends = [watchTheme(() => this.retheme())];
    this.listenTo("change:columns", () => this.load());
    this.load();
  }

  /** Read the model, at first and when its data are others: that of a run that goes on. */
  load() {
    const missing = this.prepare();
    if (!missing) this.saves ||= saveMenu(this.model, this.root);
    this.card.showHead(this.model, missing, this.saves);
    if (missing) { this.retheme(); return; }
    if (this.clock) { this.reload(); return; }
    this.build();
    this.retheme();
  }

  /** Other data in the same frame: the moment stays, as far as it can. */
  reload() {
    Object.assign(this.now, { hovered: -1, selected: -1 });
    this.clock.setWindow(...this.window, this.clock.t);
    this.card.showBar(this.controls());
    this.refresh();
  }

  choices() { return []; }

  keys() { return KEYS; }

  legend() { return []; }

  rowOf(i) { return this.items[i]?.row ?? -1; }

  indexOf(row) { return row < 0 ? -1 : this.items.findIndex((item) => item.row === row || item.rows?.includes(row)); }

  nsOf(t) { return t; }

  momentOf(ns) { return ns; }

  toldKey() { return JSON.stringify(this.told()); }

  // ---- elements -------------------------------------------------------------------------------------------------------

  build() {
    this.bar = makeBar(this);
    this.card.build(this.role, this.hint, this.keys(), this.controls());
    this.picture = this.card.picture;
    this.context = this.picture.getContext("2d");
    this.clock = createClock({
      from: this.window[0], to: this.window[1], seconds: this.seconds || 12, isCalm: () => this.isCalm.matches,
      onTick: (t) => this.onTime(t), onState: () => this.showState(),
    });
    this.now.t = this.window[0];
    this.listen();
    this.showState();
    this.describe();
  }

  /** The control bar: what all players have, then the scene's own. */
  controls() { return element("div", { class: "lk-controls" }, ...this.bar.parts, ...this.choices()); }

  // ---- events ---------------------------------------------------------------------------------------------------------

  listen() {
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.listenToPointer();
    this.linked = joinLinked(this.model, {
      onTime: (ns) => this.followTime(ns), onRow: (row) => takeRow(this.model, row), onHover: (row) => this.hover(this.indexOf(row), { isOurs: false }),
    });
    this.listenTo("msg:custom", (message) => this.onMessage(message));
    this.listenTo("change:selected", () => { this.followSelection(); this.linked.tellRow(this.model.get("selected")); });
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(this.picture);
    this.ends.push(() => observer.disconnect(), () => this.linked.leave());
  }

  listenTo(name, handler) {
    this.model.on(name, handler);
    this.ends.push(() => this.model.off(name, handler));
  }

  listenToPointer() {
    this.picture.addEventListener("pointermove", (event) => this.hover(this.itemAt(event.offsetX, event.offsetY)));
    this.picture.addEventListener("pointerleave", () => this.hover(-1));
    this.picture.addEventListener("click", (event) => this.click(event));
  }

  click(event) { this.select(this.itemAt(event.offsetX, event.offsetY)); }

  onKey(event) {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches("button, summary") && (key === " " || key === "Enter")) return;
    if (target.matches("select") || (target === this.bar.scrub && /^(Arrow|Home|End|Page)/.test(key))) return;
    const action = this.keyActions()[key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }

  keyActions() {
    return {
      " ": () => this.clock.toggle(), ArrowRight: () => this.stepTo(1), ArrowLeft: () => this.stepTo(-1),
      ArrowDown: () => this.focusOn(1), ArrowUp: () => this.focusOn(-1), Home: () => this.jump(this.clock.from), End: () => this.jump(this.clock.to),
      l: () => this.setLoop(!this.clock.looping), Enter: () => this.select(this.now.hovered), Escape: () => this.clear(),
    };
  }

  onMessage(message) {
    if (message.do === "play") this.clock.play();
    else if (message.do === "pause") this.clock.pause();
    else if (message.do === "seek") this.jump(this.momentOf(message.t_ns));
  }

  // ---- actions --------------------------------------------------------------------------------------------------------

  jump(t) { this.now.isStarted = t > this.clock.from; this.clock.seek(t); }

  stepTo(direction) {
    this.clock.pause();
    const { t, from, to } = this.clock, slack = (to - from) * 1e-9;
    const next = direction > 0 ? this.stops.find((stop) => stop > t + slack) ?? to : this.stops.findLast((stop) => stop < t - slack) ?? from;
    this.jump(next);
    this.card.say(this.clockText(this.clock.t));
  }

  focusOn(direction) {
    if (!this.items.length) return;
    const next = this.now.hovered < 0 ? (direction > 0 ? 0 : this.items.length - 1) : this.now.hovered + direction;
    this.hover(Math.min(this.items.length - 1, Math.max(0, next)), { isAloud: true });
  }

  clear() { this.select(-1); this.hover(-1); }

  setLoop(on) { this.clock.looping = on; this.showState(); }

  /** Show other data in the same frame: after a choice. */
  restart() {
    Object.assign(this.now, { t: this.window[0], isStarted: false, hovered: -1, selected: -1 });
    this.clock.setWindow(...this.window);
    this.refresh();
  }

  /** What is shown has changed, the moment has not. */
  refresh() {
    this.describe();
    this.showLegend();
    this.showState();
    this.resize();
  }

  /** Point at an item. `isOurs`: linked players are told; `isAloud`: so are screen readers. */
  hover(i, { isAloud = false, isOurs = true } = {}) {
    if (i === this.now.hovered && !isAloud) return;
    this.now.hovered = i;
    this.picture.style.cursor = i >= 0 ? "pointer" : "";
    if (isAloud && i >= 0) this.card.say(this.tellAloud(i));
    if (isOurs) this.linked.tellHover(i < 0 ? -1 : this.rowOf(i));
    this.ask();
  }

  select(i) {
    this.now.selected = i;
    this.model.set("selected", i < 0 ? -1 : this.rowOf(i));
    this.model.save_changes();
    if (i >= 0) this.card.say(`selected: ${this.tellAloud(i)}`);
    this.ask();
  }

  /** Another player is at this time of the trace: go there, and do not tell it back. */
  followTime(ns) {
    this.isFollowing = true;
    this.clock.pause();
    this.jump(this.momentOf(ns));
    this.isFollowing = false;
  }

  /** Another player, or Python, selected an event: mark it here too, where this scene shows it. */
  followSelection() {
    const row = this.model.get("selected"), { selected } = this.now;
    if ((selected < 0 ? -1 : this.rowOf(selected)) === row) return;
    this.now.selected = this.indexOf(row);
    this.ask();
  }

  // ---- showing --------------------------------------------------------------------------------------------------------

  onTime(t) {
    this.now.t = t;
    if (this.clock?.playing) this.now.isStarted = true;
    const ns = this.linked && this.now.isStarted && !this.isFollowing ? this.nsOf(t) : null;
    if (ns !== null) this.linked.tellTime(ns);
    this.ask();
  }

  /** Draw before the next frame, once, however often it is asked. */
  ask() { this.frame ||= requestAnimationFrame(() => { this.frame = null; this.draw(); }); }

  resize() {
    const width = Math.floor(this.picture.clientWidth), dpr = window.devicePixelRatio || 1;
    if (!width) return;
    this.layout = this.layOut(width);
    if (dpr !== this.dpr) { this.dpr = dpr; this.retheme(); }
    this.picture.width = width * dpr;
    this.picture.height = this.layout.height * dpr;
    this.picture.style.height = `${this.layout.height}px`;
    this.draw();
  }

  draw() {
    if (!this.layout || this.isGone) return;
    const g = this.context;
    g.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    g.clearRect(0, 0, this.layout.width, this.layout.height);
    this.paint(g, { ...this.now, isCalm: this.isCalm.matches });
    this.root.dataset.draws = String(Number(this.root.dataset.draws || 0) + 1); // tests measure frames by it
    this.bar.showTime(this.clock, this.clockText(this.clock.t));
    this.card.showFacts(this.toldKey(), () => this.told());
  }

  showState() { if (this.clock) this.bar.showState(this.clock); }

  /** Facts of the hovered or selected item; else of the moment; before the start a hint. */
  told() {
    const i = this.now.hovered >= 0 ? this.now.hovered : this.now.selected;
    return i >= 0 ? this.tell(i) : this.now.isStarted ? this.tellNow() : { title: "", facts: [] };
  }

  tellAloud(i) {
    const { title, facts } = this.tell(i);
    return [title, ...facts.map(([name, value]) => `${name} ${value}`)].join(", ");
  }

  describe() {
    const sentences = this.sentences();
    this.card.showWords(`${this.model.get("heading")}. Times: ${this.model.get("source")}. ${sentences[0] || ""} ${this.keys()}`, sentences);
  }

  showLegend() { if (this.clock && this.fills) this.card.showLegend(this.legend()); }

  retheme() {
    const theme = themeOf(this.model.get("theme")), style = getComputedStyle(this.root), looks = this.model.get("looks");
    this.root.dataset.theme = this.theme = theme;
    this.colours = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--lk-${name}`).trim()]));
    this.fillList = makeFills(looks, theme, this.dpr || 1);
    this.fills = Object.fromEntries(looks.map(({ name }, k) => [name, this.fillList[k]]));
    this.card.forgetFacts();
    this.showLegend();
    if (this.clock) this.ask();
  }

  remove() {
    this.isGone = true;
    this.clock?.pause();
    cancelAnimationFrame(this.frame);
    for (const end of this.ends) end();
    this.root.remove();
  }
}

/** A scene in acts. What it shows has no place in the trace's time, so linked players do not move it. */
export class ActScene extends Scene {
  nsOf() { return null; }

  momentOf() { return this.clock.t; }
}

/** Slow at both ends: how things that fly move. */
export const eased = (u) => { const x = Math.min(1, Math.max(0, u)); return x * x * (3 - 2 * x); };

/** What anywidget calls for every view of a scene; the function it returns takes the view down. */
export const renderWith = (View, name) => function renderScene({ model, el }) {
  try {
    const view = new View(model, el);
    return () => view.remove();
  } catch (error) {
    el.append(element("p", { class: "labkit", role: "alert" }, `The ${name} could not be drawn: ${error.message}`));
    throw error;
  }
};
