// The matrix shard scene: a weight is cut over ranks, ranks multiply, results are put together and compared.

import { between, cellAt, heightOfBox, placeShard, rowsDone, targetOf, widthOfBox } from "./matrix_shard_geometry.js";
import { typed } from "./buffers.js";
import { FONT, fitText } from "./canvas_text.js";
import { numberScale } from "./diverging.js";
import { choice } from "./markup.js";
import { numberImage } from "./number_image.js";
import { countText, numberText } from "./quantities.js";
import { ActScene, renderWith } from "./scene.js";

const SHARD_HINT = "Play: the weight is cut and handed out, every rank multiplies its part, results are put together and compared. Point at a cell for its number.";
const ACTS = ["cut and hand out", "multiply", "put together", "compare"];

class MatrixShardView extends ActScene {
  constructor(model, el) { super(model, el, { name: "matrix-shard", role: "matrix shard", hint: SHARD_HINT }); }

  prepare() {
    if (this.model.get("missing")) return this.model.get("missing");
    this.window = [0, 4];
    this.stops = [0, 1, 2, 3, 4];
    this.seconds = 12;
    this.use(0);
    return "";
  }

  use(number) {
    const shard = (this.shard = this.model.get("shards")[number]), columns = this.model.get("columns");
    this.isRows = shard.cut === "rows";
    this.values = {};
    for (const [name, [key]] of Object.entries(shard.matrices)) this.values[name] = typed(columns[key], Float32Array);
    this.values.weight = this.joined("weight", this.isRows ? 0 : 1);
    this.values.input = this.isRows ? this.values.input0 : this.joined("input", 1);
    const largest = (...names) => Math.max(1e-30, ...names.flatMap((name) => [...this.values[name]]).map(Math.abs));
    this.scales = { weight: largest("weight"), input: largest("input"), partial: largest("combined", ...shard.ranks.map((_, k) => `partial${k}`)), difference: largest("difference") };
    this.items = shard.ranks.map((rank, k) => ({ k, rank, row: shard.rows[k] }));
    this.pointed = null;
    this.pictures = {};
  }

  /** The ranks' parts as one matrix. */
  joined(kind, dim) {
    const parts = this.shard.ranks.map((_, k) => [this.values[`${kind}${k}`], ...this.shard.matrices[`${kind}${k}`].slice(1)]);
    if (dim === 0) return Float32Array.from(parts.flatMap(([data]) => [...data]));
    const rows = parts[0][1], whole = [];
    for (let r = 0; r < rows; r++) for (const [data, , cols] of parts) whole.push(...data.subarray(r * cols, (r + 1) * cols));
    return Float32Array.from(whole);
  }

  choices() {
    const shards = this.model.get("shards");
    if (shards.length < 2) return [];
    const picker = choice("Which weight", shards.map(({ name, cut }, k) => [k, `${name} · by ${cut}`]));
    picker.onchange = () => { this.use(Number(picker.value)); this.restart(); };
    return [picker];
  }

  layOut(width) { return placeShard(this.shard, width); }

  retheme() { this.pictures = {}; super.retheme(); }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  paint(g, now) {
    this.boxes = [];
    g.imageSmoothingEnabled = false;
    g.textBaseline = "middle";
    const { layout, shard } = this, t = now.isCalm ? Math.floor(now.t + 1e-9) : now.t, [outs, ins] = shard.weight_shape;
    this.paintMatrix(g, "input", layout.input, { label: this.wholeLabel("input x", shard.num_samples, ins), kind: "input" });
    this.paintMatrix(g, "weight", layout.weight, { label: this.wholeLabel("weight W", outs, ins), kind: "weight" });
    this.paintCuts(g, t);
    for (const panel of layout.panels) this.paintPanel(g, panel, t, now);
    this.paintResults(g, t);
    for (const panel of layout.panels) this.paintFlying(g, panel, t);
  }

  /** The lines along which the whole weight and, by columns, the input are cut. */
  paintCuts(g, t) {
    const { layout, isRows } = this;
    g.strokeStyle = this.colours.playhead; g.lineWidth = 2; g.globalAlpha = Math.min(1, t * 6);
    for (const { offset } of layout.panels.slice(1)) {
      const { weight, input } = layout;
      g.beginPath();
      if (isRows) { const y = weight.y + offset * weight.cell; g.moveTo(weight.x - 3, y); g.lineTo(weight.x + widthOfBox(weight) + 3, y); }
      else for (const box of [weight, input]) { const x = box.x + offset * box.cell; g.moveTo(x, box.y - 3); g.lineTo(x, box.y + heightOfBox(box) + 3); }
      g.stroke();
    }
    g.globalAlpha = 1;
  }

  paintPanel(g, panel, t, now) {
    const { colours, shard } = this, isMarked = [now.hovered, now.selected].includes(panel.k), rank = shard.ranks[panel.k];
    g.strokeStyle = isMarked ? colours.accent : colours.line; g.lineWidth = isMarked ? 2 : 1;
    g.beginPath(); g.roundRect(panel.left, panel.top, panel.width, panel.bottom - panel.top, 8); g.stroke();
    g.textAlign = "left"; g.fillStyle = colours.text; g.font = `600 12px ${FONT}`;
    g.fillText(`rank ${rank}`, panel.left + 8, panel.top + 13);
    for (const kind of ["input", "weight"]) {
      const box = between(panel.from[kind], panel[kind], t);
      if (t > 0) this.paintMatrix(g, `${kind}${panel.k}`, box, { label: t >= 1 ? this.partLabel(kind, panel.k) : "", kind, room: widthOfBox(panel[kind]) });
      else this.paintEmpty(g, panel[kind]);
    }
    if (t < 1) { this.paintEmpty(g, panel.partial); return; }
    const done = rowsDone(panel.partial.rows, t);
    const label = this.isRows ? ["its columns of y", "part of y", "y"] : ["its summand of y", "summand", "y"];
    const room = panel.left + panel.width - panel.partial.x - 4;
    this.paintMatrix(g, `partial${panel.k}`, panel.partial, { label, kind: "partial", rows: done, room });
  }

  wholeLabel(what, rows, cols) {
    const text = `${what}, ${rows} × ${cols}`;
    return this.shard.is_cropped ? [`${text}, a corner of it`, text] : text;
  }

  /** With the part's own size, of which a large one shows only a corner. */
  partLabel(kind, k) {
    const size = this.shard.part_shapes[kind][k].join(" × "), side = this.isRows ? "rows" : "columns";
    if (kind === "weight") return [`${side} of W, ${size}`, `${side} of W`, "W"];
    return this.isRows ? ["the same x", "x"] : [`slice of x, ${size}`, "slice of x", "x"];
  }

  paintResults(g, t) {
    const { layout, shard } = this, room = layout.resultStep, isTogether = t >= 3;
    if (isTogether) this.paintMatrix(g, "combined", layout.combined, { label: this.togetherLabel(), kind: "partial", room });
    else { this.paintEmpty(g, layout.combined); this.paintLabel(g, this.togetherLabel(), layout.combined, room); }
    const u = Math.min(1, Math.max(0, t - 3)), rows = Math.ceil(u * layout.whole.rows);
    this.paintMatrix(g, "whole", layout.whole, { label: shard.whole_from === "captured" ? "one rank's" : "whole product", kind: "partial", rows, room });
    this.paintMatrix(g, "difference", layout.difference, { label: rows === 0 ? "difference" : [`difference, up to ${numberText(shard.max_difference)}`, "difference"], kind: "difference", rows, room });
    g.textAlign = "left"; g.font = `600 12px ${FONT}`; g.fillStyle = this.colours.text;
    if (u >= 1) g.fillText(fitText(g, this.verdict(), layout.width - 12), 6, layout.height - 9);
  }

  togetherLabel() {
    if (!this.isRows) return ["added up by one all_reduce", "added up"];
    return this.shard.feeds ? ["side by side, here only", "side by side"] : "side by side";
  }

  verdict() {
    const { max_difference, largest } = this.shard, { width } = this.layout || { width: 0 };
    if (width && width < 560) return max_difference === 0 ? "No difference at all." : `Largest difference ${numberText(max_difference)}.`;
    return max_difference === 0 ? "No difference, to the last bit." : `Largest difference ${numberText(max_difference)}, where the largest number is ${numberText(largest)}.`;
  }

  paintFlying(g, panel, t) {
    if (t <= 2 || t >= 3) return;
    const box = between(panel.partial, targetOf(this.layout, panel, this.isRows), (t - 2) * 1.15 - 0.15 * (panel.k / Math.max(1, this.layout.panels.length - 1)));
    g.globalAlpha = this.isRows ? 1 : 0.75;
    this.paintMatrix(g, `partial${panel.k}`, box, { kind: "partial", isFlying: true });
    g.globalAlpha = 1;
  }

  paintMatrix(g, name, box, { label = "", kind, rows = box.rows, room = 0, isFlying = false }) {
    const { colours } = this, width = widthOfBox(box), height = heightOfBox(box), picture = this.pictureOf(name, kind);
    if (label) this.paintLabel(g, label, box, room || width + 60);
    if (rows < box.rows) this.paintEmpty(g, box);
    if (rows === 0) return;
    if (picture) g.drawImage(picture, 0, 0, picture.width, rows, box.x, box.y, width, box.cell * rows);
    if (box.cell >= 7) this.paintGrid(g, box, rows);
    g.strokeStyle = isFlying ? colours.playhead : colours.muted; g.lineWidth = isFlying ? 2 : 1;
    g.strokeRect(box.x - 0.5, box.y - 0.5, width + 1, height + 1);
    this.boxes.push([name, { ...box, rows }]);
  }

  paintGrid(g, box, rows) {
    g.strokeStyle = this.colours.page; g.lineWidth = 0.75; g.globalAlpha = 0.6;
    g.beginPath();
    for (let c = 1; c < box.cols; c++) { g.moveTo(box.x + c * box.cell, box.y); g.lineTo(box.x + c * box.cell, box.y + rows * box.cell); }
    for (let r = 1; r < rows; r++) { g.moveTo(box.x, box.y + r * box.cell); g.lineTo(box.x + widthOfBox(box), box.y + r * box.cell); }
    g.stroke();
    g.globalAlpha = 1;
  }

  paintLabel(g, label, box, room) {
    g.font = `11px ${FONT}`; g.textAlign = "left"; g.fillStyle = this.colours.muted;
    const text = [label].flat().find((one) => g.measureText(one).width <= room) || fitText(g, [label].flat()[0], room);
    g.fillText(text, box.x, box.y - 9);
  }

  paintEmpty(g, box) {
    g.strokeStyle = this.colours.line; g.lineWidth = 1; g.setLineDash([4, 3]);
    g.strokeRect(box.x - 0.5, box.y - 0.5, widthOfBox(box) + 1, heightOfBox(box) + 1);
    g.setLineDash([]);
  }

  /** A matrix as an image of one pixel a number; null for one without numbers. */
  pictureOf(name, kind) {
    if (this.pictures[name]) return this.pictures[name];
    const data = this.values[name], cols = this.colsOf(name);
    if (!cols || !data.length) return null;
    return (this.pictures[name] = numberImage(data, cols, this.scales[kind], numberScale(this.fills, this.theme)));
  }

  colsOf(name) {
    const { matrices } = this.shard, rowsOf = { weight: this.isRows ? 0 : matrices.weight0[1], input: matrices.input0[1] };
    if (name === "weight" && this.isRows) return matrices.weight0[2];
    return name in rowsOf ? this.values[name].length / rowsOf[name] : matrices[name][2];
  }

  // ---- pointing and telling -------------------------------------------------------------------------------------------

  itemAt(x, y) {
    const pointed = cellAt(this.boxes || [], x, y);
    if (JSON.stringify(pointed) !== JSON.stringify(this.pointed)) { this.pointed = pointed; this.ask(); }
    return (this.layout?.panels || []).findIndex((panel) => x >= panel.left && x <= panel.left + panel.width && y >= panel.top && y <= panel.bottom);
  }

  listen() {
    super.listen();
    this.picture.addEventListener("pointerleave", () => { this.pointed = null; this.ask(); });
  }

  /** A cell says more than its panel. */
  told() { return this.pointed ? this.tellCell(this.pointed) : super.told(); }

  tellCell({ name, row, col }) {
    const value = this.values[name][row * this.colsOf(name) + col], k = name.match(/\d+$/)?.[0], kind = name.replace(/\d+$/, "");
    const where = kind === "weight" ? [["output", row], ["input", col]] : [["sample", row], [kind === "input" ? "feature" : "output", col]];
    const facts = [["value", numberText(value)], ...where];
    if (kind === "partial") facts.push(["", this.shard.partials_from]);
    if (kind === "whole") facts.push(["", this.wholeText()]);
    const titles = { partial: this.isRows ? "product" : "summand", combined: "result of all ranks", whole: "whole product" };
    return { title: `${titles[kind] || kind}${k === undefined ? "" : `, rank ${this.shard.ranks[k]}`}`, facts };
  }

  tell(i) {
    const { shard } = this, [, rows, cols] = shard.matrices[`weight${i}`];
    const facts = [
      ["holds", `${rows} × ${cols} of ${shard.weight_shape.join(" × ")} of ${shard.name}`],
      ["makes", this.isRows ? `${rows} columns of the result` : "a summand of the whole result"], ["its product", shard.partials_from],
    ];
    return { title: `rank ${shard.ranks[i]}`, facts };
  }

  tellNow() {
    const act = Math.min(3, Math.floor(this.now.t)), { shard } = this;
    const how = [
      `W is cut by ${shard.cut}; every rank gets ${this.isRows ? "the same input" : "its slice of the input"}`,
      `each rank: x times its part${this.isRows && shard.has_relu ? ", then ReLU" : ""} (${shard.partials_from})`,
      this.shard.feeds ? `in the run the parts stay apart: ${this.shard.feeds} takes each as its slice; here they are set side by side` : this.isRows ? "results are set side by side" : `summands are added over ranks (all-reduce)${shard.has_relu ? ", then ReLU" : ""}`, this.verdict(),
    ];
    return { title: `${act + 1} · ${ACTS[act]}`, facts: [["", how[act]]] };
  }

  wholeText() { return this.shard.whole_from === "captured" ? "captured on one rank" : "computed here, in double precision, from the captured weights and input"; }

  clockText(t) { const act = Math.min(3, Math.floor(t)); return `${act + 1} · ${ACTS[act]}`; }

  sentences() {
    const { shard } = this, [outs, ins] = shard.weight_shape;
    return [
      `Weight ${shard.name}, ${outs} × ${ins}, cut by ${shard.cut} over ${countText(shard.ranks.length, "rank")}: each computes ` +
        `${this.isRows ? "some columns of the result from the same input" : "a summand of the whole result from its slice of the input"}. ${this.verdict()}`,
      `Weights, inputs and the result are captured; the ranks' products are ${shard.partials_from}; the whole product is ${this.wholeText()}.`,
      ...(shard.feeds ? [`Nothing is sent after it: each rank's part goes into ${shard.feeds}, which is cut by columns, and one all-reduce adds up there.`] : []),
      ...(shard.is_cropped ? [`Shown are the first samples, and the first numbers of each part; the difference counts all.`] : []),
    ];
  }

  legend() {
    const colour = numberScale(this.fills, this.theme), ramp = (g, w, h) => { for (let x = 0; x < w; x++) { g.fillStyle = `rgb(${colour((2 * x) / (w - 1) - 1).join()})`; g.fillRect(x, 0, 1, h); } };
    const line = (g, w, h) => { g.fillStyle = this.colours.playhead; g.fillRect(0, h / 2 - 1, w, 2); };
    return [[ramp, "blue negative, orange positive, each kind on its own scale"], [line, `cut by ${this.shard.cut}`]];
  }
}

const render = renderWith(MatrixShardView, "matrix shard");

export default { render };
