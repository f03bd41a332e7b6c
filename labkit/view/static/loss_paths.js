// Loss paths: balls that roll over a map of the loss, one for each run, one move for each update.

import { typed } from "./buffers.js";
import { FONT, rimmedText } from "./canvas_text.js";
import { heightAt, nearestPoint, placeAt, progressAt, timeOf, toPixel, toPlace } from "./loss_paths_geometry.js";
import { choice } from "./markup.js";
import { countText, numberText } from "./quantities.js";
import { ActScene, renderWith } from "./scene.js";

const PATHS_HINT = "Darker is lower loss. Play: each ball moves with every update of its run. Point at a dot for its numbers, at the map for its loss.";
const PATH_LOOKS = ["backward_weight", "forward", "optimizer", "sync"];
const NUM_BANDS = 14;
const REACH = 9; // pixels within which a point is pointed at
const many = (count) => Math.round(count).toLocaleString("en");

class LossPathsView extends ActScene {
  constructor(model, el) { super(model, el, { name: "loss-paths", role: "loss paths", hint: PATHS_HINT }); }

  prepare() {
    if (this.model.get("missing")) return this.model.get("missing");
    const columns = this.model.get("columns"), read = (name) => typed(columns[name], Float32Array);
    this.extent = this.model.get("extent");
    this.map = { values: read("map"), grid: this.model.get("grid") };
    this.heights = [Math.min(...this.map.values), Math.max(...this.map.values)];
    this.paths = this.model.get("paths").map(({ name, batch }, k) => {
      const flat = read(`place${k}`), points = Array.from(read(`loss${k}`), (_, step) => [flat[2 * step], flat[2 * step + 1]]);
      return { name, batch, points, numUpdates: points.length - 1, losses: read(`loss${k}`), accuracies: read(`accuracy${k}`) };
    });
    this.items = this.paths.flatMap((path, k) => path.points.map((_, update) => ({ k, update })));
    this.setTime(false);
    return "";
  }

  setTime(byImages) { this.byImages = byImages; Object.assign(this, timeOf(this.paths, byImages), { seconds: 14 }); }

  choices() {
    const by = choice("What time counts", [["updates", "as many updates"], ["images", "as many images"]]);
    by.onchange = () => { this.setTime(by.value === "images"); this.restart(); };
    return [by];
  }

  layOut(width) {
    const plot = { left: 1, top: 1, width: width - 2, height: Math.round(Math.max(240, Math.min(430, width * 0.42))) };
    return { width, height: plot.height + 24, plot };
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  retheme() { this.ground = null; super.retheme(); }

  resize() { this.ground = null; super.resize(); }

  paint(g, now) {
    const { plot } = this.layout;
    this.ground ||= this.paintGround();
    g.drawImage(this.ground, plot.left, plot.top, plot.width, plot.height);
    g.strokeStyle = this.colours.line; g.lineWidth = 1; g.strokeRect(plot.left, plot.top, plot.width, plot.height);
    const t = now.isCalm ? this.stops.findLast((stop) => stop <= now.t + 1e-9) : now.t;
    this.paths.forEach((path, k) => this.paintPath(g, path, k, progressAt(t, path, this.byImages)));
    for (const i of new Set([now.hovered, now.selected])) if (i >= 0) this.paintMark(g, i);
    this.paths.forEach((path, k) => this.paintBall(g, path, k, progressAt(t, path, this.byImages)));
    this.paintCaption(g);
  }

  /** The map in bands, with a line where one ends: an image in the screen's own pixels, made once. */
  paintGround() {
    const { plot } = this.layout, width = Math.round(plot.width * this.dpr), height = Math.round(plot.height * this.dpr);
    const canvas = new OffscreenCanvas(width, height), g = canvas.getContext("2d"), image = g.createImageData(width, height);
    const [low, high] = this.heights, colours = this.bandColours(), bandOf = (u, v) => Math.min(NUM_BANDS - 1, Math.floor(((heightAt(this.map, u, v) - low) / (high - low)) * NUM_BANDS));
    let above = new Int8Array(width).fill(-1);
    for (let y = 0; y < height; y++) {
      const row = new Int8Array(width);
      for (let x = 0; x < width; x++) {
        row[x] = bandOf(x / (width - 1), 1 - y / (height - 1));
        const isEdge = (x && row[x - 1] !== row[x]) || (y && above[x] !== row[x]);
        image.data.set([...colours[isEdge ? this.edgeBand(row[x]) : row[x]], 255], 4 * (y * width + x));
      }
      above = row;
    }
    g.putImageData(image, 0, 0);
    return canvas;
  }

  /** From the lowest band to the highest. */
  bandColours() {
    const [from, to] = this.theme === "dark" ? [[16, 22, 30], [92, 106, 124]] : [[146, 168, 194], [252, 253, 254]];
    return Array.from({ length: NUM_BANDS }, (_, band) => from.map((one, k) => Math.round(one + (to[k] - one) * (band / (NUM_BANDS - 1)))));
  }

  /** Lines are drawn in a neighbouring band's colour, two away: seen, but quiet. */
  edgeBand(band) { return band > 1 ? band - 2 : band + 2; }

  pixel(place) { return toPixel(this.layout.plot, this.extent, place); }

  colourOf(k) { return this.fills[PATH_LOOKS[k % PATH_LOOKS.length]].base; }

  /** What a run has behind it. */
  paintPath(g, { points }, k, progress) {
    const done = [...points.slice(0, Math.floor(progress) + 1), placeAt(points, progress)].map((place) => this.pixel(place));
    for (const [style, width] of [[this.colours.page, 5], [this.colourOf(k), 2.5]]) {
      g.strokeStyle = style; g.lineWidth = width; g.lineJoin = "round";
      g.beginPath(); done.forEach(([x, y]) => g.lineTo(x, y)); g.stroke();
    }
    g.fillStyle = this.colourOf(k); g.strokeStyle = this.colours.page; g.lineWidth = 1;
    for (const [x, y] of done.slice(0, -1)) { this.shape(g, k, x, y, 3.5); g.fill(); g.stroke(); }
  }

  paintBall(g, path, k, progress) {
    const [x, y] = this.pixel(placeAt(path.points, progress)), isRight = x > this.layout.width - 130;
    g.fillStyle = this.colourOf(k); g.strokeStyle = this.colours.page; g.lineWidth = 2;
    this.shape(g, k, x, y, 8); g.fill(); g.stroke();
    g.font = `600 12px ${FONT}`; g.textBaseline = "middle"; g.textAlign = isRight ? "right" : "left"; g.fillStyle = this.colours.text;
    rimmedText(g, path.name, x + (isRight ? -6 : 6), y + (k % 2 ? 19 : -19), this.colours.page);
    g.textAlign = "left";
  }

  /** Runs differ in shape too: circle, diamond. */
  shape(g, k, x, y, size) {
    g.beginPath();
    if (k % 2 === 0) { g.arc(x, y, size, 0, 7); return; }
    const far = size * 1.25;
    g.moveTo(x, y - far); g.lineTo(x + far, y); g.lineTo(x, y + far); g.lineTo(x - far, y); g.closePath();
  }

  paintMark(g, i) {
    const { k, update } = this.items[i], [x, y] = this.pixel(this.paths[k].points[update]);
    g.strokeStyle = this.colours.text; g.lineWidth = 2;
    g.beginPath(); g.arc(x, y, REACH, 0, 7); g.stroke();
  }

  paintCaption(g) {
    const { plot, height } = this.layout;
    g.font = `11px ${FONT}`; g.fillStyle = this.colours.muted; g.textBaseline = "middle"; g.textAlign = "left";
    g.fillText(plot.width < 560 ? "→ ↑ the two main directions" : "→ ↑ the two directions in which the weights moved most, each on its own scale", 2, height - 9);
  }

  // ---- pointing and telling -------------------------------------------------------------------------------------------

  itemAt(x, y) {
    this.pointed = this.layout ? [x, y] : null;
    this.ask();
    return nearestPoint(this.items.map(({ k, update }) => this.pixel(this.paths[k].points[update])), x, y, REACH);
  }

  listen() {
    super.listen();
    this.picture.addEventListener("pointerleave", () => { this.pointed = null; this.ask(); });
  }

  /** Beside the dots: the loss of the map. */
  told() { return this.pointed && this.now.hovered < 0 && this.now.selected < 0 ? this.tellPlace(...this.pointed) : super.told(); }

  tellPlace(x, y) {
    const [left, right, bottom, top] = this.extent, [a, b] = toPlace(this.layout.plot, this.extent, x, y);
    const loss = heightAt(this.map, (a - left) / (right - left), (b - bottom) / (top - bottom));
    return { title: "this place", facts: [["loss", numberText(loss)], ["", `of all ${many(this.model.get("num_images"))} images, with the weights at this place`]] };
  }

  tell(i) {
    const { k, update } = this.items[i], { name, batch, losses, accuracies } = this.paths[k];
    return { title: `${name}, after ${countText(update, "update")}`, fill: this.fills[PATH_LOOKS[k % PATH_LOOKS.length]],
      facts: [["images seen", many(update * batch)], ["loss of all images", numberText(losses[update])], ["right", `${(100 * accuracies[update]).toFixed(1)} %`]] };
  }

  tellNow() {
    const facts = this.paths.map((path, k) => {
      const done = Math.floor(progressAt(this.now.t, path, this.byImages) + 1e-9), loss = numberText(path.losses[done]);
      return [path.name, `${countText(done, "update")}, ${many(done * path.batch)} images, loss ${loss}`, this.fills[PATH_LOOKS[k % PATH_LOOKS.length]]];
    });
    return { title: this.clockText(this.now.t), facts };
  }

  clockText(t) { return this.byImages ? `${many(t)} images each` : `update ${Math.floor(t + 1e-9)}`; }

  sentences() {
    const ends = this.paths.map(({ name, batch, numUpdates, losses }) => `${name}: ${countText(numUpdates, "update")}, ${many(batch * numUpdates)} images, loss ${numberText(losses[0])} to ${numberText(losses[numUpdates])}`);
    return [
      `${ends.join("; ")}.`,
      `Each dot is a set of weights captured in a run, seen in the plane that lies nearest to all of them: it holds ${(100 * this.model.get("share")).toFixed(1)} % of their movement. ` +
        `The map is computed: the loss over all ${many(this.model.get("num_images"))} images at ${this.map.grid.join(" × ")} places of that plane, from ${numberText(this.heights[0])} to ${numberText(this.heights[1])}; between them it is interpolated.`,
    ];
  }

  legend() {
    const colours = this.bandColours(), ramp = (g, w, h) => colours.forEach((colour, k) => { g.fillStyle = `rgb(${colour.join()})`; g.fillRect((k * w) / NUM_BANDS, 0, w / NUM_BANDS + 0.5, h); });
    const mark = (k) => (g, w, h) => { g.fillStyle = this.colourOf(k); this.shape(g, k, w / 2, h / 2, 4.5); g.fill(); };
    const [low, high] = this.heights.map(numberText);
    return [[ramp, `loss, ${low} to ${high}, computed`], ...this.paths.map(({ name }, k) => [mark(k), name])];
  }
}

const render = renderWith(LossPathsView, "loss paths");

export default { render };
