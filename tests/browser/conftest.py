"""One Chromium per session; a page that fails its test for any request that leaves the host and any script error.

Bare pages are served from a folder. Voila and JupyterLab are started once each, on the loopback, with a private
configuration, so that nothing of the reader's own Jupyter is touched.
"""

import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import free_port, serve

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "view"))  # example_traces

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"
KNOWN_NOISE = ("setData is not a function",)  # Voila's renderer for plotly's mime type lacks it; harmless
OWN_SCHEMES = ("http://127.0.0.1", "http://localhost", "ws://127.0.0.1", "data:", "blob:", "about:")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.fspath).parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium():
    sync_api = pytest.importorskip("playwright.sync_api", reason="PLAYWRIGHT IS MISSING: the browser is NOT tested")
    if CHROMIUM is None:
        pytest.skip("CHROMIUM IS MISSING: players and dashboards are NOT tested in a browser")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, request):
    """`open_page(url, width=..., height=..., **context)` -> a page. Judged when the test ends."""
    off_host, errors, contexts = [], [], []

    def open_(url: str, *, width: int = 1200, height: int = 800, **options):
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(90_000)  # a busy machine: a lesson runs real processes
        page.on("request", lambda sent: None if sent.url.startswith(OWN_SCHEMES) else off_host.append(sent.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url, wait_until="commit")  # Voila sends its page while the cells run; tests wait for what they need
        return page

    yield open_
    for context in contexts:
        for page in context.pages:
            page.goto("about:blank")  # leaving ends Voila's kernel
        context.close()
    assert off_host == [], "requests left the host"
    assert [error for error in errors if not any(known in error for known in KNOWN_NOISE)] == []


@pytest.fixture
def bare(tmp_path, open_page):
    """`bare({name: widget}, theme=...)` -> a page that shows the widgets without Jupyter."""
    import bare_page

    servers = []

    def show(widgets, *, theme: str = "light", **options):
        bare_page.write_page(tmp_path, widgets, theme=theme)
        servers.append(_serve_folder(tmp_path))
        page = open_page(f"http://127.0.0.1:{servers[-1].server_port}/index.html", **options)
        page.wait_for_function("window.isReady")
        page.wait_for_timeout(150)  # the first paint
        return page

    yield show
    for server in servers:
        server.shutdown()


def _serve_folder(folder: Path) -> http.server.ThreadingHTTPServer:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="session")
def notebooks(tmp_path_factory) -> Path:
    """A copy of the lessons, so that JupyterLab does not save into the repository."""
    folder = tmp_path_factory.mktemp("lessons") / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    return folder


@pytest.fixture(scope="session")
def voila(chromium, notebooks, tmp_path_factory) -> Iterator[str]:
    from labkit.view.voila import voila_command

    port = free_port()
    with serve(voila_command(notebooks, port), port, "/", notebooks, tmp_path_factory.mktemp("voila")) as url:
        yield url


@pytest.fixture(scope="session")
def jupyterlab(chromium, notebooks, tmp_path_factory) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root"]
    command += ["--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    with serve(command, port, "/api", notebooks, tmp_path_factory.mktemp("jupyterlab")) as url:
        yield url
