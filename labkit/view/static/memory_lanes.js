// The memory scene: a lane for every rank with its pile of four bands, its peak, and a limit.

import { FONT, fitText, rimmedText } from "./canvas_text.js";
import { filled, makeFills } from "./fills.js";
import { lanesOf, layLanes, peakOf, readHeld, rowAt, scaleOf, totalAt } from "./memory_lanes_geometry.js";
import { paintPiles } from "./piles.js";
import { countText, momentText, sizeText, timeText } from "./quantities.js";
import { renderWith } from "./scene.js";
import { TimeScene } from "./time_scene.js";

const MEMORY_HINT = "Each lane is one rank: what it holds, piled up. Play, or point at a lane for its numbers.";
const MOST_MEMORY_STOPS = 5000;

class MemoryLanesView extends TimeScene {
  constructor(model, el) { super(model, el, { name: "memory-lanes", role: "memory lanes", hint: MEMORY_HINT }); }

  prepare() {
    if (this.model.get("missing")) return this.model.get("missing");
    this.data = readHeld(this.model.get("columns"));
    for (const name of ["ranks", "bands"]) this[name] = this.model.get(name);
    this.limit = this.model.get("limit_bytes");
    this.lanes = lanesOf(this.model.get("counts"));
    this.items = this.ranks.map(({ rank }, k) => ({ rank, k, rows: this.data.row.subarray(this.lanes[k].from, this.lanes[k].to) }));
    this.open(this.model.get("steps").map(([step, from, to]) => ({ step, from, to })), this.model.get("window"));
    return "";
  }

  onWindow() {
    const [from, to] = this.window;
    this.peaks = this.lanes.map((lane) => peakOf(this.data, lane, this.window));
    this.scale = scaleOf(this.peaks.map((k) => totalAt(this.data, k)), this.limit);
    this.stops = [...new Set(this.data.t)].filter((t) => t >= from && t <= to).sort((a, b) => a - b).slice(0, MOST_MEMORY_STOPS);
  }

  layOut(width) { return layLanes(this.ranks.length, width, this.ranks.some(({ place }) => place)); }

  retheme() {
    this.bandFills = null;
    super.retheme();
    if (this.bands) this.bandFills = makeFills(this.bands, this.theme, this.dpr || 1);
    this.showLegend();
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  yOf({ top, height }, bytes) { return top + height - (bytes / this.scale) * height; }

  /** All piles of the view. */
  paintLayer(g) {
    const { data, view, scale, bandFills: fills, layout: { left, right, lanes } } = this;
    lanes.forEach((box, k) => {
      g.fillStyle = this.colours.soft; g.fillRect(left, box.top, right - left, box.height);
      paintPiles(g, { data, lane: this.lanes[k], view, box, left, right, scale, fills });
    });
  }

  paintNames(g) {
    const { colours, layout } = this;
    g.textBaseline = "middle"; g.textAlign = "left";
    layout.lanes.forEach((lane, k) => {
      const { rank, place } = this.ranks[k], middle = lane.top + lane.height / 2, twoLines = place && lane.height >= 30 && !layout.narrow;
      g.fillStyle = colours.text; g.font = `600 12px ${FONT}`;
      g.fillText(`rank ${rank}`, 6, twoLines ? middle - 7 : middle);
      if (twoLines) { g.fillStyle = colours.muted; g.font = `11px ${FONT}`; g.fillText(fitText(g, place, layout.left - 12), 6, middle + 8); }
    });
  }

  paintMoving(g, now) {
    const { colours, layout } = this;
    g.textBaseline = "middle";
    layout.lanes.forEach((lane, k) => {
      const isMarked = now.hovered === k || now.selected === k;
      g.strokeStyle = isMarked ? colours.accent : colours.line; g.lineWidth = isMarked ? 2 : 1;
      g.strokeRect(layout.left - 0.5, lane.top - 0.5, layout.right - layout.left + 1, lane.height + 1);
      this.paintPeak(g, lane, k, now);
      if (this.limit !== null && this.limit !== undefined) this.paintLimit(g, lane, k === 0);
    });
  }

  /** A dashed line at the rank's peak; beside the lane what it holds now and its peak. */
  paintPeak(g, lane, k, now) {
    const { colours, layout, data } = this, peak = this.peaks[k], x = layout.right + 8, middle = lane.top + lane.height / 2;
    if (peak < 0) return;
    const bytes = totalAt(data, peak), y = this.yOf(lane, bytes), isOver = this.limit && bytes > this.limit, isTall = lane.height >= 28;
    g.setLineDash([3, 3]); g.strokeStyle = colours.text; g.lineWidth = 1; g.globalAlpha = 0.6;
    g.beginPath(); g.moveTo(layout.left, y); g.lineTo(layout.right, y); g.stroke();
    g.setLineDash([]); g.globalAlpha = 1;
    g.textAlign = "left"; g.font = `600 12px ${FONT}`; g.fillStyle = colours.text;
    const at = now.isStarted ? rowAt(data, this.lanes[k], now.t) : peak, shown = now.isStarted ? (at < 0 ? "–" : sizeText(totalAt(data, at))) : sizeText(bytes);
    g.fillText(shown, x, isTall ? middle - 7 : middle);
    if (!isTall) return;
    g.font = `${isOver ? 600 : 400} 11px ${FONT}`; g.fillStyle = isOver ? colours["bad-line"] : colours.muted;
    g.fillText(isOver ? "over limit" : now.isStarted && !layout.narrow ? `peak ${sizeText(bytes)}` : now.isStarted ? "now" : "peak", x, middle + 8);
  }

  paintLimit(g, lane, isFirst) {
    const { colours, layout } = this, y = this.yOf(lane, this.limit);
    g.strokeStyle = colours["bad-line"]; g.lineWidth = 2;
    g.beginPath(); g.moveTo(layout.left, y); g.lineTo(layout.right, y); g.stroke();
    if (!isFirst) return;
    g.font = `600 11px ${FONT}`; g.textAlign = "right"; g.textBaseline = "middle";
    const below = y + 9 < lane.top + lane.height ? y + 9 : y - 9;
    g.fillStyle = colours.text;
    rimmedText(g, `limit ${sizeText(this.limit)}`, layout.right - 5, below, colours.page);
  }

  // ---- pointing and telling -------------------------------------------------------------------------------------------

  /** A click also goes there: a lane is everywhere. */
  click(event) {
    if (event.offsetX >= this.layout.left) this.jump(this.timeOf(event.offsetX));
    super.click(event);
  }

  itemAt(x, y) { return this.layout ? this.layout.lanes.findIndex(({ top, height }) => y >= top - 3 && y <= top + height + 3) : -1; }

  /** A rank stands for the event that told what it holds now. */
  rowOf(k) {
    const row = rowAt(this.data, this.lanes[k], this.now.t);
    return row < 0 ? -1 : this.data.row[row];
  }

  tell(k) {
    const { data } = this, row = this.now.isStarted ? rowAt(data, this.lanes[k], this.now.t) : this.peaks[k], peak = this.peaks[k];
    const when = this.now.isStarted ? "holds now" : "holds at its peak";
    if (row < 0) return { title: `rank ${this.ranks[k].rank}`, facts: [["", "nothing told yet"]] };
    const facts = [[when, sizeText(totalAt(data, row))], ...this.bands.map(({ label }, band) => [label, sizeText(data.held[band][row])])];
    facts.push(["peak", `${sizeText(totalAt(data, peak))}, at ${timeText(Math.max(0, data.t[peak] - this.window[0]))}`]);
    if (this.limit) facts.push(["of the limit", `${Math.round((100 * totalAt(data, row)) / this.limit)} %`]);
    return { title: `rank ${this.ranks[k].rank}`, facts, colour: this.bandFills[0].base };
  }

  tellNow() {
    const heldBy = (lane) => { const row = rowAt(this.data, lane, this.now.t); return row < 0 ? "–" : sizeText(totalAt(this.data, row)); };
    const facts = this.lanes.slice(0, 12).map((lane, k) => [`rank ${this.ranks[k].rank}`, heldBy(lane)]);
    return { title: "held now", facts };
  }

  clockText(t) { return momentText(t, this.window); }

  sentences() {
    const { data } = this, over = this.peaks.flatMap((k, r) => (this.limit && k >= 0 && totalAt(data, k) > this.limit ? [this.ranks[r].rank] : []));
    const who = over.length === 1 ? `rank ${over[0]} goes` : over.length ? `ranks ${over.join(", ")} go` : "no rank goes";
    const limit = this.limit ? ` The limit is ${sizeText(this.limit)}: ${who} over it.` : "";
    const parts = (k) => this.bands.map(({ label }, band) => `${label} ${sizeText(data.held[band][k])}`).join(", ");
    const most = (k) => (k < 0 ? "nothing told" : `at most ${sizeText(totalAt(data, k))}, of it ${parts(k)}`);
    return [
      `Memory of ${countText(this.ranks.length, "rank")} over ${timeText(this.window[1] - this.window[0])}, all on one scale.${limit}`,
      ...this.peaks.slice(0, 64).map((k, r) => `Rank ${this.ranks[r].rank}: ${most(k)}.`),
      "Counted are the tensors that the engine knows, not what the allocator keeps in reserve.",
    ];
  }

  legend() {
    if (!this.bandFills) return [];
    const dashes = (g, w, h) => { g.fillStyle = this.colours.text; for (let x = 0; x < w; x += 6) g.fillRect(x, h / 2, 3, 1); };
    const line = (g, w, h) => { g.fillStyle = this.colours["bad-line"]; g.fillRect(0, h / 2 - 1, w, 2); };
    const list = [...this.bands.map(({ label }, band) => [filled(this.bandFills[band]), label]), [dashes, "peak"]];
    return this.limit ? [...list, [line, "limit"]] : list;
  }
}

const render = renderWith(MemoryLanesView, "memory lanes");

export default { render };
