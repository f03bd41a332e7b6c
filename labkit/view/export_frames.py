"""Pictures of players, drawn by a headless Chromium at moments that are set: not filmed, so always the same.

In: the text of a page (`export_page`). Out: PNG files as bytes. Playwright drives the browser, which may ask no host.
"""

import base64
import importlib.util
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.view.esm import join_modules

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = ("--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-sync")
_TIMEOUT_MS = 60_000
INSTEAD = "A .html needs neither, and a player's Save menu makes a PNG in the browser you have."


@dataclass(frozen=True)
class Moment:
    """A moment of a player: a time of the trace, or a share of what the player shows; as it opens, if both are None."""

    ns: float | None = None
    share: float | None = None


def check_browser() -> None:
    """Refuse where nothing can draw, before any work."""
    if importlib.util.find_spec("playwright") is None:
        raise ValueError(
            "pictures are drawn by a browser, driven by playwright, which is not installed: pip install "
            f"'labkit[export]'. {INSTEAD}"
        )
    if _browser_path() is None:
        raise ValueError(
            "pictures are drawn by a browser, and there is no Chromium or Chrome on the PATH: install one (Debian: apt "
            f"install chromium; anywhere: playwright install chromium). {INSTEAD}"
        )


def take_pictures(page: str, moments: Iterable[Moment], *, width: int, scale: float, theme: str) -> list[bytes]:
    """A PNG for each moment; `width` in CSS pixels, `scale` image pixels for each."""
    with ThreadPoolExecutor(1) as alone:  # playwright refuses to run in a thread with an event loop, as notebooks have
        return alone.submit(_take, page, list(moments), width, scale, theme).result()


def _take(page_text: str, moments: list[Moment], width: int, scale: float, theme: str) -> list[bytes]:
    from playwright.sync_api import Error, sync_playwright

    with tempfile.TemporaryDirectory(prefix="labkit-export-") as folder, sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        path.write_text(page_text, encoding="utf-8")
        try:
            browser = playwright.chromium.launch(executable_path=_browser_path(), args=list(_FLAGS))
        except Error as error:
            raise RuntimeError(f"the browser did not start: {error}. {INSTEAD}") from None
        try:
            view = {"width": width, "height": 900}
            context = browser.new_context(viewport=view, device_scale_factor=scale, color_scheme=theme, offline=True)
            return _shoot(context.new_page(), path.as_uri(), moments)
        finally:
            browser.close()


def _shoot(page: Any, address: str, moments: list[Moment]) -> list[bytes]:
    page.set_default_timeout(_TIMEOUT_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    page.wait_for_selector("body[data-is-ready]", state="attached")
    if errors:
        raise RuntimeError(f"the player could not be drawn: {errors[0]}")
    if empty := page.locator(".lk-empty").all_inner_texts():
        raise ValueError(f"nothing to export. {empty[0]}")
    page.evaluate(f"() => {{ {join_modules('export_frames')}\n window.takePicture = framesOf(document); }}")
    urls = (page.evaluate("(moment) => takePicture(moment)", asdict(moment)) for moment in moments)
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


def _browser_path() -> str | None:
    """The system's browser, else the one that playwright installed."""
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    return found or _own_browser()


def _own_browser() -> str | None:
    caches = (Path.home() / ".cache/ms-playwright", Path.home() / "Library/Caches/ms-playwright")
    names = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*")
    found = (path for cache in caches for name in names for path in sorted(cache.glob(name)))
    return next(map(str, found), None)
