// The memory scene: a lane for every rank with its pile of four bands, its peak, and a limit.

import { ticks } from "./geometry.js";
import { makeFills } from "./fills.js";
import { choice } from "./markup.js";
import { lanesOf, layLanes, peakOf, pixelRows, readHeld, rowAt, scaleOf, totalAt } from "./memory_lanes_geometry.js";
import { countText, sizeText, spanText } from "./quantities.js";
import { filled, fitText, renderWith, Scene, SCENE_FONT } from "./scene.js";

const MEMORY_HINT = "Each lane is one rank: what it holds, piled up. Play, or point at a lane for its numbers.";
const MOST_MEMORY_STOPS = 5000;

class MemoryLanesView extends Scene {
  constructor(model, el) { super(model, el, { name: "memory-lanes", role: "memory lanes", hint: MEMORY_HINT }); }

  prepare() {
    if (this.model.get("missing")) return this.model.get("missing");
    this.data = readHeld(this.model.get("columns"));
    for (const name of ["ranks", "bands", "steps"]) this[name] = this.model.get(name);
    this.limit = this.model.get("limit_bytes");
    this.lanes = lanesOf(this.model.get("counts"));
    this.items = this.ranks.map(({ rank }, k) => ({ rank, k, row: -1, rows: this.data.row.subarray(this.lanes[k].from, this.lanes[k].to) }));
    this.use(this.model.get("step"));
    return "";
  }

  use(step) {
    const range = this.steps.find(([number]) => number === step), [from, to] = range ? range.slice(1) : this.model.get("window");
    this.window = [from, Math.max(to, from + 1000)];
    this.peaks = this.lanes.map((lane) => peakOf(this.data, lane, this.window));
    this.scale = scaleOf(this.peaks.map((k) => totalAt(this.data, k)), this.limit);
    this.stops = [...new Set(this.data.t)].filter((t) => t >= from && t <= to).sort((a, b) => a - b).slice(0, MOST_MEMORY_STOPS);
    this.layer = null;
  }

  choices() {
    if (this.steps.length < 2) return [];
    const picker = choice("Training step", [["", "all steps"], ...this.steps.map(([step]) => [step, `step ${step}`])]), opened = this.model.get("step");
    picker.value = opened === null || opened === undefined ? "" : String(opened);
    picker.onchange = () => { this.use(picker.value === "" ? null : Number(picker.value)); this.restart(); };
    return [picker];
  }

  layOut(width) { this.layer = null; return layLanes(this.ranks.length, width, this.ranks.some(({ place }) => place)); }

  retheme() {
    this.layer = this.bandFills = null;
    super.retheme();
    if (this.bands) this.bandFills = makeFills(this.bands, this.theme, this.dpr || 1);
    this.showLegend();
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  xOf(t) { const { left, right } = this.layout; return left + ((t - this.window[0]) / (this.window[1] - this.window[0])) * (right - left); }

  yOf({ top, height }, bytes) { return top + height - (bytes / this.scale) * height; }

  paint(g, now) {
    const { layout } = this, x = Math.max(layout.left, Math.min(layout.right, this.xOf(now.t)));
    this.layer ||= this.paintBands();
    this.paintTime(g);
    this.copy(g, layout.left, x, 1);
    this.copy(g, x, layout.right, now.isStarted ? 0.34 : 1);
    layout.lanes.forEach((lane, k) => this.paintLane(g, lane, k, now));
    g.fillStyle = this.colours.playhead;
    g.fillRect(x - 0.75, 4, 1.5, layout.plotBottom);
    g.beginPath(); g.moveTo(x - 5.5, 0); g.lineTo(x + 5.5, 0); g.lineTo(x + 5.5, 3); g.lineTo(x, 10); g.lineTo(x - 5.5, 3); g.fill();
  }

  copy(g, from, to, alpha) {
    if (to <= from) return;
    g.globalAlpha = alpha;
    g.drawImage(this.layer, from * this.dpr, 0, (to - from) * this.dpr, this.layout.height * this.dpr, from, 0, to - from, this.layout.height);
    g.globalAlpha = 1;
  }

  /** All piles on a canvas of their own; every frame copies it. */
  paintBands() {
    const { layout, data } = this, canvas = new OffscreenCanvas(layout.width * this.dpr, layout.height * this.dpr), g = canvas.getContext("2d");
    g.scale(this.dpr, this.dpr);
    const width = Math.max(1, Math.floor(layout.right - layout.left));
    layout.lanes.forEach((lane, k) => {
      const rows = pixelRows(data, this.lanes[k], this.window, width);
      g.fillStyle = this.colours.soft; g.fillRect(layout.left, lane.top, layout.right - layout.left, lane.height);
      for (let x = 0; x < width;) { // equal neighbours are one block, so that patterns are not cut to slivers
        let end = x + 1;
        while (end < width && rows[end] === rows[x]) end++;
        if (rows[x] >= 0) this.paintPile(g, lane, rows[x], layout.left + x, end - x);
        x = end;
      }
    });
    return canvas;
  }

  paintPile(g, lane, row, x, width) {
    let held = 0;
    this.data.held.forEach((column, band) => {
      const bottom = this.yOf(lane, held), top = this.yOf(lane, (held += column[row]));
      if (bottom - top < 0.05) return;
      g.fillStyle = this.bandFills[band].fill;
      g.fillRect(x, top, width, bottom - top);
    });
  }

  paintTime(g) {
    const { layout, colours, window } = this, unit = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find(([, size]) => window[1] - window[0] >= size * 2) || ["ns", 1];
    const { every, times } = ticks([0, (window[1] - window[0]) / unit[1]], (layout.right - layout.left) / (layout.narrow ? 64 : 86));
    const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(every) + 1e-9)));
    g.font = `11px ${SCENE_FONT}`; g.textBaseline = "top"; g.textAlign = "center";
    for (const time of times) {
      const x = this.xOf(window[0] + time * unit[1]);
      g.fillStyle = colours.grid; g.fillRect(Math.round(x), 10, 1, layout.plotBottom - 6);
      g.fillStyle = colours.muted; g.fillText(time.toFixed(digits), x, layout.plotBottom + 8);
    }
    g.textAlign = "left"; g.fillText(layout.narrow ? unit[0] : `time in ${unit[0]}`, 4, layout.plotBottom + 8);
  }

  paintLane(g, lane, k, now) {
    const { colours, layout } = this, { rank, place } = this.ranks[k], isMarked = now.hovered === k || now.selected === k, middle = lane.top + lane.height / 2;
    g.strokeStyle = isMarked ? colours.accent : colours.line; g.lineWidth = isMarked ? 2 : 1;
    g.strokeRect(layout.left - 0.5, lane.top - 0.5, layout.right - layout.left + 1, lane.height + 1);
    g.textBaseline = "middle"; g.textAlign = "left"; g.fillStyle = colours.text; g.font = `600 12px ${SCENE_FONT}`;
    const twoLines = place && lane.height >= 30 && !layout.narrow;
    g.fillText(`rank ${rank}`, 6, twoLines ? middle - 7 : middle);
    if (twoLines) { g.fillStyle = colours.muted; g.font = `11px ${SCENE_FONT}`; g.fillText(fitText(g, place, layout.left - 12), 6, middle + 8); }
    this.paintPeak(g, lane, k, now);
    if (this.limit !== null && this.limit !== undefined) this.paintLimit(g, lane, k === 0);
  }

  /** A dashed line at the rank's peak; beside the lane what it holds now and its peak. */
  paintPeak(g, lane, k, now) {
    const { colours, layout, data } = this, peak = this.peaks[k], x = layout.right + 8, middle = lane.top + lane.height / 2;
    if (peak < 0) return;
    const bytes = totalAt(data, peak), y = this.yOf(lane, bytes), isOver = this.limit && bytes > this.limit, isTall = lane.height >= 28;
    g.setLineDash([3, 3]); g.strokeStyle = colours.text; g.lineWidth = 1; g.globalAlpha = 0.6;
    g.beginPath(); g.moveTo(layout.left, y); g.lineTo(layout.right, y); g.stroke();
    g.setLineDash([]); g.globalAlpha = 1;
    g.textAlign = "left"; g.font = `600 12px ${SCENE_FONT}`; g.fillStyle = colours.text;
    const at = now.isStarted ? rowAt(data, this.lanes[k], now.t) : peak, shown = now.isStarted ? (at < 0 ? "–" : sizeText(totalAt(data, at))) : sizeText(bytes);
    g.fillText(shown, x, isTall ? middle - 7 : middle);
    if (!isTall) return;
    g.font = `${isOver ? 600 : 400} 11px ${SCENE_FONT}`; g.fillStyle = isOver ? colours["bad-line"] : colours.muted;
    g.fillText(isOver ? "over limit" : now.isStarted && !layout.narrow ? `peak ${sizeText(bytes)}` : now.isStarted ? "now" : "peak", x, middle + 8);
  }

  paintLimit(g, lane, isFirst) {
    const { colours, layout } = this, y = this.yOf(lane, this.limit);
    g.strokeStyle = colours["bad-line"]; g.lineWidth = 2;
    g.beginPath(); g.moveTo(layout.left, y); g.lineTo(layout.right, y); g.stroke();
    if (!isFirst) return;
    g.font = `600 11px ${SCENE_FONT}`; g.textAlign = "right"; g.textBaseline = "middle"; g.lineJoin = "round";
    const below = y + 9 < lane.top + lane.height ? y + 9 : y - 9;
    g.strokeStyle = colours.page; g.lineWidth = 4; g.strokeText(`limit ${sizeText(this.limit)}`, layout.right - 5, below);
    g.fillStyle = colours.text; g.fillText(`limit ${sizeText(this.limit)}`, layout.right - 5, below);
  }

  // ---- pointing and telling -------------------------------------------------------------------------------------------

  listen() {
    super.listen();
    const seek = (event) => { const { left, right } = this.layout; this.jump(this.window[0] + ((event.offsetX - left) / (right - left)) * (this.window[1] - this.window[0])); };
    this.picture.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.offsetX < this.layout.left) return;
      this.picture.setPointerCapture(event.pointerId);
      this.isDragging = true;
      seek(event);
    });
    this.picture.addEventListener("pointermove", (event) => { if (this.isDragging) seek(event); });
    for (const name of ["pointerup", "pointercancel"]) this.picture.addEventListener(name, () => { this.isDragging = false; });
  }

  itemAt(x, y) { return this.layout ? this.layout.lanes.findIndex(({ top, height }) => y >= top - 3 && y <= top + height + 3) : -1; }

  /** Selecting a rank selects the event that told what it holds now. */
  select(k) {
    if (k >= 0) { const row = rowAt(this.data, this.lanes[k], this.now.t); this.items[k].row = row < 0 ? -1 : this.data.row[row]; }
    super.select(k);
  }

  tell(k) {
    const { data } = this, row = this.now.isStarted ? rowAt(data, this.lanes[k], this.now.t) : this.peaks[k], peak = this.peaks[k];
    const when = this.now.isStarted ? "holds now" : "holds at its peak";
    if (row < 0) return { title: `rank ${this.ranks[k].rank}`, facts: [["", "nothing told yet"]] };
    const facts = [[when, sizeText(totalAt(data, row))], ...this.bands.map(({ label }, band) => [label, sizeText(data.held[band][row])])];
    facts.push(["peak", `${sizeText(totalAt(data, peak))}, at ${spanText(Math.max(0, data.t[peak] - this.window[0]))}`]);
    if (this.limit) facts.push(["of the limit", `${Math.round((100 * totalAt(data, row)) / this.limit)} %`]);
    return { title: `rank ${this.ranks[k].rank}`, facts, colour: this.bandFills[0].base };
  }

  tellNow() {
    const heldBy = (lane) => { const row = rowAt(this.data, lane, this.now.t); return row < 0 ? "–" : sizeText(totalAt(this.data, row)); };
    const facts = this.lanes.slice(0, 12).map((lane, k) => [`rank ${this.ranks[k].rank}`, heldBy(lane)]);
    return { title: "held now", facts };
  }

  clockText(t) { return `${spanText(t - this.window[0])} / ${spanText(this.window[1] - this.window[0])}`; }

  sentences() {
    const { data } = this, over = this.peaks.flatMap((k, r) => (this.limit && k >= 0 && totalAt(data, k) > this.limit ? [this.ranks[r].rank] : []));
    const who = over.length === 1 ? `rank ${over[0]} goes` : over.length ? `ranks ${over.join(", ")} go` : "no rank goes";
    const limit = this.limit ? ` The limit is ${sizeText(this.limit)}: ${who} over it.` : "";
    const parts = (k) => this.bands.map(({ label }, band) => `${label} ${sizeText(data.held[band][k])}`).join(", ");
    const most = (k) => (k < 0 ? "nothing told" : `at most ${sizeText(totalAt(data, k))}, of it ${parts(k)}`);
    return [
      `Memory of ${countText(this.ranks.length, "rank")} over ${spanText(this.window[1] - this.window[0])}, all on one scale.${limit}`,
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
