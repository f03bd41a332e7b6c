// The timeline: what every rank did, when, and who waited for whom. Drawing is in paint.js, positions in tracks.js and
// timeline_geometry.js.

import { Answers, pathLength, pathParts, pathText } from "./answers.js";
import { filled } from "./fills.js";
import { HeldLanes } from "./held_lanes.js";
import { element, group } from "./markup.js";
import { outlineBox, paintMoment, paintNames, paintSpans } from "./paint.js";
import { paintPath, pathLine } from "./paint_path.js";
import { momentText, shareText, timeText } from "./quantities.js";
import { renderWith } from "./scene.js";
import { boundsOf, countLayers, detailsIn, endOf, joinedAt, messagesOf, readSpans, stepRanges } from "./spans.js";
import { detailFor, layOut, trackAt } from "./timeline_geometry.js";
import { TimeScene } from "./time_scene.js";
import { buildRows, idleAt, neighbour, spanAt, tracksOf } from "./tracks.js";
import { factsOf, inWords, labelsOf, sinceStartText } from "./wording.js";

const TIMELINE_HINT = "Play, or point at a span for its facts. Arrows are messages between ranks; hatching is idle time.";
const TIMELINE_KEYS = "C shows the critical path, M what ranks hold in memory.";
const SWITCHES = { path: ["Critical path", "c"], memory: ["Memory", "m"] }; // names are the model's
const DETAILS = [["auto", "Auto", "Layers where there is room for them"], ["stage", "Stages", "Stages only"], ["layer", "Layers", "Layers only"]];
const MOST_TOLD = 16; // ranks whose present work is told

class TimelineView extends TimeScene {
  constructor(model, el) { super(model, el, { name: "timeline", role: "timeline", hint: TIMELINE_HINT }); }

  keys() { return `${super.keys()} ${TIMELINE_KEYS}`; }

  // ---- data -----------------------------------------------------------------------------------------------------------

  prepare() {
    for (const name of ["ranks", "looks", "layers", "channels"]) this[name] = this.model.get(name);
    this.spans = readSpans(this.model.get("columns"));
    if (!this.spans.count) return this.model.get("is_live") ? "Waiting for the first step." : "Nothing to draw: this trace holds no events.";
    Object.assign(this, { messages: messagesOf(this.spans, this.channels), joined: joinedAt(this.spans), details: detailsIn(this.spans), detailChoice: this.model.get("detail") });
    this.held = HeldLanes.of(this.model);
    this.answers ||= new Answers(this.model, (name, handler) => this.listenTo(name, handler), () => this.answered());
    this.answers.asked.clear();
    this.open(stepRanges(this.spans), boundsOf(this.spans));
    return "";
  }

  onWindow() {
    Object.assign(this, { rowsOf: {}, focusRow: -1, mostLayers: countLayers(this.spans, this.window) });
    this.setRows();
  }

  onView() { if (this.setRows() && this.clock) this.refresh(); }

  /** The rows of the detail that is asked for, or that there is room for. Whether they are other ones than before. */
  setRows() {
    const { layout, view, window, details } = this, width = layout ? layout.right - layout.left : 0, asked = this.detailChoice;
    const detail = details[asked] ? asked : details.stage && details.layer ? detailFor(this.mostLayers, window, view, width) : details.stage ? "stage" : "layer";
    const rows = (this.rowsOf[detail] ||= buildRows(this.spans, this.ranks, detail, window));
    if (rows === this.rows) return false;
    Object.assign(this, { rows, detail, rowAt: new Map(rows.map(({ rank }, r) => [rank, r])) });
    this.now.hovered = -1;
    return true;
  }

  rowOf(i) { return i < this.spans.count ? this.spans.row[i] : -1; }

  indexOf(row) { return row < 0 ? -1 : this.spans.row.indexOf(row); }

  layOut(width) {
    const { channels, messages } = this, hasCollectives = channels.some(({ op }) => !["send", "recv"].includes(op)) && this.rows.some(({ syncs }) => syncs.length);
    const lay = () => layOut(this.rows, width, { hasMessages: messages.from.length > 0, hasPlaces: this.ranks.some(({ place }) => place), hasCollectives, hasMemory: this.showsMemory() });
    this.layout = lay();
    return this.setRows() ? lay() : this.layout;
  }

  // ---- the control bar ------------------------------------------------------------------------------------------------

  ownChoices() {
    const hasDetails = this.details.stage && this.details.layer;
    this.detailButtons = hasDetails ? DETAILS.map(([value, text, title]) => element("button", { type: "button", title, "data-detail": value }, text)) : [];
    for (const button of this.detailButtons) button.onclick = () => this.setDetail(button.dataset.detail);
    this.switches = Object.entries(SWITCHES).filter(([name]) => name !== "memory" || this.held).map(([name, [text, key]]) =>
      element("button", { type: "button", title: `${text} (${key.toUpperCase()})`, "data-switch": name }, text));
    for (const button of this.switches) button.onclick = () => this.flip(button.dataset.switch);
    return [...(hasDetails ? [group(...this.detailButtons)] : []), ...this.switches];
  }

  keyActions() {
    const flips = Object.fromEntries(Object.entries(SWITCHES).map(([name, [, key]]) => [key, () => this.flip(name)]));
    return { ...super.keyActions(), ...flips };
  }

  /** Show or hide the critical path, or memory. */
  flip(name) {
    this.model.set(name, !this.model.get(name));
    this.model.save_changes();
  }

  listen() {
    super.listen();
    this.listenTo("change:detail", () => this.setDetail(this.model.get("detail")));
    for (const name of Object.keys(SWITCHES)) this.listenTo(`change:${name}`, () => this.answered());
    this.picture.addEventListener("blur", () => { this.focusRow = -1; this.ask(); });
  }

  setDetail(detail) {
    this.detailChoice = detail;
    this.setRows();
    this.refresh();
  }

  showState() {
    super.showState();
    if (this.clock) this.bar.speed.title = `Speed: one second shows ${timeText(this.clock.rate())}`;
    for (const button of this.detailButtons || []) button.setAttribute("aria-pressed", String(button.dataset.detail === this.detailChoice));
    for (const button of this.switches || []) button.setAttribute("aria-pressed", String(this.model.get(button.dataset.switch)));
  }

  // ---- pointing -------------------------------------------------------------------------------------------------------

  /** A span, or, where a rank is idle or in its memory lane, the number after the last span: `aside` then says what. */
  itemAt(x, y) {
    const { layout, rows, view, spans } = this;
    if (!layout || x < layout.left || x > layout.right) return -1;
    const found = trackAt(layout, rows, y), t = this.timeOf(x), slack = ((view[1] - view[0]) / (layout.right - layout.left)) * 2;
    const i = found?.track ? spanAt(spans, found.track, t, slack) : -1;
    if (!found || i >= 0) return i;
    const idle = found.track === rows[found.row].compute && idleAt(spans, found.track, t, this.window);
    if (found.track && !idle) return -1;
    this.aside = { row: found.row, ...(idle ? { idle } : { t }) };
    this.ask();
    return spans.count;
  }

  select(i) { super.select(i < this.spans.count ? i : -1); }

  stepTo(direction) {
    this.clock.pause();
    const chosen = this.rows[this.focusRow], tracks = (chosen ? [chosen] : this.rows).flatMap(tracksOf);
    const i = neighbour(this.spans, tracks, this.clock.t, direction);
    if (i < 0) { this.jump(direction > 0 ? this.clock.to : this.clock.from); return; }
    this.clock.seek(this.spans.start[i]);
    this.now.isStarted = true;
    this.hover(i, { isAloud: true });
  }

  focusOn(direction) {
    this.focusRow = Math.min(this.rows.length - 1, Math.max(0, this.focusRow + direction));
    const row = this.rows[this.focusRow], here = spanAt(this.spans, row.compute, this.clock.t);
    const i = here >= 0 ? here : neighbour(this.spans, [row.compute], this.clock.t, 1);
    this.hover(i, { isAloud: true });
    if (i < 0) this.card.say(`rank ${row.rank}: nothing here`);
  }

  clear() {
    this.focusRow = -1;
    super.clear();
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  paintLayer(g) {
    paintSpans(g, this);
    if (this.showsMemory()) this.held.paint(g, this.layout.rows.map(({ memory }) => memory), this.layout, this);
    const path = this.pathShown();
    if (path) paintPath(g, this, path);
  }

  paintNames(g) { paintNames(g, this); }

  paintMoving(g, now, x) {
    paintMoment(g, this, now, x);
    if (now.hovered === this.spans.count && this.aside.idle) outlineBox(g, this, this.layout.rows[this.aside.row].compute, this.aside.idle, this.colours.muted, 1.5);
  }

  retheme() {
    super.retheme();
    this.held?.retheme(this.theme, this.dpr || 1);
    this.showLegend();
  }

  // ---- what is shown on demand ----------------------------------------------------------------------------------------

  showsMemory() { return Boolean(this.held && this.model.get("memory")); }

  /** The critical path, where it is wanted and there. */
  pathShown() { return this.model.get("path") && !this.model.get("is_live") ? this.answers.path(this.step) : null; }

  answered() {
    if (!this.clock) return;
    this.card.forgetFacts();
    this.refresh();
    const path = this.pathShown();
    if (path) this.card.say(pathText(path));
  }

  // ---- telling --------------------------------------------------------------------------------------------------------

  toldKey() {
    const i = this.now.hovered >= 0 ? this.now.hovered : this.now.selected;
    if (i === this.spans.count) return JSON.stringify([this.aside, this.answers.hasCauses]);
    return i >= 0 ? `span ${i} ${this.answers.hasCauses}` : this.now.isStarted ? this.present().map(({ i }) => i).join() : `hint ${Boolean(this.pathShown())}`;
  }

  told() {
    const told = super.told(), path = this.pathShown();
    if (told.facts.length || !this.model.get("path")) return told;
    return path ? this.tellPath(path) : { title: "critical path", facts: [["", this.model.get("is_live") ? "shown when the run is over" : "asked of the kernel, not there yet"]] };
  }

  tell(i) {
    if (i === this.spans.count) return this.aside.idle ? this.tellIdle(this.aside) : { title: `rank ${this.rows[this.aside.row].rank} holds`, facts: this.held.factsAt(this.aside.row, this.aside.t) };
    const { title, facts } = factsOf(this, i), isWait = this.looks[this.spans.look[i]].name === "wait";
    const why = isWait && this.answers.whyIdle(this.spans.rank[i], this.spans.start[i], endOf(this.spans, i));
    return { title, facts: why?.length ? [...facts.filter(([name]) => name !== "why"), ["why", why.join("; ")]] : facts, fill: this.fillList[this.spans.look[i]] };
  }

  tellIdle({ row, idle: [from, to] }) {
    const { rank } = this.rows[row], why = this.answers.whyIdle(rank, from, to);
    const facts = [["rank", rank], ["from", `${sinceStartText(this, from, to - from)} to ${sinceStartText(this, to, to - from)}`], ["took", timeText(to - from)]];
    return { title: "idle", facts: why?.length ? [...facts, ["why", why.join("; ")]] : facts, fill: this.fills.idle };
  }

  tellPath(path) {
    const whole = pathLength(path), parts = pathParts(path).map(([what, ns]) => [what, `${timeText(ns)}, ${shareText(ns, whole)}`]);
    return { title: `critical path, ${timeText(whole)}`, facts: parts, colour: this.colours.playhead };
  }

  tellNow() {
    const facts = this.present().map(({ row, i }) => [`rank ${row.rank}`, i < 0 ? "idle" : labelsOf(this, i)[0], i < 0 ? this.fills.idle : this.fillList[this.spans.look[i]]]);
    return { title: "", facts };
  }

  present() { return this.rows.slice(0, MOST_TOLD).map((row) => ({ row, i: spanAt(this.spans, row.compute, this.now.t) })); }

  clockText(t) { return momentText(t, this.window); }

  sentences() {
    const path = this.pathShown();
    return [...(path ? [pathText(path)] : []), ...inWords(this)];
  }

  legend() {
    const { spans, looks, rows } = this;
    if (this.legendRows !== rows) { // looking through all spans takes its time
      this.drawn = new Set();
      for (const { index } of rows.flatMap(tracksOf)) for (const i of index) this.drawn.add(spans.look[i]);
      this.legendRows = rows;
    }
    const path = this.pathShown();
    return [
      ...looks.flatMap(({ name, label }, k) => (this.drawn.has(k) || name === "idle" ? [[filled(this.fillList[k]), label]] : [])),
      ...(this.showsMemory() && this.held.fills ? this.held.legend() : []),
      ...(path ? [[(g, w, h) => pathLine(g, this.colours, [[0, h / 2], [w, h / 2]]), `critical path, ${timeText(pathLength(path))}`]] : []),
    ];
  }
}

const render = renderWith(TimelineView, "timeline");

export default { render };
