// What ranks hold, as a thin lane below each row of another picture.

import { filled, makeFills } from "./fills.js";
import { lanesOf, peakOf, readHeld, rowAt, scaleOf, totalAt } from "./memory_lanes_geometry.js";
import { paintPiles } from "./piles.js";
import { sizeText } from "./quantities.js";

export class HeldLanes {
  constructor(model) {
    Object.assign(this, { data: readHeld(model.get("columns")), lanes: lanesOf(model.get("counts")), bands: model.get("bands") });
  }

  /** The lanes of a model; null where its trace does not tell what ranks held. */
  static of(model) { return model.get("columns").held_t ? new HeldLanes(model) : null; }

  retheme(theme, dpr) { this.fills = makeFills(this.bands, theme, dpr); }

  /** All lanes on one scale, the window's largest peak. `boxes`: one for each rank. */
  paint(g, boxes, { left, right }, { view, window, colours }) {
    const { data, lanes, fills } = this, scale = scaleOf(lanes.map((lane) => totalAt(data, peakOf(data, lane, window))), 0);
    lanes.forEach((lane, k) => {
      g.fillStyle = colours.soft; g.fillRect(left, boxes[k].top, right - left, boxes[k].height);
      paintPiles(g, { data, lane, view, box: boxes[k], left, right, scale, fills });
    });
  }

  /** Facts of the k-th rank at a time. */
  factsAt(k, t) {
    const { data, lanes, bands, fills } = this, row = rowAt(data, lanes[k], t);
    if (row < 0) return [["", "nothing told yet"]];
    return [["in all", sizeText(totalAt(data, row))], ...bands.map(({ label }, band) => [label, sizeText(data.held[band][row]), fills[band]])];
  }

  legend() { return this.bands.map(({ label }, band) => [filled(this.fills[band]), `holds ${label}`]); }
}
