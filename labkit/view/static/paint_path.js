// The critical path on the timeline: what is not on it steps back, and a line runs from row to row.

import { pathRuns } from "./answers.js";
import { paintSpans } from "./paint.js";

const OFF_PATH = 0.3; // strength of what is not on the path
const LINE = 4;

/** Paint the path over the spans of the static layer. */
export function paintPath(g, scene, path) {
  const { view, layout, colours } = scene, bottomOf = ({ bottom, memory }) => (memory ? memory.top - 2 : bottom + 1), runs = pathRuns(path).filter(({ from, to }) => to >= view[0] && from <= view[1]);
  const boxes = runs.map(({ rank, from, to }) => ({ left: scene.xOf(from), right: scene.xOf(to), row: layout.rows[scene.rowAt.get(rank)] })).filter(({ row }) => row);
  g.save();
  g.globalAlpha = 1 - OFF_PATH; g.fillStyle = colours.page;
  for (const row of layout.rows) g.fillRect(layout.left, row.top - 1, layout.right - layout.left, bottomOf(row) - row.top + 1);
  g.globalAlpha = 1;
  g.beginPath();
  for (const { left, right, row } of boxes) g.rect(left, row.top - 1, Math.max(1, right - left), bottomOf(row) - row.top + 1);
  g.clip();
  paintSpans(g, scene);
  g.restore();
  pathLine(g, colours, boxes.flatMap(({ left, right, row }) => { const y = row.compute.top + row.compute.height - LINE / 2; return [[left, y], [right, y]]; }));
}

/** The line itself, with a rim that keeps it apart from any fill. */
export function pathLine(g, colours, points) {
  if (!points.length) return;
  g.lineJoin = "round"; g.lineCap = "butt";
  for (const [colour, width] of [[colours.page, LINE + 3], [colours.playhead, LINE]]) {
    g.strokeStyle = colour; g.lineWidth = width;
    g.beginPath(); points.forEach(([x, y]) => g.lineTo(x, y)); g.stroke();
  }
}
