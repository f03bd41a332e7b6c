"""Linked players on one page share the moment and the selection; unlinked ones do not meet."""

import example_traces as examples
import numpy as np
from scene_checks import facts, picture

from labkit.view.batch_flow import batch_flow
from labkit.view.mesh_grid import mesh_grid
from labkit.view.player import link_players
from labkit.view.timeline import timeline

DRAWS = "[...document.querySelectorAll('.labkit-player')].map((one) => Number(one.dataset.draws))"
FRAMES = """async () => { let frames = 0; const end = performance.now() + 1500;
    while (performance.now() < end) { await new Promise(requestAnimationFrame); frames++; }
    return frames; }"""
IMAGES = np.zeros((512, 8, 8))


def test_a_moment_and_a_selection_reach_all_linked_players(bare):
    trace = examples.one_f_one_b()
    line, mesh, batch, alone = timeline(trace), mesh_grid(trace), batch_flow(trace, IMAGES), mesh_grid(trace)
    link_players(line, mesh, batch)
    page = bare({"line": line, "mesh": mesh, "batch": batch, "alone": alone})
    still = page.locator(".lk-time").nth(3).inner_text()
    page.evaluate("models[0].emit('msg:custom', {do: 'seek', t_ns: 349e6})")
    page.wait_for_function("document.querySelectorAll('.lk-time')[1].textContent.startsWith('349 /')")
    page.wait_for_function("document.querySelectorAll('.lk-time')[2].textContent.startsWith('2 · 349 ms')")
    row = trace.events.with_row_index("row").filter(rank=2, kind="stage_forward", microbatch=3)["row"][0]
    page.evaluate(f"models[1].set('selected', {row})")  # as a click in the mesh does
    page.wait_for_function("document.querySelectorAll('.lk-facts')[0].textContent.includes('forward')")
    assert "microbatch 3" in facts(page, 2)
    assert page.evaluate("models.map((model) => model.get('selected'))") == [row, row, row, -1]
    assert page.locator(".lk-time").nth(3).inner_text() == still


def test_what_is_pointed_at_lights_up_in_all_linked_players(bare):
    trace = examples.one_f_one_b()
    line, other, mesh, alone = timeline(trace), timeline(trace), mesh_grid(trace), timeline(trace)
    link_players(line, other, mesh)
    page = bare({"line": line, "other": other, "mesh": mesh, "alone": alone}, height=2600)
    untouched = picture(page, 1).screenshot(), picture(page, 3).screenshot()
    box = picture(page, 0).bounding_box()
    page.mouse.move(box["x"] + 128 + (box["width"] - 140) * 214 / 698, box["y"] + 34)  # rank 0, B0
    page.wait_for_function("document.querySelectorAll('.lk-facts')[1].textContent.startsWith('backward')")
    assert facts(page, 1) == facts(page, 0) and "microbatch\n0" in facts(page, 1)
    assert "rank 0" in facts(page, 2)
    assert picture(page, 1).screenshot() != untouched[0] and picture(page, 3).screenshot() == untouched[1]
    assert page.evaluate("models.map((model) => model.saved)") == [0, 0, 0, 0]  # no kernel is asked
    page.mouse.move(box["x"] + 5, box["y"] + 2)
    page.wait_for_function("document.querySelectorAll('.lk-facts')[1].textContent.startsWith('Play')")
    assert picture(page, 1).screenshot() == untouched[0]


def test_while_one_plays_the_others_follow_and_no_kernel_is_asked(bare):
    trace = examples.one_f_one_b()
    line, mesh = timeline(trace), mesh_grid(trace)
    link_players(line, mesh)
    page = bare({"line": line, "mesh": mesh})
    picture(page, 1).focus()
    page.keyboard.press("Space")
    page.wait_for_timeout(700)
    page.keyboard.press("Space")
    page.wait_for_timeout(150)
    times = [text.split(" ")[0] for text in page.locator(".lk-time").all_inner_texts()]
    assert float(times[0]) > 0 and abs(float(times[0]) - float(times[1])) < 2
    assert page.evaluate("models.map((model) => model.saved)") == [0, 0]
    page.evaluate("removers[0]()")
    picture(page, 0).focus()
    page.keyboard.press("End")  # the one that is left plays on alone
    page.wait_for_timeout(100)


def test_two_linked_players_of_100000_events_draw_in_every_frame(bare):
    """However fast the machine is: each frame that the browser gives is drawn by both."""
    trace = examples.dense(100_000)
    line, mesh = timeline(trace), mesh_grid(trace)
    link_players(line, mesh)
    page = bare({"line": line, "mesh": mesh})
    picture(page, 0).focus()
    page.keyboard.press("Space")
    before = page.evaluate(DRAWS)
    frames = page.evaluate(FRAMES)
    drawn = [after - first for first, after in zip(before, page.evaluate(DRAWS))]
    assert min(drawn) >= 0.9 * frames > 0
