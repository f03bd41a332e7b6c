// Players of one page that were linked in Python (`link_players`): they share the moment, the selected event and the one
// that is pointed at.
//
// All of it stays in the page: views speak over an event on the document, whose listeners know their group by name.

const LINKED = "labkit-linked";

/** Takes part in the model's group, if it has one. `onTime(ns)`, `onRow(row)` and `onHover(row)` are called for what others
    tell; a row is an event's place in trace.events, -1 for none. */
export function joinLinked(model, { onTime, onRow, onHover }, bus = document) {
  const self = {};
  const listener = ({ detail }) => {
    if (detail.from === self || detail.group !== model.get("link_group")) return;
    if (detail.row !== undefined) onRow(detail.row);
    else if (detail.hovered !== undefined) onHover(detail.hovered);
    else onTime(detail.ns);
  };
  const tell = (what) => {
    const group = model.get("link_group");
    if (group) bus.dispatchEvent(new CustomEvent(LINKED, { detail: { group, from: self, ...what } }));
  };
  bus.addEventListener(LINKED, listener);
  return {
    tellTime: (ns) => tell({ ns }), tellRow: (row) => tell({ row }), tellHover: (row) => tell({ hovered: row }),
    leave: () => bus.removeEventListener(LINKED, listener),
  };
}

/** Takes over another player's selection: a click, so it also goes to Python. */
export function takeRow(model, row) {
  if (model.get("selected") === row) return;
  model.set("selected", row);
  model.save_changes();
}
