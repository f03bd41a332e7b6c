"""A page without Jupyter that shows widgets: the composed module, the styles and a model made of plain data.

In: anywidget widgets. Out: a folder that any static server can serve. It holds what a front end would get, no more.
"""

import json
from pathlib import Path

from anywidget import AnyWidget

_PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,"><title>players</title>
<style>
body {{ margin: 0; padding: 16px; display: grid; grid-template-columns: minmax(0, 1fr); background: {page}; {jupyter} }}
{css}</style>
</head><body data-jp-theme-light="{is_light}">{places}<script type="module">{glue}</script></body></html>"""

_GLUE = """
class Model {
  constructor(state) { this.state = state; this.handlers = {}; this.saved = 0; this.sent = []; }
  get(name) { return this.state[name]; }
  set(name, value) { this.state[name] = value; this.emit("change:" + name); }
  save_changes() { this.saved++; }
  send(message) { this.sent.push(message); }
  on(name, handler) { (this.handlers[name] ||= []).push(handler); }
  off(name, handler) { this.handlers[name] = (this.handlers[name] || []).filter((one) => one !== handler); }
  emit(name, ...values) { for (const handler of this.handlers[name] || []) handler(...values); }
}
window.models = []; window.removers = [];
for (const place of document.querySelectorAll("[data-widget]")) {
  const state = await (await fetch(place.dataset.widget + ".json")).json();
  for (const [name, number] of Object.entries(state.columns || {}))
    state.columns[name] = new DataView(await (await fetch(number)).arrayBuffer());
  const model = new Model(state), module = await import("./" + place.dataset.widget + ".mjs");
  window.models.push(model);
  window.removers.push(await module.default.render({ model, el: place }));
}
window.isReady = true;
"""

_DARK = "--jp-layout-color0: #111; --jp-layout-color1: #1e1e1e;"


def write_page(folder: Path, widgets: dict[str, AnyWidget], *, theme: str = "light") -> Path:
    """Write `index.html` and all it needs into `folder`; every widget in its own place, by name."""
    for name, widget in widgets.items():
        _write_widget(folder, name, widget)
    styles = "\n".join(dict.fromkeys(widget._css for widget in widgets.values()))
    is_light = theme == "light"
    html = _PAGE.format(
        page="#ffffff" if is_light else "#111111",
        jupyter="" if is_light else _DARK,
        css=styles,
        is_light=str(is_light).lower(),
        places="".join(f'<div data-widget="{name}" class="place"></div>' for name in widgets),
        glue=_GLUE,
    )
    (folder / "index.html").write_text(html)
    return folder


def _write_widget(folder: Path, name: str, widget: AnyWidget) -> None:
    own = {key: value for key, value in widget.get_state().items() if not key.startswith("_")}
    own = {key: value for key, value in own.items() if key not in ("layout", "tooltip", "tabbable", "comm")}
    for column, data in own.get("columns", {}).items():
        (folder / f"{name}.{column}.bin").write_bytes(bytes(data))
    if "columns" in own:
        own["columns"] = {column: f"{name}.{column}.bin" for column in own["columns"]}
    (folder / f"{name}.json").write_text(json.dumps(own))
    (folder / f"{name}.mjs").write_text(widget._esm)
