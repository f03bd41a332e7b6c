"""Dashboards without code: how to start Voila with our template, offline and only for this machine.

In: a folder of notebooks. Out: the command to start (`voila_command`). The command runs this module, because Voila
finds templates only on JUPYTER_PATH and takes the index page's titles only from a Python hook.

The template lies in `voila/templates/labkit` beside this file; every file it uses is served from here.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

TEMPLATE = "labkit"
CELL_TIMEOUT_S = 300  # a cell that hangs must not keep the page loading for ever
IDLE_S = 600  # kernels whose page is gone and that did nothing for so long are ended
CULL_EVERY_S = 60
CARD_CHARACTERS = 180


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


def notebook_cards(folder: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """For every notebook below a folder its title and first sentences: {"00_tour.ipynb": {"title": .., "text": ..}}."""
    folder = Path(folder)
    paths = (path for path in sorted(folder.rglob("*.ipynb")) if ".ipynb_checkpoints" not in path.parts)
    return {path.relative_to(folder).as_posix(): _card(path) for path in paths}


def add_cards(page_config: dict[str, Any], *, settings: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Voila's page_config_hook: hands the cards to the index page's template."""
    page_config["labkitCards"] = notebook_cards(settings["contents_manager"].root_dir)
    return page_config


def _card(path: Path) -> dict[str, str]:
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        first = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    except (OSError, ValueError, KeyError, StopIteration):
        return {"title": "", "text": ""}
    title = next((line.lstrip("# ") for line in first.splitlines() if line.startswith("#")), "")
    text = " ".join(line for line in first.splitlines() if line and not line.startswith("#")).replace("**", "")
    return {
        "title": title,
        "text": text if len(text) <= CARD_CHARACTERS else text[: CARD_CHARACTERS - 2].rsplit(" ", 1)[0] + " …",
    }


def main(arguments: list[str] | None = None) -> None:
    """Serve. `python -m labkit.view.voila notebooks/ --port=8866`"""
    here = str(Path(__file__).parent)  # holds voila/templates/labkit
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [here, os.environ.get("JUPYTER_PATH")]))
    from traitlets.config import Config
    from voila.app import Voila  # after JUPYTER_PATH is set, and only by who serves

    config = Config(VoilaConfiguration={"page_config_hook": add_cards})
    given = sys.argv[1:] if arguments is None else arguments
    Voila.launch_instance([*options(), *given], config=config)


if __name__ == "__main__":
    main()
