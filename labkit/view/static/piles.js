// What a rank holds over time as a pile of bands, drawn into a box.

import { pixelRows } from "./memory_lanes_geometry.js";

/** Paint a lane's pile between left and right. `fills`: of the bands, from the bottom; `scale`: bytes that fill the box. */
export function paintPiles(g, { data, lane, view, box, left, right, scale, fills }) {
  const width = Math.max(1, Math.floor(right - left)), rows = pixelRows(data, lane, view, width);
  for (let x = 0; x < width;) { // equal neighbours are one block, so that patterns are not cut to slivers
    let end = x + 1;
    while (end < width && rows[end] === rows[x]) end++;
    if (rows[x] >= 0) paintPile(g, data, rows[x], { ...box, left: left + x, width: end - x }, scale, fills);
    x = end;
  }
}

function paintPile(g, { held }, row, { top, height, left, width }, scale, fills) {
  let sum = 0;
  held.forEach((column, band) => {
    const bottom = top + height - (sum / scale) * height, to = top + height - ((sum += column[row]) / scale) * height;
    if (bottom - to < 0.05) return;
    g.fillStyle = fills[band].fill;
    g.fillRect(left, to, width, bottom - to);
  });
}
