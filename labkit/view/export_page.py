"""Players as one HTML file: offline, without a kernel, with their data inside.

In: players. Out: the page's text. The template and the little model that stands in for the kernel are the browser's own
(`static/export_page.js`, `static/standalone.js`), which writes the same page from a player's menu.
"""

import base64
import gzip
import html
import json
import math
import re
from collections.abc import Sequence
from typing import Any

from labkit.view.esm import STATIC, join_modules, whole_module
from labkit.view.player import Player

MAX_PAGE_BYTES = 48 << 20
"""Bigger pages open slowly or not at all on other people's machines."""

_TEMPLATE = re.compile(r"export const PAGE = `(.*?)`;", re.DOTALL)
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_RISKY = re.compile(r"<(/script|script|!--)", re.IGNORECASE)


def page_of(players: Sequence[Player], *, title: str | None = None, theme: str = "auto") -> str:
    """The page of one player, or of several one below the other. `theme`: light, dark or auto (the reader's system)."""
    modules = list(dict.fromkeys(whole_module(player._esm) for player in players))
    styles = "\n".join(dict.fromkeys(player._css for player in players))
    fills = {
        "title": html.escape(title or players[0].heading),
        "style": styles.replace("</", "<\\/"),
        "theme": "" if theme == "auto" else f' data-jp-theme-light="{str(theme == "light").lower()}"',
        "players": "\n".join(_place(player, modules.index(whole_module(player._esm))) for player in players),
        "modules": "\n".join(_module(module, number) for number, module in enumerate(modules)),
        "start": _in_script(join_modules("standalone") + "\nshowPlayers(document);"),
    }
    template = _TEMPLATE.search((STATIC / "export_page.js").read_text(encoding="utf-8"))[1]
    return _PLACE.sub(lambda place: fills[place[1]], template)


def check_page_size(page: str) -> None:
    """Refuse a page that is too big to open."""
    if (size := len(page)) > MAX_PAGE_BYTES:
        raise ValueError(
            f"the page would have {size / 2**20:.0f} MiB, more than {MAX_PAGE_BYTES >> 20}: browsers open such pages "
            "slowly or not at all; export one training step (step=0, or --step 0), or a .json for Perfetto"
        )


def saved_state(player: Player) -> dict[str, Any]:
    """The player's traits as plain data; bytes are packed and written as text."""
    return {name: _packed(getattr(player, name)) for name in player.saved}


def _packed(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"gzip": base64.b64encode(gzip.compress(value, 6, mtime=0)).decode()}
    if isinstance(value, dict):
        return {str(name): _packed(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_packed(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value  # JSON knows no not-a-number


def _place(player: Player, module: int) -> str:
    state = json.dumps(saved_state(player), allow_nan=False).replace("<", "\\u003c")
    return f'<div data-player="{module}"><script type="application/json">{state}</script></div>'


def _module(module: str, number: int) -> str:
    code = re.sub(r"^export default ", f"labkitPlayers[{number}] = ", module, count=1, flags=re.MULTILINE)
    return f'<script type="module">\n{_in_script(code)}\n</script>'


def _in_script(code: str) -> str:
    """Code inside a script element: nothing in it may look like that element's end, or like a comment's start."""
    return _RISKY.sub(r"\\x3c\1", code)
