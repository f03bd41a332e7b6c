// Where things go in an exported picture: title, badge, notes, legend, the player's canvas, the time. Pure.
//
// Sizes are CSS pixels. `measure(text, font)` gives a text's width, so node can test this without a canvas.

export const EXPORT_FONTS = { title: "650 15px", badge: "600 11.5px", note: "13px", legend: "12px", time: "12px" };
const PICTURE = { margin: 16, line: 19, badgeHeight: 20, badgePad: 9, legendLine: 20, swatch: [18, 12] };

/** Lines of a text that fit into `room`; a word that alone is too long is broken. */
export function wrappedText(text, room, width) {
  const lines = [];
  let line = "";
  for (const word of text.split(/\s+/).flatMap((one) => brokenWord(one, room, width))) {
    const longer = line ? `${line} ${word}` : word;
    if (line && width(longer) > room) { lines.push(line); line = word; } else line = longer;
  }
  return line ? [...lines, line] : lines;
}

function brokenWord(word, room, width) {
  if (width(word) <= room) return [word];
  const parts = [];
  let part = "";
  for (const letter of word) {
    if (part && width(part + letter) > room) { parts.push(part); part = letter; } else part += letter;
  }
  return [...parts, part];
}

/** Places of everything: {width, height, titles, badge, notes, legend, canvas, time}, each with its x and y. */
export function pictureLayout({ title, badge, notes, legend, time, canvas }, measure) {
  const { margin } = PICTURE, wide = canvas.width, room = (font) => (text) => measure(text, EXPORT_FONTS[font]);
  const head = headLayout(title, badge, wide, room);
  const noted = notesLayout(notes, wide, head.bottom, room("note"));
  const keyed = legendLayout(legend, wide, noted.bottom, room("legend"));
  const bottom = keyed.bottom + canvas.height, timeY = bottom + 22;
  return {
    width: wide + 2 * margin, height: (time ? timeY + 2 : bottom) + margin - 4, titles: head.titles, badge: head.badge, notes: noted,
    legend: keyed.items, canvas: { x: margin, y: keyed.bottom, ...canvas }, time: time ? { x: margin, y: timeY, text: time } : null,
  };
}

/** The title's lines, and the badge behind the last of them, or below where it has no room there. */
function headLayout(title, badge, wide, room) {
  const { margin, line, badgeHeight, badgePad } = PICTURE, width = room("badge")(badge) + 2 * badgePad;
  const lines = wrappedText(title, wide, room("title")), last = lines.length ? room("title")(lines.at(-1)) + 10 : 0;
  const fits = last + width <= wide, row = lines.length - (fits && lines.length ? 1 : 0);
  const place = { x: margin + (fits ? last : 0), y: margin - 1 + row * line, width, height: badgeHeight, text: badge };
  return { titles: lines.map((text, k) => ({ x: margin, y: margin + 14 + k * line, text })), badge: place, bottom: place.y + badgeHeight + 8 };
}

function notesLayout(notes, wide, top, width) {
  const { margin, line } = PICTURE, lines = notes.flatMap((note) => wrappedText(note, wide - 27, width)), height = lines.length * line + 12;
  if (!lines.length) return { lines, bottom: top };
  const placed = lines.map((text, k) => ({ x: margin + 15, y: top + 20 + k * line, text }));
  return { x: margin, y: top, width: wide, height, lines: placed, bottom: top + height + 8 };
}

function legendLayout(legend, wide, top, width) {
  const { margin, legendLine, swatch: [swatchWidth, swatchHeight] } = PICTURE, textAt = swatchWidth + 6;
  let x = 0, y = top;
  const items = legend.map((text) => {
    const long = textAt + width(text);
    if (x && x + long > wide) { x = 0; y += legendLine; }
    const left = margin + x;
    x += long + 14;
    return { x: left, y: y + 2, width: swatchWidth, height: swatchHeight, text, textX: left + textAt, textY: y + 12 };
  });
  return { items, bottom: items.length ? y + legendLine + 4 : top };
}
