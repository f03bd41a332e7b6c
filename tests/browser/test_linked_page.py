"""Linked players on one page share the moment and the selection; unlinked ones do not meet."""

import example_traces as examples
import numpy as np
from scene_checks import facts, picture

from labkit.view.batch_flow import batch_flow
from labkit.view.mesh_grid import mesh_grid
from labkit.view.player import link_players
from labkit.view.timeline import timeline

DRAWS = "[...document.querySelectorAll('.labkit-player')].map((one) => Number(one.dataset.draws))"
IMAGES = np.zeros((512, 8, 8))


def test_a_moment_and_a_selection_reach_all_linked_players(bare):
    trace = examples.one_f_one_b()
    line, mesh, batch, alone = timeline(trace), mesh_grid(trace), batch_flow(trace, IMAGES), mesh_grid(trace)
    link_players(line, mesh, batch)
    page = bare({"line": line, "mesh": mesh, "batch": batch, "alone": alone})
    still = page.locator(".lk-time").nth(3).inner_text()
    page.evaluate("models[0].emit('msg:custom', {do: 'seek', t_ns: 349e6})")
    page.wait_for_function("document.querySelectorAll('.lk-time')[1].textContent.startsWith('349 ms')")
    page.wait_for_function("document.querySelectorAll('.lk-time')[2].textContent.startsWith('2 · 349 ms')")
    row = trace.events.with_row_index("row").filter(rank=2, kind="stage_forward", microbatch=3)["row"][0]
    page.evaluate(f"models[1].set('selected', {row})")  # as a click in the mesh does
    page.wait_for_function("document.querySelectorAll('.lk-facts')[0].textContent.includes('forward')")
    assert "microbatch 3" in facts(page, 2)
    assert page.evaluate("models.map((model) => model.get('selected'))") == [row, row, row, -1]
    assert page.locator(".lk-time").nth(3).inner_text() == still


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


def test_two_linked_players_of_100000_events_keep_up(bare):
    """The bound is half of what a free machine gives (60), so that a busy one does not fail it."""
    trace = examples.dense(100_000)
    line, mesh = timeline(trace), mesh_grid(trace)
    link_players(line, mesh)
    page = bare({"line": line, "mesh": mesh})
    picture(page, 0).focus()
    page.keyboard.press("Space")
    before = page.evaluate(DRAWS)
    page.wait_for_timeout(1500)
    drawn = [after - first for first, after in zip(before, page.evaluate(DRAWS))]
    assert min(drawn) >= 30, f"{drawn} frames drawn in 1.5 s"
