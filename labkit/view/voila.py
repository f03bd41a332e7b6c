"""Dashboards without code: how to start Voila with our template, offline and only for this machine.

In: a folder of notebooks. Out: the command to start (`voila_command`). The command runs this module, because Voila
finds templates only on JUPYTER_PATH and takes the index page's titles only from a Python hook.

The template lies in `voila/templates/labkit` beside this file; every file it uses is served from here.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

TEMPLATE = "labkit"
CELL_TIMEOUT_S = 300  # a cell that hangs must not keep the page loading for ever
IDLE_S = 600  # kernels whose page is gone and that did nothing for so long are ended
CULL_EVERY_S = 60
CARD_CHARACTERS = 180
TOOLS = ("explorer", "compare", "your_trace")
"""Notebooks that are tools, in this order; after them all others whose name does not begin with a lesson's number."""

PICTURES_WITHIN_S = 30


def voila_command(notebooks_dir: str | os.PathLike[str], port: int, ip: str = "127.0.0.1") -> list[str]:
    """The command that serves the notebooks of a folder. Blocks while it serves; no browser is opened.

    `ip` other than a loopback address lets others on the network run code on this machine.
    """
    return [sys.executable, "-m", "labkit.view.voila", os.fspath(notebooks_dir), f"--Voila.ip={ip}", f"--port={port}"]


def options() -> list[str]:
    """Voila's options that we always set."""
    return [
        "--no-browser",
        f"--template={TEMPLATE}",
        "--VoilaConfiguration.show_tracebacks=True",  # a reader of a lesson is its owner: show what failed
        f"--VoilaExecutor.timeout={CELL_TIMEOUT_S}",
        # A closing page asks for its kernel's end without the XSRF token; refused, every closed tab leaks a kernel.
        # Other origins stay refused.
        "--Voila.tornado_settings=disable_check_xsrf=True",
        f"--MappingKernelManager.cull_idle_timeout={IDLE_S}",
        f"--MappingKernelManager.cull_interval={CULL_EVERY_S}",
    ]


def notebook_cards(folder: str | os.PathLike[str]) -> list[dict[str, str]]:
    """A card for every notebook of a folder: path, group ("lessons" or "tools"), title, text; lessons first."""
    cards = [_card(path) for path in sorted(Path(folder).glob("*.ipynb"))]
    return sorted(cards, key=lambda card: (card["group"], _place(card["path"])))


def _place(path: str) -> tuple[int, str]:
    """Lessons by number, tools as `TOOLS` has them."""
    stem = path.removesuffix(".ipynb")
    return (TOOLS.index(stem) if stem in TOOLS else len(TOOLS), stem)


def _card(path: Path) -> dict[str, str]:
    """Title and first sentences; of a file that cannot be read, its name."""
    card = {"path": path.name, "group": "lessons" if re.match(r"\d\d_", path.name) else "tools"}
    name = re.sub(r"^\d\d_", "", path.stem).replace("_", " ").capitalize()
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        first = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return card | {"title": name, "text": ""}
    title = next((line.lstrip("# ") for line in first.splitlines() if line.startswith("#")), "")
    text = " ".join(line for line in first.splitlines() if line and not line.startswith("#"))
    return card | {"title": title or name, "text": _shortened(re.sub(r"[*`]", "", text))}


def _shortened(text: str) -> str:
    """As many whole sentences as fit; where they say little, as many words."""
    if len(text) <= CARD_CHARACTERS:
        return text
    sentences = re.match(r".*[.?!](?=\s)", text[:CARD_CHARACTERS])
    if sentences and len(sentences.group()) >= CARD_CHARACTERS // 2:
        return sentences.group()
    return text[: CARD_CHARACTERS - 2].rsplit(" ", 1)[0] + " …"


class Pictures:
    """The cards' pictures, made by a process of its own while the server starts."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        command = [sys.executable, "-m", "labkit.home", os.fspath(folder)]
        self._maker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._made: dict[str, Any] | None = None

    def get(self) -> dict[str, Any]:
        """By path of the notebook; none where they could not be made."""
        if self._made is None:
            try:
                self._made = json.loads(self._maker.communicate(timeout=PICTURES_WITHIN_S)[0])
            except (subprocess.TimeoutExpired, ValueError):
                self._maker.kill()
                self._made = {}
        return self._made


def main(arguments: list[str] | None = None) -> None:
    """Serve. `python -m labkit.view.voila notebooks/ --port=8866`"""
    here = str(Path(__file__).parent)  # holds voila/templates/labkit
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [here, os.environ.get("JUPYTER_PATH")]))
    # jsonschema checks one more format where this can be imported, and importing it compiles a grammar for two seconds.
    sys.modules["rfc3987_syntax"] = None
    given = sys.argv[1:] if arguments is None else arguments
    folder = next((one for one in given if not one.startswith("-")), os.curdir)
    pictures = Pictures(folder)
    from traitlets.config import Config
    from voila.app import Voila  # after JUPYTER_PATH is set, and only by who serves

    def add_cards(page_config: dict[str, Any], *, notebook_path: str = "", **_: Any) -> dict[str, Any]:
        """Voila's page_config_hook: hands the cards to the index page's template. Voila keeps the dict it gave."""
        if not notebook_path.endswith(".ipynb"):
            page_config |= {"labkitCards": notebook_cards(folder), "labkitPictures": pictures.get()}
        return page_config

    config = Config(VoilaConfiguration={"page_config_hook": add_cards})
    Voila.launch_instance([*options(), *given], config=config)


if __name__ == "__main__":
    main()
