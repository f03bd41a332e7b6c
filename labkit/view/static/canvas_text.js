// Writing on a canvas: the font, how wide a text is, what of it fits, text that reads on anything.

export const FONT = 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

const textWidths = new Map(); // measuring is the slowest part of writing

/** The width of a text in the present font. */
export function textWidth(g, text) {
  const key = g.font + text;
  if (textWidths.size > 5000) textWidths.clear();
  if (!textWidths.has(key)) textWidths.set(key, g.measureText(text).width);
  return textWidths.get(key);
}

/** Text that is cut with "…" where it does not fit into `room` pixels; nothing where not even three letters do. */
export function fitText(g, text, room) {
  if (textWidth(g, text) <= room) return text;
  for (let length = Math.min(text.length - 1, Math.ceil(room / 3)); length >= 3; length--) { // no letter is under 3 px on average
    const cut = `${text.slice(0, length)}…`;
    if (textWidth(g, cut) <= room) return cut;
  }
  return "";
}

/** Text in the present fill, with a rim of `rim` that keeps it readable on patterns and lines. */
export function rimmedText(g, text, x, y, rim) {
  g.strokeStyle = rim; g.lineWidth = 4; g.lineJoin = "round";
  g.strokeText(text, x, y);
  g.fillText(text, x, y);
}
