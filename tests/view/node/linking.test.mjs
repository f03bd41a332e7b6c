// Linked players tell each other, and only each other.
import assert from "node:assert/strict";
import { test } from "node:test";

import { joinLinked, takeRow } from "../../../labkit/view/static/linking.js";

globalThis.CustomEvent ||= class extends Event { constructor(name, { detail }) { super(name); this.detail = detail; } };

function player(bus, group) {
  const heard = [], model = { state: { link_group: group, selected: -1 }, saved: 0, get(name) { return this.state[name]; }, set(name, value) { this.state[name] = value; }, save_changes() { this.saved++; } };
  return { model, heard, link: joinLinked(model, { onTime: (ns) => heard.push(["time", ns]), onRow: (row) => heard.push(["row", row]), onHover: (row) => heard.push(["hover", row]) }, bus) };
}

test("a group shares moment, selection and what is pointed at; others and the teller hear nothing", () => {
  const bus = new EventTarget(), [a, b, c] = [player(bus, "g"), player(bus, "g"), player(bus, "other")];
  a.link.tellTime(5);
  b.link.tellRow(7);
  b.link.tellHover(-1);
  assert.deepEqual([a.heard, b.heard, c.heard], [[["row", 7], ["hover", -1]], [["time", 5]], []]);
});

test("players that are not linked are silent; who left hears nothing", () => {
  const bus = new EventTarget(), [a, b] = [player(bus, ""), player(bus, "")];
  a.link.tellTime(5);
  assert.deepEqual(b.heard, []);
  a.model.state.link_group = b.model.state.link_group = "g"; // linked later
  b.link.leave();
  a.link.tellTime(6);
  assert.deepEqual(b.heard, []);
});

test("a selection is taken over once", () => {
  const { model } = player(new EventTarget(), "g");
  takeRow(model, 3);
  takeRow(model, 3);
  assert.deepEqual([model.state.selected, model.saved], [3, 1]);
});
