"""The puzzle's clock is ours: orders placed at random take as long in the page as `schedule.simulate` says."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from example_traces import one_f_one_b

from labkit import schedule
from labkit.view.esm import STATIC
from labkit.view.place_work import PlaceWork, PlaceWorkLab
from labkit.view.score import score

NODE = shutil.which("node")
PLAY = """
import { clocked, isComplete, orderText, refusal, summary } from "MODULE";
let seed = 7;
const random = (n) => { seed = (seed * 1103515245 + 12345) % 2147483648; return Math.floor((seed / 2147483648) * n); };
const games = [];
for (let game = 0; game < 60; game++) {
  const ranks = 2 + random(4), rules = { microbatches: 1 + random(6), maxHeld: 1 + random(6) };
  const orders = Array.from({ length: ranks }, () => []);
  for (let moves = 0; moves < 2000 && !isComplete(orders, rules.microbatches); moves++) {
    const rank = random(ranks), kind = "FB"[random(2)];
    if (!refusal(orders, rank, kind, rules)) orders[rank].push([kind, orders[rank].filter(([k]) => k === kind).length]);
  }
  const { length } = summary(orders, { forward: 1, backward: 2 });
  games.push({ text: orderText(orders), done: isComplete(orders, rules.microbatches), held: rules.maxHeld, length });
}
console.log(JSON.stringify(games));
"""


@pytest.mark.skipif(NODE is None, reason="NODE IS MISSING: the puzzle's rules are NOT tested")
def test_random_games_end_and_take_as_long_as_our_simulation_says(tmp_path: Path):
    module = (STATIC / "place_work_geometry.js").as_uri()
    script = tmp_path / "play.mjs"
    script.write_text(PLAY.replace("MODULE", module), encoding="utf-8")
    games = json.loads(subprocess.run([NODE, script], capture_output=True, text=True, check=True).stdout)
    assert len(games) == 60 and all(game["done"] for game in games)
    for game in games:
        order = schedule.Schedule.from_text(game["text"], name="own")
        schedule.check(order)
        slots = list(schedule.simulate(order, schedule.Durations()))
        assert max(slot.end for slot in slots) == game["length"]
        assert most_held(order) <= game["held"]


def most_held(order: schedule.Schedule) -> int:
    """Most microbatches whose activations any rank holds at once."""
    sign = {"F": 1, "B": -1}
    sums = [[sum(sign[action.kind] for action in row[: end + 1]) for end in range(len(row))] for row in order.orders]
    return max(map(max, sums))


def board() -> PlaceWork:
    return PlaceWork(task="Do it", num_ranks=2, num_microbatches=1, max_held=2, target=6)


def test_run_shows_the_trace_and_an_error_is_told_in_place():
    def run(order: str):
        if order == "bad":
            raise ValueError("that order cannot run")
        return one_f_one_b()

    lab = PlaceWorkLab(board(), run)
    lab.board.order = "0F0,0B0\n1F0,1B0"
    lab.start()
    lab.wait(10)
    assert lab.trace is not None and lab.board.state == "idle" and len(lab._results.children) == 1
    lab.board.order = "bad"
    lab.start()
    lab.wait(10)
    assert lab.board.failure == "that order cannot run" and lab.board.state == "idle"


def test_the_score_counts_what_is_solved():
    first, second = board(), board()
    made = score(schedule=PlaceWorkLab(first, run=None), straggler=second)
    assert made.share == "labkit puzzles: 0 of 2 solved in 0 tries"
    first.num_tries, first.is_right = 3, True
    second.num_tries, second.is_right = 1, False
    assert made.rows == [["schedule", "right", 3], ["straggler", "wrong", 1]]
    assert made.share == "labkit puzzles: 1 of 2 solved in 4 tries (schedule 3)"
