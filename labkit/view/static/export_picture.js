// A player as one picture: what it shows now, under its heading, with its badge, notes and legend, so that a picture that
// travels alone still says where its times come from. Reads the elements of the page, nothing else.

import { FONT } from "./canvas_text.js";
import { EXPORT_FONTS, pictureLayout } from "./export_picture_geometry.js";

/** A canvas with the players one below the other. `isFrame`: one of many, so the time stands there from the start. */
export function pictureOf(roots, { isFrame = false } = {}) {
  const pictures = roots.map((root) => onePicture(root, isFrame));
  const width = Math.max(...pictures.map(({ canvas }) => canvas.width)), heights = pictures.map(({ canvas }) => canvas.height);
  const made = sizedCanvas(width, heights.reduce((sum, height) => sum + height, 0)), g = made.getContext("2d");
  let y = 0;
  for (const { canvas, page } of pictures) {
    g.fillStyle = page;
    g.fillRect(0, y, width, canvas.height);
    g.drawImage(canvas, 0, y);
    y += canvas.height;
  }
  return made;
}

function onePicture(root, isFrame) {
  const parts = shownParts(root, isFrame), measuring = new OffscreenCanvas(1, 1).getContext("2d");
  const measure = (text, font) => { measuring.font = `${font} ${FONT}`; return measuring.measureText(text).width; };
  const layout = pictureLayout(parts, measure), { scale, colours } = parts;
  const canvas = sizedCanvas(Math.round(layout.width * scale), Math.round(layout.height * scale)), g = canvas.getContext("2d");
  g.scale(scale, scale);
  g.fillStyle = colours.page;
  g.fillRect(0, 0, layout.width, layout.height);
  paintHead(g, layout, colours);
  paintNotes(g, layout.notes, colours);
  paintLegend(g, layout.legend, parts.swatches, colours);
  if (parts.drawn) g.drawImage(parts.drawn, layout.canvas.x, layout.canvas.y, layout.canvas.width, layout.canvas.height);
  if (layout.time) write(g, layout.time, EXPORT_FONTS.time, colours.muted);
  return { canvas, page: colours.page };
}

/** What the player shows: texts, swatches, its canvas, its colours. */
function shownParts(root, isFrame) {
  const text = (selector) => root.querySelector(selector)?.textContent ?? "";
  const drawn = root.querySelector(".lk-picture"), entries = [...root.querySelectorAll(".lk-legend li")], style = getComputedStyle(root);
  const colour = (name) => style.getPropertyValue(`--lk-${name}`).trim();
  return {
    title: text(".lk-title"), badge: root.querySelector(".lk-badge").firstChild.textContent,
    notes: [...root.querySelectorAll(".lk-notes li")].map((note) => note.textContent),
    legend: entries.map((entry) => entry.textContent), swatches: entries.map((entry) => entry.querySelector("canvas")),
    time: isFrame || Number(root.querySelector(".lk-scrub")?.value) > 0 ? text(".lk-time") : "", drawn, scale: drawn ? drawn.width / drawn.clientWidth : devicePixelRatio,
    canvas: drawn ? { width: drawn.clientWidth, height: drawn.clientHeight } : { width: root.clientWidth - 32, height: 0 },
    colours: { page: style.backgroundColor, text: style.color, ...Object.fromEntries(["muted", "line", "soft", "warn-page", "warn-line"].map((name) => [name, colour(name)])) },
  };
}

function paintHead(g, { titles, badge }, colours) {
  for (const line of titles) write(g, line, EXPORT_FONTS.title, colours.text);
  box(g, badge, 10, colours.soft, colours.line);
  write(g, { x: badge.x + 9, y: badge.y + 14, text: badge.text }, EXPORT_FONTS.badge, colours.text);
}

function paintNotes(g, notes, colours) {
  if (!notes.lines.length) return;
  box(g, notes, 4, colours["warn-page"]);
  box(g, { ...notes, width: 3 }, 1, colours["warn-line"]);
  for (const line of notes.lines) write(g, line, EXPORT_FONTS.note, colours.text);
}

function paintLegend(g, items, swatches, colours) {
  items.forEach((item, k) => {
    if (swatches[k]) g.drawImage(swatches[k], item.x, item.y, item.width, item.height);
    write(g, { x: item.textX, y: item.textY, text: item.text }, EXPORT_FONTS.legend, colours.muted);
  });
}

function write(g, { x, y, text }, font, colour) {
  g.font = `${font} ${FONT}`;
  g.fillStyle = colour;
  g.fillText(text, x, y);
}

function box(g, { x, y, width, height }, radius, fill, line = null) {
  g.beginPath();
  g.roundRect(x, y, width, height, radius);
  g.fillStyle = fill;
  g.fill();
  if (!line) return;
  g.strokeStyle = line;
  g.stroke();
}

const sizedCanvas = (width, height) => Object.assign(document.createElement("canvas"), { width, height });
