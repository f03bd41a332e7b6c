// The replicas scene: every rank's copy of a weight, its own gradient, the average, and the step that follows.

import { typed } from "./buffers.js";
import { FONT, fitText, rimmedText } from "./canvas_text.js";
import { numberScale } from "./diverging.js";
import { choice } from "./markup.js";
import { between, cellAt, heightOfBox, widthOfBox } from "./matrix_shard_geometry.js";
import { numberImage } from "./number_image.js";
import { numberText } from "./quantities.js";
import { actAt, NUM_ACTS, pathThrough, placeReplicas } from "./replicas_geometry.js";
import { ActScene, renderWith } from "./scene.js";

const REPLICA_HINT = "Play: every rank finds the gradient of its own samples, gradients are averaged, weights change. Point at a cell for its number.";
const REPLICA_ROWS = { weights: "weights", own: "own gradient", mean: "average", used: "gradient that is used" };

class ReplicasView extends ActScene {
  constructor(model, el) { super(model, el, { name: "replicas", role: "replicas", hint: REPLICA_HINT }); }

  prepare() {
    if (this.model.get("missing")) return this.model.get("missing");
    const columns = this.model.get("columns");
    this.moments = this.model.get("moments");
    this.isSynced = this.moments.every(({ used }) => used === 0);
    this.values = Object.fromEntries(Object.keys(columns).map((name) => [name, typed(columns[name], Float32Array)]));
    this.items = this.model.get("ranks").map((rank, k) => ({ k, rank, row: -1 }));
    this.window = [0, this.moments.length * NUM_ACTS];
    this.stops = Array.from({ length: this.window[1] + 1 }, (_, k) => k);
    this.seconds = 2 * this.window[1];
    this.use(this.model.get("unit"));
    return "";
  }

  use(unit) {
    this.unit = unit;
    this.pictures = {};
    const largest = (name, from, count) => Math.max(1e-30, ...Array.from({ length: count }, (_, k) => this.numbers(name, from + k)).flatMap((numbers) => [...numbers].map(Math.abs)));
    const { length } = this.items;
    this.weightScale = largest("weights", 0, (this.moments.length + 1) * length);
    this.gradScales = this.moments.map((_, step) => largest("own", step * length, length)); // averages look as small as they are
  }

  /** The unit's numbers in the picture at a place. */
  numbers(name, place) {
    const [units, inputs] = this.model.get("shape"), start = (place * units + this.unit) * inputs;
    return this.values[name].subarray(start, start + inputs);
  }

  scaleOf(name, step) { return name === "weights" ? this.weightScale : this.gradScales[step]; }

  place(name, step, k) { return name === "mean" ? step : step * this.items.length + k; }

  choices() {
    const [units] = this.model.get("shape");
    if (units < 2) return [];
    const picker = choice("Which output of the layer", Array.from({ length: units }, (_, unit) => [unit, `output ${unit}`]));
    picker.value = String(this.unit);
    picker.onchange = () => { this.use(Number(picker.value)); this.refresh(); };
    return [picker];
  }

  layOut(width) { return placeReplicas(this.items.length, this.model.get("shape")[1], width); }

  retheme() { this.pictures = {}; super.retheme(); }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  paint(g, now) {
    this.boxes = [];
    g.imageSmoothingEnabled = false;
    g.textBaseline = "middle";
    const at = actAt(now.t, this.moments.length);
    if (now.isCalm) at.u = at.u > 0 ? 1 : 0;
    this.paintWays(g);
    this.paintRowLabels(g);
    for (const column of this.layout.columns) this.paintColumn(g, column, at, now);
    this.paintMean(g, at);
    for (const column of this.layout.columns) this.paintFlying(g, column, at);
    this.paintVerdict(g, at);
  }

  /** Which way gradients go. */
  paintWays(g) {
    const { columns, mean } = this.layout, from = (box) => box.y + heightOfBox(box), middle = mean.x + widthOfBox(mean) / 2;
    g.strokeStyle = this.colours.line; g.lineWidth = 1.5;
    g.beginPath();
    for (const { middle: x, own, used } of columns) {
      g.moveTo(x, from(own));
      if (this.isSynced) { g.lineTo(middle, mean.y); g.moveTo(middle, from(mean)); }
      g.lineTo(x, used.y);
    }
    g.stroke();
  }

  paintRowLabels(g) {
    const { columns: [first], mean, label } = this.layout;
    g.font = `11px ${FONT}`; g.textAlign = "left"; g.fillStyle = this.colours.muted;
    for (const [name, text] of Object.entries(REPLICA_ROWS)) {
      if (name === "mean" && !this.isSynced) continue;
      const box = name === "mean" ? mean : first[name];
      rimmedText(g, fitText(g, name === "weights" ? `${text} into output ${this.unit}` : text, this.layout.width - box.x), box.x, box.y - label / 2, this.colours.page);
    }
  }

  paintColumn(g, column, { step, act, u }, now) {
    const { k } = column, { rank } = this.items[k], isMarked = [now.hovered, now.selected].includes(k);
    g.font = `600 12px ${FONT}`; g.textAlign = "center"; g.fillStyle = isMarked ? this.colours.accent : this.colours.text;
    g.fillText(column.width < 56 ? String(rank) : `rank ${rank}`, column.middle, 11);
    this.paintPicture(g, "weights", step, k, column.weights);
    if (act === 2) this.paintPicture(g, "weights", step + 1, k, column.weights, { alpha: Math.max(0, u * 2 - 1) });
    if (act === 0) this.paintPicture(g, "own", step, k, column.own, { share: u });
    else this.paintPicture(g, "own", step, k, column.own);
    if (act === 2) this.paintPicture(g, "used", step, k, column.used);
    else this.paintEmpty(g, column.used);
  }

  /** The average lies in the middle; where nothing is averaged there is none. */
  paintMean(g, { step, act, u }) {
    const { mean } = this.layout;
    if (!this.isSynced) {
      g.font = `600 12px ${FONT}`; g.textAlign = "center"; g.fillStyle = this.colours.muted;
      rimmedText(g, "nothing is averaged", this.layout.width / 2, mean.y + heightOfBox(mean) / 2, this.colours.page);
    } else if (act === 2 || (act === 1 && u >= 0.5)) this.paintPicture(g, "mean", step, 0, mean);
    else this.paintEmpty(g, mean);
  }

  paintFlying(g, { k, weights, own, used }, { step, act, u }) {
    if (act === 2 && u > 0 && u < 0.5) this.paintPicture(g, "used", step, k, between(used, weights, u * 2), { alpha: 0.85, isFlying: true });
    if (act !== 1 || u <= 0) return;
    if (!this.isSynced) { this.paintPicture(g, "own", step, k, between(own, used, u), { isFlying: true }); return; }
    const way = pathThrough(own, this.layout.mean, used, u);
    this.paintPicture(g, way.isMean ? "used" : "own", step, k, between(way.from, way.to, way.u), { alpha: way.isMean ? 1 : 0.7, isFlying: true });
  }

  /** `share`: how much of it is there, from the top. */
  paintPicture(g, name, step, k, box, { alpha = 1, share = 1, isFlying = false } = {}) {
    const rows = Math.ceil(box.rows * share - 1e-9), picture = this.pictureOf(name, step, k);
    if (rows < box.rows) this.paintEmpty(g, box);
    if (!rows || !alpha) return;
    g.globalAlpha = alpha;
    g.drawImage(picture, 0, 0, picture.width, rows, box.x, box.y, widthOfBox(box), box.cell * rows);
    g.strokeStyle = isFlying ? this.colours.playhead : this.colours.muted; g.lineWidth = isFlying ? 2 : 1;
    g.strokeRect(box.x - 0.5, box.y - 0.5, widthOfBox(box) + 1, box.cell * rows + 1);
    g.globalAlpha = 1;
    if (!isFlying && alpha === 1) this.boxes.push([`${name} ${step} ${k}`, { ...box, rows }]);
  }

  paintEmpty(g, box) {
    g.fillStyle = this.colours.page; g.fillRect(box.x, box.y, widthOfBox(box), heightOfBox(box));
    g.strokeStyle = this.colours.line; g.lineWidth = 1; g.setLineDash([4, 3]);
    g.strokeRect(box.x - 0.5, box.y - 0.5, widthOfBox(box) + 1, heightOfBox(box) + 1);
    g.setLineDash([]);
  }

  paintVerdict(g, { step, act, u }) {
    const moment = this.moments[step], isAfter = act === 2 && u >= 1;
    g.font = `600 12px ${FONT}`; g.textAlign = "left"; g.fillStyle = this.colours.text;
    const text = this.layout.width < 420 ? "weights differ by " : "weights differ between ranks by up to ";
    const apart = isAfter ? moment.after : moment.before;
    g.fillText(fitText(g, `step ${moment.step}: ${apart === 0 ? "all ranks hold the same weights" : text + numberText(apart)}`, this.layout.width - 12), 6, this.layout.height - 11);
  }

  pictureOf(name, step, k) {
    const { cols } = this.layout.mean, colour = numberScale(this.fills, this.theme);
    const make = () => numberImage(this.numbers(name, this.place(name, step, k)), cols, this.scaleOf(name, step), colour);
    return (this.pictures[`${name} ${step} ${k}`] ||= make());
  }

  // ---- pointing and telling -------------------------------------------------------------------------------------------

  itemAt(x, y) {
    const pointed = cellAt(this.boxes || [], x, y);
    if (JSON.stringify(pointed) !== JSON.stringify(this.pointed)) { this.pointed = pointed; this.ask(); }
    return (this.layout?.columns || []).findIndex(({ left, width }) => x >= left && x < left + width);
  }

  listen() {
    super.listen();
    this.picture.addEventListener("pointerleave", () => { this.pointed = null; this.ask(); });
  }

  /** A cell says more than its rank. */
  told() { return (this.pointed && this.tellCell(this.pointed)) || super.told(); }

  tellCell({ name, row, col }) {
    const [kind, step, k] = name.split(" "), input = row * this.layout.mean.cols + col;
    const value = this.numbers(kind, this.place(kind, Number(step), Number(k)))[input];
    if (value === undefined) return null;
    const who = kind === "mean" ? "average of all ranks" : `${REPLICA_ROWS[kind]}, rank ${this.items[k].rank}`;
    const facts = [["value", numberText(value)], ["from input", input], ["to output", this.unit]];
    return { title: who, facts: kind === "mean" ? [...facts, ["", "worked out here from the captured gradients"]] : facts };
  }

  tell(k) {
    const { step, act } = actAt(this.now.t, this.moments.length), norm = (name, at) => numberText(Math.hypot(...this.numbers(name, this.place(name, at, k))));
    const facts = [["length of its own gradient", norm("own", step)], ["of the one it uses", norm("used", step)], ["of its weights", norm("weights", act === 2 ? step + 1 : step)]];
    return { title: `rank ${this.items[k].rank}`, facts };
  }

  tellNow() {
    const { step, act } = actAt(this.now.t, this.moments.length), moment = this.moments[step];
    const told = [
      ["own gradients", `differ by up to ${numberText(moment.own)}`],
      ["gradients in use", moment.used === 0 ? "equal on all ranks, to the last bit" : `differ by up to ${numberText(moment.used)}`],
      ["weights afterwards", moment.after === 0 ? "equal on all ranks, to the last bit" : `differ by up to ${numberText(moment.after)}`],
    ];
    return { title: `step ${moment.step} · ${this.actNames()[act]}`, facts: [told[act]] };
  }

  actNames() { return ["every rank's own gradient", this.isSynced ? "average" : "no average", "update"]; }

  clockText(t) {
    const { step, act } = actAt(t, this.moments.length);
    return `step ${this.moments[step].step} · ${this.actNames()[act]}`;
  }

  sentences() {
    const last = this.moments.at(-1), most = Math.max(...this.moments.map(({ own }) => own));
    const [units, inputs] = this.model.get("shape");
    return [
      `${this.items.length} ranks hold copies of ${this.model.get("weight")}; ${inputs} numbers lead into each of its ${units} outputs. Output ${this.unit} is shown.`,
      `Own gradients differ between ranks by up to ${numberText(most)}.`,
      this.isSynced ? "After the average all ranks use the same gradient, to the last bit." : "Nothing is averaged: every rank uses its own gradient.",
      last.after === 0 ? `After step ${last.step} all copies are equal, to the last bit.` : `After step ${last.step} the copies differ by up to ${numberText(last.after)}.`,
    ];
  }

  legend() {
    const plain = (look) => (g, w, h) => { g.fillStyle = this.fills[look].base; g.fillRect(0, 0, w, h); };
    return [[plain("forward"), "below zero"], [plain("backward_weight"), "above zero"]];
  }
}

const render = renderWith(ReplicasView, "replicas");

export default { render };
