// The timeline player: elements, events and state of one view. Drawing is in paint.js, positions in geometry.js.

import {
  boundsOf, buildRows, detailsIn, joinedAt, layOut, messagesOf, neighbour, readSpans, shifted, spanAt, stepRanges, trackAt,
  tracksOf, zoomed,
} from "./geometry.js";
import { createClock } from "./clock.js";
import { element, headOf, iconButton, icon, choice, keepKeys, themeOf, watchTheme } from "./markup.js";
import { factsOf, inWords, labelsOf, timeText, unitFor } from "./wording.js";
import { makeFills } from "./fills.js";
import { joinLinked, takeRow } from "./linking.js";
import { paintFrame, paintLayer, timeOf } from "./paint.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8];
const KEYS = "Keys: Space plays, ← → step through events, ↑ ↓ choose a rank, Home and End, + − 0 zoom, L loops, Enter selects, " +
  "Esc clears. Ctrl or Shift with the wheel zooms, dragging moves.";
const HINT = "Play, or point at a span for its facts. Arrows are messages between ranks; hatching is idle time.";
const FEWEST_NS = 1000; // a window is never shorter, else a single event of no length has no axis
const CLICK_PIXELS = 4; // a pointer that moved less was a click
const COLOURS = ["page", "text", "muted", "grid", "rail", "accent", "playhead"];

class TimelineView {
  constructor(model, el) {
    this.model = model;
    this.isCalm = matchMedia("(prefers-reduced-motion: reduce)");
    this.root = element("div", { class: "labkit labkit-player labkit-timeline" });
    el.append(this.root);
    this.readModel();
    this.root.append(...headOf({ heading: model.get("heading"), source: model.get("source"), source_help: model.get("source_help"), notes: model.get("notes") }));
    this.stops = [watchTheme(() => this.retheme())];
    if (this.spans.count) this.build();
    else this.root.append(element("p", { class: "lk-empty" }, "Nothing to draw: this trace holds no events."));
    this.retheme();
  }

  // ---- data -----------------------------------------------------------------------------------------------------------

  readModel() {
    const get = (name) => this.model.get(name);
    this.spans = readSpans(get("columns"));
    this.steps = stepRanges(this.spans);
    const whole = this.steps.length ? [this.steps[0].from, Math.max(...this.steps.map((step) => step.to))] : boundsOf(this.spans);
    this.whole = [whole[0], Math.max(whole[1], whole[0] + FEWEST_NS)];
    this.details = detailsIn(this.spans);
    this.detail = this.details[get("detail")] ? get("detail") : this.details.stage ? "stage" : "layer";
    const messages = messagesOf(this.spans, get("channels"));
    this.scene = { spans: this.spans, ranks: get("ranks"), looks: get("looks"), layers: get("layers"), channels: get("channels"), messages, joined: joinedAt(this.spans), window: this.whole };
    this.now = { t: this.whole[0], isStarted: false, hovered: -1, selected: -1, focusRow: -1 };
    this.setRows();
  }

  setRows() {
    const rows = buildRows(this.spans, this.scene.ranks, this.detail, this.scene.window);
    Object.assign(this.scene, { rows, detail: this.detail, rowOf: new Map(rows.map(({ rank }, r) => [rank, r])) });
  }

  // ---- elements -------------------------------------------------------------------------------------------------------

  build() {
    this.picture = element("canvas", { class: "lk-picture", tabindex: "0", role: "application", "aria-roledescription": "timeline" });
    this.context = this.picture.getContext("2d");
    this.legend = element("ul", { class: "lk-legend", "aria-label": "Legend" });
    this.facts = element("div", { class: "lk-facts" });
    this.live = element("div", { class: "lk-unseen", "aria-live": "polite" });
    this.words = element("div");
    const words = element("details", { class: "lk-words" }, element("summary", {}, "In words, and keys"), this.words, element("p", {}, KEYS));
    this.root.append(this.legend, this.picture, this.facts, this.controls(), words, this.live);
    keepKeys(this.root);
    this.clock = createClock({
      from: this.whole[0], to: this.whole[1], isCalm: () => this.isCalm.matches,
      onTick: (t) => this.onTime(t), onState: () => this.showState(),
    });
    this.setWindow(this.steps.find(({ step }) => step === this.model.get("step"))?.step ?? null);
    this.listen();
    this.showState();
  }

  controls() {
    this.playButton = iconButton("play", "Play (Space)", { class: "lk-main" });
    this.backButton = iconButton("back", "Previous event (←)");
    this.forthButton = iconButton("forth", "Next event (→)");
    this.loopButton = iconButton("loop", "Loop (L)", { "aria-pressed": "false" });
    this.scrub = element("input", { class: "lk-scrub", type: "range", min: "0", max: "1000", step: "any", "aria-label": "Time" });
    this.time = element("span", { class: "lk-time" });
    this.speed = choice("Speed", SPEEDS.map((speed) => [speed, `${speed}×`]));
    this.speed.value = "1";
    const bar = element("div", { class: "lk-controls" }, this.playButton, joined(this.backButton, this.forthButton), this.loopButton, this.scrub, this.time, this.speed);
    if (this.steps.length > 1) bar.append(this.stepPicker());
    if (this.details.stage && this.details.layer) bar.append(this.detailSwitch());
    this.zoomButtons = [iconButton("minus", "Zoom out (−)"), iconButton("fit", "Show all (0)"), iconButton("plus", "Zoom in (+)")];
    bar.append(joined(...this.zoomButtons));
    return bar;
  }

  stepPicker() {
    this.stepChoice = choice("Training step", [["", "all steps"], ...this.steps.map(({ step }) => [step, `step ${step}`])]);
    return this.stepChoice;
  }

  detailSwitch() {
    this.detailButtons = [["stage", "Stages"], ["layer", "Layers"]].map(([value, text]) => element("button", { type: "button", "data-detail": value }, text));
    return joined(...this.detailButtons);
  }

  // ---- events ---------------------------------------------------------------------------------------------------------

  listen() {
    this.playButton.onclick = () => this.clock.toggle();
    this.backButton.onclick = () => this.stepTo(-1);
    this.forthButton.onclick = () => this.stepTo(1);
    this.loopButton.onclick = () => this.setLoop(!this.clock.looping);
    this.speed.onchange = () => { this.clock.speed = Number(this.speed.value); this.showState(); };
    this.scrub.oninput = () => { this.now.isStarted = true; this.clock.seek(this.clock.from + (this.scrub.value / 1000) * (this.clock.to - this.clock.from)); };
    if (this.stepChoice) this.stepChoice.onchange = () => this.setWindow(this.stepChoice.value === "" ? null : Number(this.stepChoice.value));
    for (const button of this.detailButtons || []) button.onclick = () => this.setDetail(button.dataset.detail);
    const [less, fit, more] = this.zoomButtons;
    less.onclick = () => this.zoom(1.5); fit.onclick = () => this.setView(this.scene.window); more.onclick = () => this.zoom(1 / 1.5);
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.listenToPointer();
    this.linked = joinLinked(this.model, { onTime: (ns) => this.followTime(ns), onRow: (row) => takeRow(this.model, row) });
    const handlers = {
      "msg:custom": (message) => this.onMessage(message), "change:detail": () => this.setDetail(this.model.get("detail")),
      "change:selected": () => { this.followSelection(); this.linked.tellRow(this.model.get("selected")); },
    };
    for (const [name, handler] of Object.entries(handlers)) this.model.on(name, handler);
    this.stops.push(() => { for (const [name, handler] of Object.entries(handlers)) this.model.off(name, handler); this.linked.leave(); });
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(this.picture);
    this.stops.push(() => observer.disconnect());
  }

  listenToPointer() {
    const { picture } = this;
    let drag = null;
    picture.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      picture.setPointerCapture(event.pointerId);
      drag = { x: event.offsetX, view: this.scene.view, moved: 0 };
    });
    picture.addEventListener("pointermove", (event) => {
      if (!drag) { this.hover(this.spanUnder(event)); return; }
      drag.moved = Math.max(drag.moved, Math.abs(event.offsetX - drag.x));
      if (drag.moved >= CLICK_PIXELS) this.dragTo(event.offsetX, drag);
    });
    picture.addEventListener("pointerup", (event) => {
      if (drag && drag.moved < CLICK_PIXELS) this.click(event);
      drag = null;
      picture.classList.remove("lk-dragging");
    });
    picture.addEventListener("pointercancel", () => { drag = null; });
    picture.addEventListener("pointerleave", () => this.hover(-1));
    picture.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    picture.addEventListener("blur", () => { this.now.focusRow = -1; this.ask(); });
  }

  /** Zoomed in, dragging moves the view; else it moves the playhead. */
  dragTo(x, drag) {
    const { window, layout } = this.scene, width = drag.view[1] - drag.view[0];
    if (width >= (window[1] - window[0]) * 0.999) { this.now.isStarted = true; this.clock.seek(timeOf(this.scene, x)); return; }
    this.picture.classList.add("lk-dragging");
    this.setView(shifted(drag.view, window, ((drag.x - x) / (layout.right - layout.left)) * width));
  }

  click(event) {
    const i = this.spanUnder(event);
    this.select(i);
    if (i < 0 && event.offsetX >= this.scene.layout.left) { this.now.isStarted = true; this.clock.seek(timeOf(this.scene, event.offsetX)); }
  }

  onWheel(event) {
    if (!event.ctrlKey && !event.shiftKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    this.zoom(Math.exp((event.deltaY || event.deltaX) * 0.002), timeOf(this.scene, event.offsetX));
  }

  onKey(event) {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches("button, summary") && (key === " " || key === "Enter")) return;
    if (target.matches("select") || (target === this.scrub && /^(Arrow|Home|End|Page)/.test(key))) return;
    const actions = {
      " ": () => this.clock.toggle(), ArrowRight: () => this.stepTo(1), ArrowLeft: () => this.stepTo(-1),
      ArrowDown: () => this.focusOn(1), ArrowUp: () => this.focusOn(-1), Home: () => this.jump(this.clock.from), End: () => this.jump(this.clock.to),
      "+": () => this.zoom(1 / 1.5), "=": () => this.zoom(1 / 1.5), "-": () => this.zoom(1.5), 0: () => this.setView(this.scene.window),
      l: () => this.setLoop(!this.clock.looping), Enter: () => this.select(this.now.hovered), Escape: () => this.clear(),
    };
    const action = actions[key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }

  onMessage(message) {
    if (message.do === "play") this.clock.play();
    else if (message.do === "pause") this.clock.pause();
    else if (message.do === "seek") this.jump(message.t_ns);
  }

  // ---- actions --------------------------------------------------------------------------------------------------------

  jump(t) { this.now.isStarted = t > this.clock.from; this.clock.seek(t); }

  stepTo(direction) {
    this.clock.pause();
    const { rows } = this.scene, chosen = rows[this.now.focusRow], tracks = (chosen ? [chosen] : rows).flatMap(tracksOf);
    const i = neighbour(this.spans, tracks, this.clock.t, direction);
    if (i < 0) { this.jump(direction > 0 ? this.clock.to : this.clock.from); return; }
    this.now.isStarted = true;
    this.clock.seek(this.spans.start[i]);
    this.hover(i, { aloud: true });
  }

  focusOn(direction) {
    const { rows } = this.scene;
    this.now.focusRow = Math.min(rows.length - 1, Math.max(0, this.now.focusRow + direction));
    const row = rows[this.now.focusRow], here = spanAt(this.spans, row.compute, this.clock.t);
    const i = here >= 0 ? here : neighbour(this.spans, [row.compute], this.clock.t, 1);
    this.hover(i, { aloud: true });
    if (i < 0) this.live.textContent = `rank ${row.rank}: nothing here`;
  }

  clear() { this.now.focusRow = -1; this.select(-1); this.hover(-1); }

  setLoop(on) { this.clock.looping = on; this.showState(); }

  setWindow(step) {
    const range = this.steps.find((one) => one.step === step);
    this.scene.step = range ? step : null;
    this.scene.window = range ? [range.from, Math.max(range.to, range.from + FEWEST_NS)] : this.whole;
    this.scene.unit = unitFor(this.scene.window[1] - this.scene.window[0]);
    if (this.stepChoice) this.stepChoice.value = range ? String(step) : "";
    Object.assign(this.now, { isStarted: false, hovered: -1, focusRow: -1 });
    this.setRows();
    this.setView(this.scene.window);
    this.resize();
    this.clock.setWindow(...this.scene.window);
    this.describe();
    this.showState();
  }

  setDetail(detail) {
    if (!this.details[detail]) return;
    this.detail = detail;
    this.setRows();
    this.now.hovered = -1;
    this.resize();
    this.describe();
    this.showState();
  }

  setView(view) { this.scene.view = view; this.layer = null; this.ask(); }

  zoom(factor, about = this.clock.t) {
    const { view, window } = this.scene, inView = about >= view[0] && about <= view[1];
    this.setView(zoomed(view, window, factor, inView ? about : (view[0] + view[1]) / 2));
  }

  hover(i, { aloud = false } = {}) {
    if (i === this.now.hovered && !aloud) return;
    this.now.hovered = i;
    this.picture.style.cursor = i >= 0 ? "pointer" : "";
    if (aloud && i >= 0) this.live.textContent = this.factsText(i);
    this.ask();
  }

  select(i) {
    this.now.selected = i;
    this.model.set("selected", i < 0 ? -1 : this.spans.row[i]);
    this.model.save_changes();
    if (i >= 0) this.live.textContent = `selected: ${this.factsText(i)}`;
    this.ask();
  }

  /** Another player, or Python, selected an event: mark it here too. */
  followSelection() {
    const row = this.model.get("selected"), { selected } = this.now;
    if ((selected < 0 ? -1 : this.spans.row[selected]) === row) return;
    this.now.selected = row < 0 ? -1 : this.spans.row.indexOf(row);
    this.ask();
  }

  /** Another player is at this time of the trace: go there, and do not tell it back. */
  followTime(ns) {
    this.isFollowing = true;
    this.clock.pause();
    this.jump(ns);
    this.isFollowing = false;
  }

  spanUnder({ offsetX, offsetY }) {
    const { layout, rows, view } = this.scene;
    if (!layout || offsetX < layout.left || offsetX > layout.right) return -1;
    const found = trackAt(layout, rows, offsetY);
    const slack = ((view[1] - view[0]) / (layout.right - layout.left)) * 2;
    return found ? spanAt(this.spans, found.track, timeOf(this.scene, offsetX), slack) : -1;
  }

  // ---- showing --------------------------------------------------------------------------------------------------------

  onTime(t) {
    this.now.t = t;
    if (this.clock?.playing) { this.now.isStarted = true; this.follow(t); }
    if (this.linked && this.now.isStarted && !this.isFollowing) this.linked.tellTime(t);
    this.ask();
  }

  /** While playing zoomed in, the view turns pages. */
  follow(t) {
    const { view, window } = this.scene, width = view[1] - view[0];
    if (t >= view[0] && t <= view[1]) return;
    this.scene.view = shifted([t, t + width], window, 0);
    this.layer = null;
  }

  /** Draw before the next frame, once, however often it is asked. */
  ask() { this.frame ||= requestAnimationFrame(() => { this.frame = null; this.draw(); }); }

  resize() {
    const width = Math.floor(this.picture.clientWidth);
    if (!width || !this.scene.view) return;
    const { rows, messages } = this.scene, dpr = window.devicePixelRatio || 1;
    const hasCollectives = this.scene.channels.some(({ op }) => !["send", "recv"].includes(op)) && rows.some(({ syncs }) => syncs.length);
    this.scene.layout = layOut(rows, width, { hasMessages: messages.from.length > 0, hasPlaces: rows.some(({ place }) => place), hasCollectives });
    if (dpr !== this.scene.dpr) { this.scene.dpr = dpr; this.retheme(); }
    this.picture.width = width * dpr;
    this.picture.height = this.scene.layout.height * dpr;
    this.picture.style.height = `${this.scene.layout.height}px`;
    this.layer = null;
    this.draw();
  }

  draw() {
    if (!this.scene.layout || this.isGone) return;
    this.layer ||= paintLayer(this.scene);
    paintFrame(this.context, this.scene, this.layer, { ...this.now, isCalm: this.isCalm.matches });
    this.root.dataset.draws = String(Number(this.root.dataset.draws || 0) + 1); // tests measure frames by it
    this.showTime();
    this.showFacts();
  }

  showTime() {
    const { t, from, to } = this.clock, text = `${timeText(t - from, this.scene.unit).replace(/ \S+$/, "")} / ${timeText(to - from, this.scene.unit)}`;
    if (this.time.textContent === text) return;
    this.time.textContent = text;
    this.scrub.value = String((1000 * (t - from)) / (to - from));
    this.scrub.setAttribute("aria-valuetext", text);
  }

  showState() {
    if (!this.clock) return;
    const { playing, looping } = this.clock, label = playing ? "Pause (Space)" : "Play (Space)";
    this.playButton.replaceChildren(icon(playing ? "pause" : "play"));
    this.playButton.title = label;
    this.playButton.setAttribute("aria-label", label);
    this.loopButton.setAttribute("aria-pressed", String(looping));
    this.speed.title = `Speed: one second shows ${timeText(this.clock.rate())}`;
    for (const button of this.detailButtons || []) button.setAttribute("aria-pressed", String(button.dataset.detail === this.detail));
  }

  /** The hovered or selected span's facts; while nothing is pointed at, what each rank does now. */
  showFacts() {
    const i = this.now.hovered >= 0 ? this.now.hovered : this.now.selected;
    const key = i >= 0 ? `span ${i}` : this.nowKey();
    if (key === this.factsKey) return;
    this.factsKey = key;
    this.facts.replaceChildren(...(i >= 0 ? this.spanFacts(i) : this.nowFacts()));
    this.facts.style.borderLeftColor = i >= 0 ? this.scene.fills[this.spans.look[i]].base : "";
  }

  spanFacts(i) {
    const { title, facts } = factsOf(this.scene, i);
    return [element("span", {}, this.swatch(this.spans.look[i]), element("b", {}, title)), ...facts.map(([name, value]) => element("span", {}, element("i", {}, name), String(value)))];
  }

  factsText(i) {
    const { title, facts } = factsOf(this.scene, i);
    return `${title}, ${facts.map(([name, value]) => `${name} ${value}`).join(", ")}`;
  }

  presentSpans() { return this.scene.rows.slice(0, 16).map((row) => ({ row, i: spanAt(this.spans, row.compute, this.now.t) })); }

  nowKey() { return this.now.isStarted ? this.presentSpans().map(({ i }) => i).join() : "hint"; }

  nowFacts() {
    if (!this.now.isStarted) return [element("div", { class: "lk-hint" }, HINT)];
    return this.presentSpans().map(({ row, i }) => {
      const what = i < 0 ? "idle" : labelsOf(this.scene, i)[0];
      const look = i < 0 ? this.scene.looks.findIndex(({ name }) => name === "idle") : this.spans.look[i];
      return element("span", {}, element("i", {}, `rank ${row.rank}`), this.swatch(look), what);
    });
  }

  swatch(look) {
    const made = element("canvas", { class: "lk-swatch", width: "36", height: "24", "aria-hidden": "true" }), g = made.getContext("2d");
    g.scale(2, 2);
    g.fillStyle = this.scene.fills[look].fill;
    g.fillRect(0, 0, 18, 12);
    return made;
  }

  describe() {
    const sentences = inWords(this.scene), length = timeText(this.scene.window[1] - this.scene.window[0]);
    this.words.replaceChildren(...sentences.map((sentence) => element("p", {}, sentence)));
    this.picture.setAttribute("aria-label", `${this.model.get("heading")}. Times: ${this.model.get("source")}. ${sentences.length} ranks, ${length}. ${KEYS}`);
    this.showLegend();
  }

  showLegend() {
    if (!this.scene.fills) return;
    const drawn = new Set(this.scene.rows.flatMap(tracksOf).flatMap(({ index }) => [...looksIn(this.spans, index)]));
    const isShown = ({ name }, k) => drawn.has(k) || name === "idle";
    this.legend.replaceChildren(...this.scene.looks.flatMap((look, k) => (isShown(look, k) ? [element("li", {}, this.swatch(k), look.label)] : [])));
  }

  retheme() {
    const theme = themeOf(this.model.get("theme")), style = getComputedStyle(this.root);
    this.root.dataset.theme = theme;
    this.scene.colours = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--lk-${name}`).trim()]));
    this.scene.fills = makeFills(this.scene.looks, theme, this.scene.dpr || 1);
    this.layer = this.factsKey = null;
    if (!this.clock) return;
    this.showLegend();
    this.ask();
  }

  remove() {
    this.isGone = true;
    this.clock?.pause();
    cancelAnimationFrame(this.frame);
    for (const stop of this.stops) stop();
    this.root.remove();
  }
}

const joined = (...parts) => element("span", { class: "lk-joined", role: "group" }, ...parts);

function looksIn(spans, index) {
  const looks = new Set();
  for (const i of index) looks.add(spans.look[i]);
  return looks;
}

/** anywidget calls this for every view; the function it returns takes the view down. */
function render({ model, el }) {
  try {
    const view = new TimelineView(model, el);
    return () => view.remove();
  } catch (error) {
    el.append(element("p", { class: "labkit", role: "alert" }, `The timeline could not be drawn: ${error.message}`));
    throw error;
  }
}

export default { render };
