"""Exported pages, opened from disk with the network off; and the Save menu of a player in a page."""

import gzip
import json
import re
from base64 import b64decode
from pathlib import Path

import example_traces as examples
import memory_traces
import message_traces
import pytest
import value_traces
from scene_checks import PAINTED, picture

import labkit
from labkit.trace import load
from labkit.view.export_page import saved_state

ASSET = Path(__file__).parents[2] / "assets" / "pipeline_1f1b.parquet"

PLAYERS = {
    "timeline": lambda: labkit.timeline(examples.one_f_one_b()),
    "all_reduce": lambda: labkit.all_reduce(message_traces.ring(4)),
    "batch_flow": lambda: labkit.batch_flow(examples.data_parallel()),
    "matrix_shard": lambda: labkit.matrix_shard(value_traces.cut_layer()),
    "memory_lanes": lambda: labkit.memory_lanes(memory_traces.piles()),
    "mesh_grid": lambda: labkit.mesh_grid(examples.mixed()),
}


@pytest.fixture
def from_disk(chromium):
    """`from_disk(path)` -> a page opened from disk, without network. It may ask for nothing, and may not complain."""
    asked, complaints, contexts = [], [], []

    def open_(path: Path, **options):
        context = chromium.new_context(offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda sent: asked.append(sent.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-is-ready]", state="attached")
        page.evaluate(PAINTED)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == len(contexts)  # the pages themselves
    assert complaints == []


@pytest.mark.parametrize("name", PLAYERS)
def test_every_player_plays_from_disk(name, tmp_path, from_disk):
    player = PLAYERS[name]()
    page = from_disk(labkit.export(player, tmp_path / "page.html"))
    assert page.locator(".lk-badge").first.inner_text().startswith(f"times: {player.source}")
    assert page.locator(".lk-notes li").all_inner_texts() == player.notes
    before = picture(page).screenshot()
    page.get_by_role("button", name="Play (Space)").click()
    page.wait_for_timeout(700)
    page.get_by_role("button", name="Pause (Space)").click()
    assert picture(page).screenshot() != before
    assert page.title() == player.heading


def test_linked_players_stay_linked(tmp_path, from_disk):
    players = [labkit.timeline(load(ASSET)), labkit.mesh_grid(load(ASSET))]
    labkit.link_players(*players)
    page = from_disk(labkit.export(players, tmp_path / "page.html"))
    picture(page, 0).focus()
    page.keyboard.press("End")
    page.evaluate(PAINTED)
    first, second = page.locator(".lk-time").all_inner_texts()
    assert first == second != "0.00 / 1328 ms"


def test_markup_in_names_stays_text(tmp_path, from_disk):
    name = "</script><script>document.title='owned'</script><!--<script>"
    trace = examples.single().with_meta(notes=(name,))
    page = from_disk(labkit.export(labkit.timeline(trace, title=name), tmp_path / "page.html"))
    assert page.locator(".lk-title").inner_text() == page.title() == name
    assert page.locator(".lk-notes li").inner_text() == name
    assert page.locator(".lk-picture").count() == 1


def test_a_page_follows_the_theme_of_its_reader_or_its_maker(tmp_path, from_disk):
    trace = load(ASSET)
    auto, light = (labkit.export(trace, tmp_path / f"{theme}.html", theme=theme) for theme in ("auto", "light"))
    for path, theme in ((auto, "dark"), (light, "light")):
        page = from_disk(path, color_scheme="dark")
        assert page.locator(".labkit").get_attribute("data-theme") == theme


# ---- the Save menu


def item(page, name: str):
    page.get_by_role("button", name="Save", exact=True).click()
    return page.get_by_role("menuitem", name=re.compile(name))


def test_a_picture_is_saved_without_a_kernel(tmp_path, bare):
    image = pytest.importorskip("PIL.Image")
    page = bare({"one": PLAYERS["timeline"]()}, device_scale_factor=2)
    with page.expect_download() as started:
        item(page, "PNG").click()
    assert started.value.suggested_filename == "digits-pp-4-1f1b.png"
    saved = image.open(started.value.path()).convert("RGB")
    size = page.evaluate(
        "(({clientWidth, clientHeight}) => [clientWidth, clientHeight])(document.querySelector('canvas.lk-picture'))"
    )
    assert saved.width == 2 * (size[0] + 32)
    assert saved.height > 2 * (size[1] + 60)  # heading and legend stand above
    assert len(saved.crop((32, 20, 400, 60)).getcolors(10_000)) > 10  # the heading is written
    assert page.evaluate("[models[0].sent, models[0].saved]") == [[], 0]


def test_the_menus_page_holds_what_pythons_holds(tmp_path, bare, from_disk):
    player = PLAYERS["timeline"]()
    page = bare({"one": player})
    state = {"_esm": player._esm, "_css": player._css}
    page.evaluate(
        """async (state) => {
            removers[0]();
            Object.assign(models[0].state, state);
            const module = await import("./one.mjs");
            module.default.render({ model: models[0], el: document.querySelector("[data-widget]") });
        }""",
        state,
    )
    with page.expect_download() as started:
        item(page, "HTML").click()
    path = tmp_path / "saved.html"
    started.value.save_as(path)
    pattern = r'<div data-player="0"><script type="application/json">(.*?)</script>'
    saved = json.loads(re.findall(pattern, path.read_text())[-1])
    assert unpacked(saved) == unpacked(saved_state(player))
    again = from_disk(path)
    assert again.locator(".lk-title").inner_text() == player.heading
    item(again, "PNG").wait_for()
    assert again.get_by_role("menuitem").count() == 1  # the page is already there


def unpacked(value):
    if isinstance(value, dict):
        return (
            gzip.decompress(b64decode(value["gzip"])) if "gzip" in value else {k: unpacked(v) for k, v in value.items()}
        )
    return [unpacked(one) for one in value] if isinstance(value, list) else value


def test_the_menu_works_by_keyboard_and_leaves_the_player_alone(bare):
    page = bare({"one": PLAYERS["timeline"]()}, width=360)
    save = page.get_by_role("button", name="Save", exact=True)
    save.focus()
    page.keyboard.press("Enter")
    menu = page.get_by_role("menu")
    menu.wait_for()
    assert save.get_attribute("aria-expanded") == "true"
    assert page.evaluate("document.activeElement.getAttribute('role')") == "menuitem"
    box, card = menu.bounding_box(), page.locator(".labkit").bounding_box()
    assert card["x"] <= box["x"] and box["x"] + box["width"] <= card["x"] + card["width"]
    page.keyboard.press("End")
    page.keyboard.press("Escape")
    assert menu.count() == 0 and page.evaluate("document.activeElement.textContent") == "Save"
    page.evaluate(PAINTED)
    assert page.locator(".lk-time").inner_text().startswith("0.00")  # End went to the menu, not to the player
