// What every scene's view shares: card, canvas, control bar, keys, facts, words, theme, selection. A scene adds what it
// shows: the Scene class below lists what a subclass answers. The timeline has its own view; it zooms, scenes do not.

import { createClock } from "./clock.js";
import { choice, element, headOf, icon, iconButton, keepKeys, themeOf, watchTheme } from "./markup.js";
import { makeFills } from "./fills.js";
import { joinLinked, takeRow } from "./linking.js";

export const SCENE_FONT = 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const SCENE_SPEEDS = [0.25, 0.5, 1, 2, 4];
const SCENE_COLOURS = ["page", "text", "muted", "line", "grid", "rail", "soft", "accent", "on-accent", "playhead", "bad-line", "good"];
const SCENE_KEYS = "Keys: Space plays, ← → go from step to step, ↑ ↓ choose what is shown in full, Home and End, L loops, Enter selects, Esc clears.";

export class Scene {
  // A subclass answers:
  //   prepare()          reads the model; returns why there is nothing to draw, or ""
  //   window, stops      [from, to] and the times between that the arrow keys go to
  //   layOut(width)      {width, height, ...}, in CSS pixels
  //   paint(g, now)      draws the moment now.t; now = {t, isStarted, hovered, selected, isCalm}
  //   items              what can be pointed at: [{row, ...}]; itemAt(x, y) gives a number, -1 for none
  //   tell(i)            {title, facts: [[name, value]], colour} of an item; tellNow() the same of the moment
  //   clockText(t)       the moment in words, short; sentences() the whole picture in words
  //   nsOf(t)            where the moment is in the trace's time, null if nowhere; momentOf(ns) the other way round
  //   legend()           [[paint(g, width, height), text]]; choices() further elements of the control bar

  constructor(model, el, { name, role, hint }) {
    Object.assign(this, { model, hint, role, items: [], stops: [], isCalm: matchMedia("(prefers-reduced-motion: reduce)") });
    this.now = { t: 0, isStarted: false, hovered: -1, selected: -1 };
    this.root = element("div", { class: `labkit labkit-player labkit-${name}` });
    el.append(this.root);
    const [heading, source, source_help, notes] = ["heading", "source", "source_help", "notes"].map((key) => model.get(key));
    this.root.append(...headOf({ heading, source, source_help, notes }));
    this.ends = [watchTheme(() => this.retheme())];
    const missing = this.prepare();
    if (missing) this.root.append(element("p", { class: "lk-empty" }, missing));
    else this.build();
    this.retheme();
  }

  choices() { return []; }

  nsOf(t) { return t; }

  momentOf(ns) { return ns; }

  // ---- elements -------------------------------------------------------------------------------------------------------

  build() {
    this.picture = element("canvas", { class: "lk-picture", tabindex: "0", role: "application", "aria-roledescription": this.role });
    this.context = this.picture.getContext("2d");
    this.legendList = element("ul", { class: "lk-legend", "aria-label": "Legend" });
    this.facts = element("div", { class: "lk-facts" });
    this.live = element("div", { class: "lk-unseen", "aria-live": "polite" });
    this.words = element("div");
    const words = element("details", { class: "lk-words" }, element("summary", {}, "In words, and keys"), this.words, element("p", {}, SCENE_KEYS));
    this.root.append(this.legendList, this.picture, this.facts, this.controls(), words, this.live);
    keepKeys(this.root);
    this.clock = createClock({
      from: this.window[0], to: this.window[1], seconds: this.seconds || 12, isCalm: () => this.isCalm.matches,
      onTick: (t) => this.onTime(t), onState: () => this.showState(),
    });
    this.now.t = this.window[0];
    this.listen();
    this.showState();
    this.describe();
  }

  controls() {
    this.playButton = iconButton("play", "Play (Space)", { class: "lk-main" });
    this.backButton = iconButton("back", "Previous step (←)");
    this.forthButton = iconButton("forth", "Next step (→)");
    this.loopButton = iconButton("loop", "Loop (L)", { "aria-pressed": "false" });
    this.scrub = element("input", { class: "lk-scrub", type: "range", min: "0", max: "1000", step: "any", "aria-label": "Time" });
    this.time = element("span", { class: "lk-time" });
    this.speed = choice("Speed", SCENE_SPEEDS.map((speed) => [speed, `${speed}×`]));
    this.speed.value = "1";
    return element("div", { class: "lk-controls" }, this.playButton, group(this.backButton, this.forthButton), this.loopButton, this.scrub, this.time, this.speed, ...this.choices());
  }

  // ---- events ---------------------------------------------------------------------------------------------------------

  listen() {
    this.playButton.onclick = () => this.clock.toggle();
    this.backButton.onclick = () => this.stepTo(-1);
    this.forthButton.onclick = () => this.stepTo(1);
    this.loopButton.onclick = () => this.setLoop(!this.clock.looping);
    this.speed.onchange = () => { this.clock.speed = Number(this.speed.value); };
    this.scrub.oninput = () => this.jump(this.clock.from + (this.scrub.value / 1000) * (this.clock.to - this.clock.from));
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    const { picture } = this;
    picture.addEventListener("pointermove", (event) => this.hover(this.itemAt(event.offsetX, event.offsetY)));
    picture.addEventListener("pointerleave", () => this.hover(-1));
    picture.addEventListener("click", (event) => this.select(this.itemAt(event.offsetX, event.offsetY)));
    const onMessage = (message) => this.onMessage(message), onSelected = () => { this.followSelection(); this.linked.tellRow(this.model.get("selected")); };
    this.linked = joinLinked(this.model, { onTime: (ns) => this.followTime(ns), onRow: (row) => takeRow(this.model, row) });
    this.model.on("msg:custom", onMessage);
    this.model.on("change:selected", onSelected);
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(picture);
    this.ends.push(() => observer.disconnect(), () => this.linked.leave(), () => this.model.off("msg:custom", onMessage), () => this.model.off("change:selected", onSelected));
  }

  onKey(event) {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches("button, summary") && (key === " " || key === "Enter")) return;
    if (target.matches("select") || (target === this.scrub && /^(Arrow|Home|End|Page)/.test(key))) return;
    const actions = {
      " ": () => this.clock.toggle(), ArrowRight: () => this.stepTo(1), ArrowLeft: () => this.stepTo(-1),
      ArrowDown: () => this.focusOn(1), ArrowUp: () => this.focusOn(-1), Home: () => this.jump(this.clock.from), End: () => this.jump(this.clock.to),
      l: () => this.setLoop(!this.clock.looping), Enter: () => this.select(this.now.hovered), Escape: () => { this.select(-1); this.hover(-1); },
    };
    if (!actions[key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[key]();
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
    this.live.textContent = this.clockText(this.clock.t);
  }

  focusOn(direction) {
    if (!this.items.length) return;
    const next = this.now.hovered < 0 ? (direction > 0 ? 0 : this.items.length - 1) : this.now.hovered + direction;
    this.hover(Math.min(this.items.length - 1, Math.max(0, next)));
    const { title, facts } = this.tell(this.now.hovered);
    this.live.textContent = `${title}, ${facts.map(([name, value]) => `${name} ${value}`).join(", ")}`;
  }

  setLoop(on) { this.clock.looping = on; this.showState(); }

  /** Show other data in the same frame: after a choice. */
  restart() {
    Object.assign(this.now, { t: this.window[0], isStarted: false, hovered: -1, selected: -1 });
    this.clock.setWindow(...this.window);
    this.describe();
    this.showLegend();
    this.resize();
  }

  hover(i) {
    if (i === this.now.hovered) return;
    this.now.hovered = i;
    this.picture.style.cursor = i >= 0 ? "pointer" : "default";
    this.ask();
  }

  select(i) {
    this.now.selected = i;
    this.model.set("selected", i < 0 ? -1 : this.items[i].row ?? -1);
    this.model.save_changes();
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
    const row = this.model.get("selected"), chosen = this.items[this.now.selected];
    if ((chosen?.row ?? -1) === row) return;
    this.now.selected = row < 0 ? -1 : this.items.findIndex((item) => item.row === row || item.rows?.includes(row));
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
    this.showTime();
    this.showFacts();
  }

  showTime() {
    const { t, from, to } = this.clock, text = this.clockText(t);
    this.scrub.value = String((1000 * (t - from)) / (to - from));
    if (this.time.textContent === text) return;
    this.time.textContent = text;
    this.scrub.setAttribute("aria-valuetext", text);
  }

  showState() {
    if (!this.clock) return;
    const { playing, looping } = this.clock, label = playing ? "Pause (Space)" : "Play (Space)";
    this.playButton.replaceChildren(icon(playing ? "pause" : "play"));
    this.playButton.title = label;
    this.playButton.setAttribute("aria-label", label);
    this.loopButton.setAttribute("aria-pressed", String(looping));
  }

  /** Facts of the hovered or selected item; else of the moment; before the start a hint. */
  told() {
    const i = this.now.hovered >= 0 ? this.now.hovered : this.now.selected;
    return i >= 0 ? this.tell(i) : this.now.isStarted ? this.tellNow() : { title: "", facts: [] };
  }

  showFacts() {
    const told = this.told();
    const key = JSON.stringify(told);
    if (key === this.factsKey) return;
    this.factsKey = key;
    const parts = told.facts.map(([name, value]) => element("span", {}, element("i", {}, name), String(value)));
    if (told.title) parts.unshift(element("span", {}, element("b", {}, told.title)));
    this.facts.replaceChildren(...(parts.length ? parts : [element("div", { class: "lk-hint" }, this.hint)]));
    this.facts.style.borderLeftColor = told.colour || "";
  }

  describe() {
    const sentences = this.sentences();
    this.words.replaceChildren(...sentences.map((sentence) => element("p", {}, sentence)));
    this.picture.setAttribute("aria-label", `${this.model.get("heading")}. Times: ${this.model.get("source")}. ${sentences[0] || ""} ${SCENE_KEYS}`);
  }

  showLegend() {
    if (!this.clock || !this.fills) return;
    this.legendList.replaceChildren(...this.legend().map(([paint, text]) => element("li", {}, swatch(paint), text)));
  }

  retheme() {
    const theme = themeOf(this.model.get("theme")), style = getComputedStyle(this.root);
    this.root.dataset.theme = theme;
    this.colours = Object.fromEntries(SCENE_COLOURS.map((name) => [name, style.getPropertyValue(`--lk-${name}`).trim()]));
    const fills = makeFills(this.model.get("looks"), theme, this.dpr || 1);
    this.fills = Object.fromEntries(this.model.get("looks").map(({ name }, k) => [name, fills[k]]));
    this.theme = theme;
    this.factsKey = null;
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

export const group = (...parts) => element("span", { class: "lk-joined", role: "group" }, ...parts);

function swatch(paint) {
  const made = element("canvas", { class: "lk-swatch", width: "36", height: "24", "aria-hidden": "true" }), g = made.getContext("2d");
  g.scale(2, 2);
  paint(g, 18, 12);
  return made;
}

/** A legend's swatch that is filled with a look. */
export const filled = (fill) => (g, width, height) => { g.fillStyle = fill.fill; g.fillRect(0, 0, width, height); };

const textWidths = new Map(); // measuring is the slowest part of writing
/** The width of a text in the present font. */
export function textWidth(g, text) {
  const key = g.font + text;
  if (textWidths.size > 5000) textWidths.clear();
  if (!textWidths.has(key)) textWidths.set(key, g.measureText(text).width);
  return textWidths.get(key);
}

/** Text that is cut with "…" where it does not fit into `room` pixels; nothing where not even three letters do. */
export function fitText(g, text, room) {
  if (textWidth(g, text) <= room) return text;
  for (let length = text.length - 1; length >= 3; length--) {
    const cut = `${text.slice(0, length)}…`;
    if (textWidth(g, cut) <= room) return cut;
  }
  return "";
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
