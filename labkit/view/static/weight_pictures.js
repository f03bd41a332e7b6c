// Weights as pictures: an image goes forward, gradients come back, the update changes every picture a little.

import { FONT, fitText } from "./canvas_text.js";
import { numberScale } from "./diverging.js";
import { choice } from "./markup.js";
import { countText, numberText } from "./quantities.js";
import { ActScene, eased, renderWith } from "./scene.js";
import { PIXELS, readPictures } from "./weight_pictures_data.js";
import { ACTS, actStops, mixed, momentAt, pictureAt, placePictures, SIDE } from "./weight_pictures_geometry.js";

const SECONDS_PER_ACT = 0.9;
const PICTURES_HINT = "Play: the image goes forward, the error comes back as a gradient, every weight moves a little. Point at a weight for its numbers.";
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

class WeightPicturesView extends ActScene {
  constructor(model, el) { super(model, el, { name: "weight-pictures", role: "weight pictures", hint: PICTURES_HINT }); }

  prepare() {
    if (this.model.get("missing")) return this.model.get("missing");
    for (const name of ["units", "samples", "losses", "lr", "batch", "is_output"]) this[name] = this.model.get(name);
    this.run = readPictures(this.model.get("columns"), this.units.length, this.samples.length);
    this.numSteps = this.run.numSteps;
    this.stops = actStops(this.numSteps);
    this.window = [0, this.stops.at(-1)];
    this.seconds = SECONDS_PER_ACT * this.stops.length;
    this.items = this.units.map((name, unit) => ({ name, unit }));
    this.sample = Math.max(0, this.samples.findIndex(([, digit]) => digit === 3));
    this.shows = "weights";
    this.tile = new OffscreenCanvas(SIDE, SIDE);
    return "";
  }

  choices() {
    const image = choice("Which image", this.samples.map(([sample, digit], k) => [k, `image ${sample}: a ${digit}`]));
    image.value = String(this.sample);
    image.onchange = () => { this.sample = Number(image.value); this.refresh(); };
    const shows = choice("What the pictures show", [["weights", "weights"], ["change", "change since the start"]]);
    shows.onchange = () => { this.shows = shows.value; this.refresh(); };
    return [image, shows];
  }

  layOut(width) { return placePictures(this.units.length, width); }

  // ---- numbers --------------------------------------------------------------------------------------------------------

  probabilities(step) { return this.run.probabilities(step, this.sample); }

  activation(step, unit) { return this.run.activation(step, this.sample, unit); }

  get digit() { return this.samples[this.sample][1]; }

  /** The moment; calm: an act is shown when it is done. */
  moment(t, isCalm) { const now = momentAt(t, this.numSteps); return isCalm ? { ...now, u: t > 0 ? 1 : 0 } : now; }

  /** The weights shown at a moment, or their change: in an update on the way to the next ones. */
  shownWeights({ step, act, u }, unit) {
    const read = this.run[this.shows], now = [...read(step, unit)];
    return act === 2 ? mixed(now, read(step + 1, unit), eased(u)) : now;
  }

  /** The bars at a moment: in a forward on the way from the last step's. */
  shownProbabilities({ step, act, u }) {
    const now = this.probabilities(step), before = step ? this.probabilities(step - 1) : now.map(() => 0);
    return act === 0 ? mixed(before, now, eased(2.2 * u - 1.2)) : now;
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  paint(g, now) {
    const moment = this.moment(now.t, now.isCalm), { layout } = this;
    this.scale = numberScale(this.fills, this.theme);
    g.imageSmoothingEnabled = false; g.textBaseline = "middle"; g.textAlign = "left";
    this.paintImage(g);
    for (const panel of layout.panels) this.paintPanel(g, panel, moment, now);
    this.paintBars(g, moment);
    if (!layout.isNarrow && !now.isCalm) this.paintFlow(g, moment);
  }

  paintImage(g) {
    const { image } = this.layout, [sample, digit] = this.samples[this.sample], size = SIDE * image.cell;
    this.label(g, `image ${sample}`, image.x, image.y - 11);
    const pixels = this.run.image(this.sample), isDark = this.theme === "dark";
    this.paintTile(g, image, pixels, (value) => { const grey = Math.round(255 * (isDark ? value : 1 - value)); return [grey, grey, grey]; });
    g.fillStyle = this.colours.text; g.font = `600 13px ${FONT}`;
    g.fillText(`its label: ${digit}`, image.x, image.y + size + 15);
  }

  paintPanel(g, panel, moment, now) {
    const { colours } = this, { unit, weight, grad } = panel, isMarked = [now.hovered, now.selected].includes(unit), isRight = this.is_output && unit === this.digit;
    g.strokeStyle = isMarked ? colours.accent : isRight ? colours.good : colours.line; g.lineWidth = isMarked || isRight ? 2 : 1;
    g.beginPath(); g.roundRect(panel.x, panel.y, panel.width, panel.height, 8); g.stroke();
    g.fillStyle = colours.text; g.font = `600 12px ${FONT}`;
    g.fillText(this.units[unit], weight.x, panel.y + 12);
    const largest = this.run.largest[this.shows];
    this.paintTile(g, weight, this.shownWeights(moment, unit), (value) => this.scale(value / largest));
    this.paintGradient(g, panel, moment);
    if (moment.act !== 2) { this.label(g, "gradient", grad.x, panel.y + 12); this.outline(g, grad, colours.line); }
    else this.label(g, "update", grad.x, panel.y + 12);
    this.paintActivation(g, panel, moment);
  }

  /** The gradient comes in the backward, and is taken off the weight in the update. */
  paintGradient(g, { unit, weight, grad }, { step, act, u }) {
    if (act === 0) return;
    const s = act === 2 ? eased(u) : 0, box = { ...grad, x: grad.x + (weight.x - grad.x) * s };
    g.globalAlpha = act === 1 ? eased(2 * u - 1) : 1 - s;
    if (g.globalAlpha > 0.01) this.paintTile(g, box, this.run.grads(step, unit), (value) => this.scale(value / this.run.largest.grads[step]));
    g.globalAlpha = 1;
  }

  paintActivation(g, { activation: { x, y, width }, unit }, { step, act, u }) {
    const value = this.activation(step, unit), share = act === 0 ? eased(2 * u - 0.5) : 1, text = value.toFixed(2).replace("-", "−");
    const room = width - 44, middle = x + (this.is_output ? room / 2 : 0), length = (value / this.run.largest.activations) * (this.is_output ? room / 2 : room) * share;
    g.fillStyle = this.colours.rail; g.fillRect(x, y + 3, room, 5);
    const [red, green, blue] = this.scale(value < 0 ? -1 : 1);
    g.fillStyle = `rgb(${red},${green},${blue})`;
    g.fillRect(Math.min(middle, middle + length), y + 1, Math.abs(length), 9);
    if (this.is_output) { g.fillStyle = this.colours.muted; g.fillRect(middle - 0.5, y, 1, 11); }
    if (share < 0.5) return;
    g.textAlign = "right"; g.fillStyle = this.colours.text; g.font = `11px ${FONT}`;
    g.fillText(text, x + width, y + 6);
    g.textAlign = "left";
  }

  paintBars(g, moment) {
    const { bars } = this.layout, shown = this.shownProbabilities(moment), best = shown.indexOf(Math.max(...shown)), room = bars.width - 66;
    const isKnown = moment.step > 0 || moment.act > 0 || moment.u > 0.95; // the first bars grow from nothing
    this.label(g, fitText(g, "probability of each digit", bars.width), bars.x, bars.y - 11);
    shown.forEach((share, digit) => {
      const y = bars.y + digit * bars.step, middle = y + bars.step / 2, isRight = digit === this.digit;
      g.fillStyle = this.colours.text; g.font = `${isRight ? "600 " : ""}12px ${FONT}`;
      g.fillText(String(digit), bars.x, middle);
      g.fillStyle = this.colours.rail; g.fillRect(bars.x + 16, y + 4, room, bars.step - 8);
      g.fillStyle = isRight ? this.colours.good : this.fills.forward.base; g.fillRect(bars.x + 16, y + 4, room * share, bars.step - 8);
      if (isRight) this.paintWanted(g, { x: bars.x + 16, y: y + 3, width: room, height: bars.step - 6 });
      g.fillStyle = this.colours.text; g.font = `${isKnown && digit === best ? "600 " : ""}12px ${FONT}`; g.textAlign = "right";
      if (isKnown) g.fillText(percent(share), bars.x + bars.width, middle);
      g.textAlign = "left";
    });
    this.paintVerdict(g, best, moment);
  }

  /** Where the right digit's bar should reach. */
  paintWanted(g, { x, y, width, height }) {
    g.strokeStyle = this.colours.good; g.lineWidth = 1.5; g.setLineDash([4, 3]);
    g.strokeRect(x, y, width, height);
    g.setLineDash([]);
  }

  paintVerdict(g, best, { act, u }) {
    if (act === 0 && u < 0.95) return;
    const { image } = this.layout, isRight = best === this.digit, y = image.y + SIDE * image.cell + 34;
    g.fillStyle = this.colours.text; g.font = `12px ${FONT}`;
    g.fillText(`network: a ${best}`, image.x, y);
    g.fillStyle = isRight ? this.colours.good : this.colours["bad-line"]; g.font = `600 12px ${FONT}`;
    g.fillText(isRight ? "✓ right" : "✗ wrong", image.x, y + 17);
  }

  /** Dots from the image over the panels to the bars, and back. */
  paintFlow(g, { act, u }) {
    if (act === 2 || u <= 0 || u >= 1) return;
    const { image, bars, panels } = this.layout, isForward = act === 0, first = isForward ? u < 0.5 : u >= 0.5;
    const from = [image.x + SIDE * image.cell + 4, image.y + (SIDE * image.cell) / 2];
    const v = eased(isForward ? (u % 0.5) * 2 : 1 - (u % 0.5) * 2);
    if (!isForward && first) return; // gradients stop at the weights
    g.fillStyle = isForward ? this.fills.forward.base : this.fills.backward.base;
    g.strokeStyle = this.colours.page; g.lineWidth = 1;
    for (const { unit, x, y, width, height } of panels) {
      const to = [bars.x - 6, bars.y + (this.is_output ? (unit + 0.5) * bars.step : bars.height / 2)];
      const panel = [first ? x : x + width, y + height / 2], [a, b] = first ? [from, panel] : [panel, to];
      g.beginPath(); g.arc(a[0] + (b[0] - a[0]) * v, a[1] + (b[1] - a[1]) * v, 3.5, 0, 7); g.fill(); g.stroke();
    }
  }

  paintTile(g, box, values, colour) {
    const tile = this.tile.getContext("2d"), pixels = tile.createImageData(SIDE, SIDE), size = SIDE * box.cell;
    for (let k = 0; k < PIXELS; k++) pixels.data.set([...colour(values[k]), 255], 4 * k);
    tile.putImageData(pixels, 0, 0);
    g.drawImage(this.tile, box.x, box.y, size, size);
    this.outline(g, box, this.colours.muted);
  }

  outline(g, { x, y, cell }, colour) { g.strokeStyle = colour; g.lineWidth = 1; g.strokeRect(x - 0.5, y - 0.5, SIDE * cell + 1, SIDE * cell + 1); }

  label(g, text, x, y) { g.font = `11px ${FONT}`; g.fillStyle = this.colours.muted; g.fillText(text, x, y); }

  // ---- pointing and telling -------------------------------------------------------------------------------------------

  itemAt(x, y) {
    const pointed = this.layout ? pictureAt(this.layout, x, y) : null;
    if (JSON.stringify(pointed) !== JSON.stringify(this.pointed)) { this.pointed = pointed; this.ask(); }
    return pointed?.unit ?? -1;
  }

  listen() {
    super.listen();
    this.picture.addEventListener("pointerleave", () => { this.pointed = null; this.ask(); });
  }

  /** A cell says more than its panel. */
  told() { return this.pointed?.cell >= 0 ? this.tellCell(this.pointed) : super.told(); }

  tellCell({ kind, unit, cell }) {
    const { step } = this.moment(this.now.t, false), row = Math.floor(cell / SIDE), column = cell % SIDE;
    const pixel = this.run.image(this.sample)[cell];
    if (kind === "image") return { title: `pixel ${row}, ${column}`, facts: [["value", numberText(pixel)]] };
    const weight = this.run.weights(step, unit)[cell], grad = this.run.grads(step, unit)[cell];
    const facts = [["weight", numberText(weight)], ["pixel", numberText(pixel)], ["gradient", numberText(grad)]];
    if (step + 1 < this.numSteps) facts.push([this.lr === null ? "next weight" : `weight − ${this.lr} × gradient`, numberText(this.run.weights(step + 1, unit)[cell])]);
    return { title: `${this.units[unit]}, pixel ${row}, ${column}`, facts };
  }

  tell(i) {
    const { step } = this.moment(this.now.t, false), weights = this.run.weights(step, i), moved = this.run.change(step, i).map(Math.abs);
    const facts = [[this.is_output ? "score for this image" : "gives for this image", numberText(this.activation(step, i))], ["largest weight", numberText(Math.max(...weights))]];
    return { title: this.units[i], facts: [...facts, ["moved most since the start", numberText(Math.max(...moved))]] };
  }

  tellNow() {
    const { step, act } = this.moment(this.now.t, false), right = this.probabilities(step)[this.digit];
    const how = [
      `pixels × weights give ${this.is_output ? "a score for each digit, scores become probabilities" : "each unit's value, later layers turn them into probabilities"}`,
      "how the loss would change with each weight, the mean over the batch",
      this.lr === null ? "the optimizer moves every weight" : `every weight moves by −${this.lr} × its gradient`,
    ];
    const facts = [["", how[act]], [`this ${this.digit} is taken for a ${this.digit}`, percent(right)], ["its loss", numberText(-Math.log(right))]];
    return { title: `step ${step} · ${ACTS[act]}`, facts: [...facts, [`loss of the step's ${countText(this.batch, "image")}`, numberText(this.losses[step])]] };
  }

  clockText(t) { const { step, act } = momentAt(t, this.numSteps); return `step ${step} · ${ACTS[act]}`; }

  sentences() {
    const last = this.numSteps - 1, [sample] = this.samples[this.sample], right = (step) => percent(this.probabilities(step)[this.digit]);
    return [
      `Image ${sample}, a ${this.digit}: the untrained network gives the right digit ${right(0)}; after ${countText(last, "update")} ${right(last)}.`,
      `The pictures are the weights of ${countText(this.units.length, "unit")} of the first layer, 8 × 8 numbers each, as captured in the run; so are the gradients, each a mean over the step's ${countText(this.batch, "image")}. ` +
        `The whole network has ${countText(this.model.get("num_parameters"), "parameter")}. Probabilities are computed here from the captured weights.`,
    ];
  }

  legend() {
    const colour = numberScale(this.fills, this.theme), ramp = (g, w, h) => { for (let x = 0; x < w; x++) { g.fillStyle = `rgb(${colour((2 * x) / (w - 1) - 1).join()})`; g.fillRect(x, 0, 1, h); } };
    const wanted = (g, w, h) => { g.strokeStyle = this.colours.good; g.lineWidth = 1.5; g.setLineDash([4, 3]); g.strokeRect(1, 1, w - 2, h - 2); };
    const of = this.shows === "change" ? "change" : "weight";
    return [[ramp, `${of}, from −${numberText(this.run.largest[this.shows])} to ${numberText(this.run.largest[this.shows])}; gradients: each step on its own scale`], [wanted, "the right digit: 100 % is wanted"]];
  }
}

const render = renderWith(WeightPicturesView, "weight pictures");

export default { render };
