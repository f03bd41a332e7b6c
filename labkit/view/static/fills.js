// Looks as what a canvas fills with: plain colours and patterns.

/** Per look {base, fill, text}: the plain colour, what to fill with (colour or pattern), and the text colour on it. */
export function makeFills(looks, theme, dpr) {
  return looks.map((look) => {
    const base = look[theme], text = look[`text_${theme}`];
    return { base, text, patterned: look.pattern !== "solid", fill: look.pattern === "solid" ? base : patternOf(look.pattern, base, text, dpr) };
  });
}

const STROKES = { // in a tile of 8 x 8
  stripes: [[-2, 2, 2, -2], [-2, 10, 10, -2], [6, 10, 10, 6]],
  hatch: [[-2, 2, 2, -2], [-2, 10, 10, -2], [6, 10, 10, 6]],
  bars: [[2, 0, 2, 8], [6, 0, 6, 8]],
  grid: [[4, 0, 4, 8], [0, 4, 8, 4]],
  dots: [],
};
const STRENGTH = { stripes: 0.28, hatch: 0.24, bars: 0.22, grid: 0.22, dots: 0.4 };

function patternOf(name, base, ink, dpr) {
  const size = Math.round(8 * dpr), tile = new OffscreenCanvas(size, size), g = tile.getContext("2d");
  g.scale(size / 8, size / 8);
  g.fillStyle = base; g.fillRect(0, 0, 8, 8);
  g.globalAlpha = STRENGTH[name]; g.fillStyle = g.strokeStyle = ink; g.lineWidth = 1;
  for (const [x0, y0, x1, y1] of STROKES[name]) { g.beginPath(); g.moveTo(x0, y0); g.lineTo(x1, y1); g.stroke(); }
  if (name === "dots") for (const [x, y] of [[2, 2], [6, 6]]) { g.beginPath(); g.arc(x, y, 1, 0, 7); g.fill(); }
  const pattern = g.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(8 / size));
  return pattern;
}

/** A legend's swatch: a small canvas of 18 x 12 pixels, painted once. */
export function swatch(paint) {
  const made = document.createElement("canvas"), g = made.getContext("2d");
  Object.assign(made, { width: 36, height: 24, className: "lk-swatch" });
  made.setAttribute("aria-hidden", "true");
  g.scale(2, 2);
  paint(g, 18, 12);
  return made;
}

/** Paints a swatch with a look. */
export const filled = (fill) => (g, width, height) => { g.fillStyle = fill.fill; g.fillRect(0, 0, width, height); };
