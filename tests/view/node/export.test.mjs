// What an exported picture and page are made of: places, wrapped words, packed bytes, escaped text.

import assert from "node:assert/strict";
import test from "node:test";

import { fileNameOf } from "../../../labkit/view/static/export.js";
import { pageOf, savedState } from "../../../labkit/view/static/export_page.js";
import { pictureLayout, wrappedText } from "../../../labkit/view/static/export_picture_geometry.js";

const measure = (text) => 10 * text.length; // every letter 10 px wide
const CANVAS = { width: 300, height: 100 };
const layout = (parts) => pictureLayout({ title: "title", badge: "times: paced", notes: [], legend: [], time: "", canvas: CANVAS, ...parts }, measure);

test("words are wrapped, and a word that is too long alone is broken", () => {
  assert.deepEqual(wrappedText("one two three", 70, measure), ["one two", "three"]);
  assert.deepEqual(wrappedText("abcdefgh x", 30, measure), ["abc", "def", "gh", "x"]);
  assert.deepEqual(wrappedText("", 30, measure), []);
});

test("everything has its own place, one below the other, inside the picture", () => {
  const made = layout({ notes: ["a note that is too long for one line of it", "two"], legend: ["forward", "backward", "wait (blocked)"], time: "1 / 2 ms" });
  assert.equal(made.width, 332);
  const rows = [made.titles[0].y, made.notes.y, made.notes.lines[0].y, made.legend[0].y, made.canvas.y, made.canvas.y + 100, made.time.y];
  assert.deepEqual(rows, [...rows].sort((a, b) => a - b));
  assert.ok(made.time.y < made.height);
  assert.equal(made.notes.lines.length, 3);
  for (const { textX, text } of made.legend) assert.ok(textX + measure(text) <= 316);
  assert.ok(made.legend[2].y > made.legend[0].y); // no room beside the others
});

test("the badge stands behind the title, or below it where it has no room", () => {
  assert.equal(layout({}).badge.x, 16 + 50 + 10);
  const below = layout({ title: "a title of some length" });
  assert.equal(below.badge.x, 16);
  assert.ok(below.badge.y >= below.titles.at(-1).y);
  assert.equal(layout({ title: "" }).badge.x, 16);
});

test("nothing is left free for what is not there", () => {
  const bare = layout({});
  assert.equal(bare.height, bare.canvas.y + 100 + 12);
  assert.equal(bare.time, null);
});

test("file names hold letters and digits", () => {
  assert.equal(fileNameOf("digits, pp 4, 1f1b"), "digits-pp-4-1f1b");
  assert.equal(fileNameOf("../<b>"), "b");
  assert.equal(fileNameOf("«»"), "labkit");
});

test("bytes are packed, all else stays as it is", async () => {
  const traits = { saved: ["columns", "ranks", "step"], columns: { start: new DataView(new Uint8Array([1, 2, 250]).buffer) }, ranks: [{ rank: 0, place: "" }], step: null };
  const saved = await savedState({ get: (name) => traits[name] });
  assert.deepEqual({ ranks: saved.ranks, step: saved.step }, { ranks: traits.ranks, step: null });
  const stream = new Blob([Buffer.from(saved.columns.start.gzip, "base64")]).stream().pipeThrough(new DecompressionStream("gzip"));
  assert.deepEqual([...new Uint8Array(await new Response(stream).arrayBuffer())], [1, 2, 250]);
});

test("names cannot leave the place they are put in", () => {
  const evil = "</script><script>alert(1)</script><!--", page = pageOf({
    title: evil, theme: "dark", saved: { heading: evil }, css: "a {}", esm: `const a = "${evil}";\nexport default { render };\n`,
  });
  assert.equal(page.match(/<script/g).length, page.match(/<\/script>/g).length);
  assert.equal(page.match(/<script/g).length, 4); // the data, the list of players, the module, the start
  assert.ok(!page.includes("<!--") && page.includes("&lt;script&gt;alert(1)"));
  assert.ok(page.includes('data-jp-theme-light="false"') && page.includes("labkitPlayers[0] = { render };"));
  const data = page.match(/<script type="application\/json">(.*?)<\/script>/s)[1];
  assert.equal(JSON.parse(data).heading, evil);
});
