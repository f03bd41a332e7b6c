// The mesh scene: the grid of ranks, the groups of an axis, the traffic of a moment.

import { FONT, fitText, rimmedText, textWidth } from "./canvas_text.js";
import { filled } from "./fills.js";
import { boxAt, coordinateOf, flowsAt, flowsOf, groupsOf, isAlong, linkCurve, linksOfGroup, onCurve, placeMesh, shownUntil, trafficUntil } from "./mesh_grid_geometry.js";
import { element, group } from "./markup.js";
import { countText, momentText, sizeText, timeText } from "./quantities.js";
import { eased, renderWith } from "./scene.js";
import { boundsOf, readSpans, stepRanges, valueOf } from "./spans.js";
import { TimeScene } from "./time_scene.js";
import { buildRows, neighbour, spanAt } from "./tracks.js";

const MESH_HINT = "Play, and choose an axis: its groups are linked, and links light up while something travels on them.";
const GLOW = 0.02; // of the window: how long the shortest communication is shown
const MOST_LINKS = 3000;
const AXIS_NAMES = { all: "All", pp: "pipeline", dp: "data", tp: "tensor" };

class MeshGridView extends TimeScene {
  constructor(model, el) { super(model, el, { name: "mesh-grid", role: "mesh of ranks", hint: MESH_HINT }); }

  prepare() {
    if (this.model.get("missing")) return this.model.get("missing");
    for (const name of ["channels", "ranks", "degrees", "axis"]) this[name] = this.model.get(name);
    this.spans = readSpans(this.model.get("columns"));
    this.looks = this.model.get("looks");
    this.axes = ["pp", "dp", "tp"].filter((axis) => this.degrees[axis] > 1);
    if (!this.axes.includes(this.axis)) this.axis = "all";
    this.items = this.ranks;
    this.open(stepRanges(this.spans), boundsOf(this.spans));
    return "";
  }

  get hasAxis() { return false; }

  onWindow() {
    this.glow = GLOW * (this.window[1] - this.window[0]);
    this.traffic = flowsOf(this.spans, this.channels, this.window);
    this.trafficOf = {};
    this.rows = buildRows(this.spans, this.ranks, "stage", this.window);
    this.stops = [...new Set(this.traffic.flows.map(({ start }) => Math.max(this.window[0], start)))];
  }

  ownChoices() {
    if (this.axes.length < 2) return [];
    this.axisButtons = ["all", ...this.axes].map((axis) => element("button", { type: "button", "data-axis": axis, title: `Groups along ${axis}` }, axis === "all" ? "All" : axis));
    for (const button of this.axisButtons) button.onclick = () => this.pick(button.dataset.axis);
    return [group(...this.axisButtons)];
  }

  pick(axis) {
    this.axis = axis;
    this.model.set("axis", axis);
    this.model.save_changes();
    this.showState();
    this.describe();
    this.showLegend();
    this.ask();
  }

  showState() {
    super.showState();
    for (const button of this.axisButtons || []) button.setAttribute("aria-pressed", String(button.dataset.axis === this.axis));
  }

  layOut(width) { return placeMesh(this.degrees, width); }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  paint(g, now) {
    g.textBaseline = "middle";
    this.present = flowsAt(this.traffic, now.t, now.isStarted ? this.glow : 0).filter((flow) => now.isStarted && isAlong(flow, this.axis));
    this.paintSummary(g, now);
    for (const cell of this.layout.cells) this.paintCell(g, cell);
    this.paintGroups(g);
    for (const cell of this.layout.cells) this.paintPlace(g, cell);
    const lit = new Set(this.present.flatMap(({ ranks }) => ranks));
    this.layout.boxes.forEach((box, rank) => this.paintRank(g, box, rank, now, lit));
    for (const flow of this.present) this.paintFlow(g, flow, now);
  }

  paintSummary(g, { t, isStarted }) {
    const totals = trafficUntil(this.traffic, isStarted ? t : this.window[0] - 1), parts = [...totals].filter(([axis]) => isAlong({ axis }, this.axis));
    const text = parts.map(([axis, { count, bytes }]) => `${axis}: ${countText(count, "transfer")}, ${sizeText(bytes)}`).join("   ·   ");
    g.font = `600 12px ${FONT}`; g.textAlign = "left"; g.fillStyle = this.colours.text;
    g.fillText(fitText(g, text || "no traffic yet", this.layout.width - 12), 6, 9);
  }

  paintCell(g, { x, y, width, height }) {
    g.fillStyle = this.colours.soft; g.strokeStyle = this.colours.line; g.lineWidth = 1;
    g.beginPath(); g.roundRect(x, y, width, height, 9); g.fill(); g.stroke();
  }

  /** Which stage and replica a cell is, in words where there is room. */
  paintPlace(g, cell) {
    const parts = [...(this.degrees.pp > 1 ? [`stage ${cell.pp}`] : []), ...(this.degrees.dp > 1 ? [`replica ${cell.dp}`] : [])];
    const short = parts.map((part) => part[0] + part.split(" ")[1]).join(" "), long = parts.join(" · "), x = cell.x + cell.width / 2, y = cell.y + cell.height - 10;
    g.font = `11px ${FONT}`; g.textAlign = "center";
    const text = textWidth(g, long) <= cell.width - 8 ? long : fitText(g, short, cell.width - 4);
    g.fillStyle = this.colours.muted;
    rimmedText(g, text, x, y, this.colours.soft);
  }

  /** The links of the picked axis' groups, or of all. */
  paintGroups(g) {
    const { colours } = this;
    g.strokeStyle = this.axis === "all" ? colours.muted : colours.accent;
    g.globalAlpha = this.axis === "all" ? 0.45 : 0.8; g.lineWidth = this.axis === "all" ? 1 : 1.5;
    let drawn = 0;
    for (const axis of this.axis === "all" ? this.axes : [this.axis]) for (const ranks of groupsOf(this.degrees, axis)) for (const [a, b] of linksOfGroup(ranks)) {
      if (++drawn > MOST_LINKS) break;
      strokeCurve(g, linkCurve(this.layout, a, b));
    }
    g.globalAlpha = 1;
  }

  paintRank(g, box, rank, now, lit) {
    const { colours } = this, i = now.isStarted ? this.spanOf(rank, now.t) : -1, look = i < 0 ? null : this.looks[this.spans.look[i]];
    const fill = look ? this.fills[look.name] : this.fills.idle, isMarked = [now.hovered, now.selected].some((k) => k >= 0 && this.items[k].rank === rank);
    g.fillStyle = now.isStarted ? fill.fill : colours.page;
    g.strokeStyle = isMarked ? colours.accent : lit.has(rank) ? colours.playhead : colours.muted; g.lineWidth = isMarked || lit.has(rank) ? 2.5 : 1;
    g.beginPath(); g.roundRect(box.x, box.y, box.width, box.height, 6); g.fill(); g.stroke();
    const microbatch = i < 0 ? null : valueOf(this.spans, "microbatch", i), what = look ? (look.name.startsWith("wait") ? "wait" : `${look.short}${microbatch ?? ""}`) : "";
    const isTall = box.height >= 34 && what, text = now.isStarted ? fill.text : colours.text;
    this.paintText(g, box.width >= 52 ? `rank ${rank}` : String(rank), box, isTall ? -8 : 0, 600, now.isStarted ? fill : null, text);
    if (isTall) this.paintText(g, what, box, 8, 400, fill, text);
  }

  paintText(g, text, box, shift, weight, fill, colour) {
    g.font = `${weight} 11px ${FONT}`; g.textAlign = "center";
    const fits = fitText(g, text, box.width - 4) || (text.length < 4 ? text : ""), x = box.x + box.width / 2, y = box.y + box.height / 2 + shift;
    g.fillStyle = colour;
    if (fill?.patterned) rimmedText(g, fits, x, y, fill.base);
    else g.fillText(fits, x, y);
  }

  paintFlow(g, flow, now) {
    const { colours } = this, until = shownUntil(flow, this.glow), u = (now.t - flow.start) / Math.max(1, until - flow.start);
    g.strokeStyle = colours.playhead; g.lineWidth = 3;
    const links = flow.from >= 0 ? [[flow.from, flow.to]] : linksOfGroup(flow.ranks);
    for (const [a, b] of links) {
      if (!this.layout.boxes[a] || !this.layout.boxes[b]) continue;
      const curve = linkCurve(this.layout, a, b);
      strokeCurve(g, curve);
      if (now.isCalm) continue;
      const shares = flow.from >= 0 ? [eased(u)] : [eased(u), 1 - eased(u)]; // a collective travels both ways
      for (const share of shares) paintDot(g, onCurve(curve, share), colours);
    }
  }

  // ---- pointing and telling -------------------------------------------------------------------------------------------

  spanOf(rank, t) { return this.rows[rank] ? spanAt(this.spans, this.rows[rank].compute, t) : -1; }

  itemAt(x, y) { return this.layout ? boxAt(this.layout, x, y) : -1; }

  /** A rank stands for what it does now, or does next. */
  rowOf(k) {
    const here = this.spanOf(this.items[k].rank, this.now.t), i = here >= 0 ? here : neighbour(this.spans, [this.rows[k].compute], this.now.t, 1);
    return i < 0 ? -1 : this.spans.row[i];
  }

  /** The rank an event happened on. */
  indexOf(row) {
    const i = row < 0 ? -1 : this.spans.row.indexOf(row);
    return i < 0 ? -1 : this.spans.rank[i];
  }

  tell(k) {
    const { rank } = this.items[k], { place } = this.ranks[k], i = this.spanOf(rank, this.now.t), look = i < 0 ? null : this.looks[this.spans.look[i]];
    const own = (this.trafficOf[rank] ||= { flows: this.traffic.flows.filter(({ ranks }) => ranks.includes(rank)) }), totals = trafficUntil(own, this.now.t);
    const microbatch = i < 0 ? null : valueOf(this.spans, "microbatch", i);
    const facts = [["place", place || "the only axis"], ["now", look ? `${look.label}${microbatch === null ? "" : `, microbatch ${microbatch}`}` : "idle"]];
    for (const [axis, { count, bytes }] of totals) facts.push([`${axis} so far`, `${countText(count, "transfer")}, ${sizeText(bytes)}`]);
    return { title: `rank ${rank}`, facts, colour: look ? this.fills[look.name].base : "" };
  }

  tellNow() {
    const present = this.present || [], shown = present.slice(-4).reverse();
    const between = ({ from, to, ranks }) => (from >= 0 ? `${from} → ${to}` : `of ranks ${shortList(ranks)}`);
    const facts = shown.map((flow) => [flow.axis, `${flow.op} ${between(flow)} · ${sizeText(flow.bytes)} · ${timeText(flow.end - flow.start)}`]);
    if (present.length > 4) facts.push(["and", `${present.length - 4} more`]);
    return { title: "traffic", facts: facts.length ? facts : [["now", "none"]] };
  }

  clockText(t) { return momentText(t, this.window); }

  sentences() {
    const { degrees } = this, totals = trafficUntil(this.traffic, Infinity), names = this.axes.map((axis) => `${axis} ${degrees[axis]} (${AXIS_NAMES[axis]} parallel)`);
    return [
      this.ranks.length === 1 ? "One rank: there is nobody to talk to." : `${countText(this.ranks.length, "rank")}${names.length ? ` on a grid of ${names.join(", ")}` : ""}.`,
      ...[...totals].map(([axis, { count, bytes }]) => `Along ${axis}: ${countText(count, "transfer")}, ${sizeText(bytes)} of tensors.`),
      ...(this.axis === "all" ? [] : [`Groups along ${this.axis}: ${groupsOf(degrees, this.axis).slice(0, 32).map((ranks) => `[${shortList(ranks)}]`).join(", ")}.`]),
      `What took less than ${timeText(this.glow)} is shown for that long, so that it can be seen; its real length is told.`,
    ];
  }

  legend() {
    const drawn = new Set();
    for (const { compute } of this.rows) for (const i of compute.index.subarray(0, 3000)) drawn.add(this.spans.look[i]);
    const line = (colour, width) => (g, w, h) => { g.fillStyle = colour; g.fillRect(0, h / 2 - width / 2, w, width); };
    const looks = this.looks.flatMap((look, k) => (drawn.has(k) || look.name === "idle" ? [[filled(this.fills[look.name]), look.label]] : []));
    const links = this.axis === "all" ? [] : [[line(this.colours.accent, 1.5), `groups along ${this.axis}`]];
    return [...looks, ...links, [line(this.colours.playhead, 3), "something travels"]];
  }
}

const shortList = (ranks) => (ranks.length > 8 ? `${ranks.slice(0, 8).join(", ")} … (${ranks.length})` : ranks.join(", "));

function strokeCurve(g, [p, c, q]) {
  g.beginPath(); g.moveTo(p.x, p.y); g.quadraticCurveTo(c.x, c.y, q.x, q.y); g.stroke();
}

function paintDot(g, { x, y }, colours) {
  g.beginPath(); g.arc(x, y, 5, 0, 7);
  g.fillStyle = colours.playhead; g.fill();
  g.strokeStyle = colours.page; g.lineWidth = 1.5; g.stroke();
  g.strokeStyle = colours.playhead; g.lineWidth = 3;
}

const render = renderWith(MeshGridView, "mesh");

export default { render };
