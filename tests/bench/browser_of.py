"""The system's Chromium, without a window."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


@contextlib.contextmanager
def chromium(playwright: Any) -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("CHROMIUM IS MISSING: pages are not measured")
    browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
    try:
        yield browser
    finally:
        browser.close()
