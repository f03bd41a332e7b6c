import assert from "node:assert/strict";
import { test } from "node:test";

import { figureFor, recoloured } from "../../../labkit/view/static/chart.js";

const COLOURS = [["#0067a8", "#4f9adb", "#fff", "#000"], ["#efa51f", "#ffc34d", "#000", "#000"]];

test("colours of the light theme become their likes of the dark one, and back", () => {
  const light = { data: [{ marker: { color: "#0067a8", line: { color: "#123456" } }, y: [1, null, 2] }], on: true };
  const dark = recoloured(light, COLOURS, "dark");
  assert.deepEqual(dark, { data: [{ marker: { color: "#4f9adb", line: { color: "#123456" } }, y: [1, null, 2] }], on: true });
  assert.deepEqual(recoloured(dark, COLOURS, "light"), light);
});

test("a figure gets its theme's template; its title is the page's", () => {
  const figure = { data: [], layout: { title: { text: "Loss" }, margin: { t: 72, l: 5 }, template: { old: "#0067a8" } }, config: { a: 1 } };
  const shown = figureFor(figure, { templates: { light: { name: "l" }, dark: { name: "d" } }, colours: COLOURS, theme: "dark" });
  assert.deepEqual(shown.layout.template, { name: "d" });
  assert.deepEqual(shown.layout.title, {});
  assert.equal(shown.layout.margin.l, 5);
  assert.ok(shown.layout.margin.t < 72);
  assert.equal(figure.layout.title.text, "Loss"); // what was given stays as it was
});

test("a pattern and an outline read on the fill that is left", () => {
  const bar = { marker: { color: "#0067a8", pattern: { shape: "/", fgcolor: "#fff" }, line: { width: 1, color: "#fff" } } };
  const dark = { color: "#4f9adb", pattern: { shape: "/", fgcolor: "#000" }, line: { width: 1, color: "#000" } };
  assert.deepEqual(recoloured(bar, COLOURS, "dark"), { marker: dark });
});
