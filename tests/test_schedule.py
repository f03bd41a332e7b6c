"""labkit.schedule: the orders equal what PyTorch executes, the rules hold on every shape, the times are right."""

import csv
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit.schedule
from labkit.schedule import (
    SCHEDULES,
    Action,
    Durations,
    Kind,
    Overlap,
    Schedule,
    ScheduleError,
    bubble_fraction,
    bubble_of_ideal,
    bubble_of_span,
    check,
    default_microbatches,
    default_virtual,
    generate,
    ideal_bubble,
    pipeline_schedule,
    place,
    problem,
    schedule_grid,
    simulate,
)

REPO = Path(__file__).resolve().parents[1]
F, B, I, W = Kind
IN_TORCH = [name for name, spec in SCHEDULES.items() if spec.torch_name is not None]


def legal_shapes(name: str, ranks=(1, 2, 3, 4, 8), microbatches=(1, 2, 3, 5, 8, 9, 16), virtual=(1, 2, 3)):
    """The (p, m, v) among these that `name` accepts."""
    return [(p, m, v) for p in ranks for m in microbatches for v in virtual if problem(name, p, m, v) is None]


ALL = [(name, *shape) for name in SCHEDULES for shape in legal_shapes(name)]


def test_the_table_of_shapes_is_not_empty_for_any_schedule():
    assert {name for name, *_ in ALL} == set(SCHEDULES)
    assert len(ALL) > 250


# --- against PyTorch -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch_schedules():
    return pytest.importorskip("torch.distributed.pipelining.schedules")


class RecordingStage:
    """All a PyTorch schedule wants of a stage; writes down what it is made to compute."""

    submod = None

    def __init__(self, index: int, num_stages: int, num_ranks: int, rank: int, ran: list[Action]) -> None:
        self.stage_index, self.num_stages, self.group_size, self.group_rank = index, num_stages, num_ranks, rank
        self.is_first, self.is_last = index == 0, index == num_stages - 1
        self._ran = ran

    def forward_one_chunk(self, microbatch, args, kwargs, **_):
        self._ran.append(Action(self.stage_index, F, microbatch))

    def backward_one_chunk(self, microbatch, *, full_backward=True, **_):
        self._ran.append(Action(self.stage_index, B if full_backward else I, microbatch))

    def backward_weight_one_chunk(self, microbatch, **_):
        self._ran.append(Action(self.stage_index, W, microbatch))

    def _no_messages(self, *_):
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = _no_messages
    set_local_fwd_input = set_local_bwd_input = get_local_bwd_output = perform_reduce_grad = _no_messages


def torch_stages(placement: tuple[int, ...], rank: int, ran: list[Action]) -> list[RecordingStage]:
    homes = [stage for stage, home in enumerate(placement) if home == rank]
    return [RecordingStage(stage, len(placement), max(placement) + 1, rank, ran) for stage in homes]


def torch_executes(schedules, name: str, p: int, m: int, v: int) -> tuple[tuple[Action, ...], ...]:
    """What each rank computes when PyTorch's own executor of this schedule runs one step."""
    make = schedules.get_schedule_class(SCHEDULES[name].torch_name)
    placement = place(p, v, SCHEDULES[name].placement)
    several = issubclass(make, schedules.PipelineScheduleMulti)
    orders, schedule = [], None
    for rank in range(p):
        ran: list[Action] = []
        stages = torch_stages(placement, rank, ran)
        if schedule is None or not several:  # a multi-stage schedule holds all ranks' orders: make it once
            schedule = make(stages if several else stages[0], m)
        schedule._initialize_stage = schedule._initialize_stages = lambda *_, **__: None
        schedule.rank, schedule._stages = rank, stages
        schedule._step_microbatches()
        orders.append(tuple(ran))
    return tuple(orders)


@pytest.mark.parametrize("name", IN_TORCH)
def test_torch_executes_our_order(torch_schedules, name):
    for p, m, v in legal_shapes(name, ranks=(1, 2, 4, 8), microbatches=(1, 2, 3, 4, 7, 8, 9, 12, 17, 24)):
        assert generate(name, p, m, v).orders == torch_executes(torch_schedules, name, p, m, v), (p, m, v)


def printed_order(torch_schedule, rank: int) -> tuple[Action, ...]:
    """Torch's `pipeline_order` of a rank in our words, without idle cells and gradient reduction."""
    cells = map(str, filter(None, torch_schedule.pipeline_order[rank]))
    return Schedule.from_text(",".join(c for c in cells if "REDUCE" not in c), placement=(0,)).orders[0]


@pytest.mark.parametrize("name", IN_TORCH)
def test_torch_prints_our_order(torch_schedules, name):
    make = torch_schedules.get_schedule_class(SCHEDULES[name].torch_name)
    several = issubclass(make, torch_schedules.PipelineScheduleMulti)
    for p, m, v in legal_shapes(name, ranks=(2, 4, 8), microbatches=(1, 3, 4, 9, 17), virtual=(1, 2, 3)):
        ours = generate(name, p, m, v)
        stages = torch_stages(ours.placement, 0, [])
        theirs = make(stages if several else stages[0], m)
        ranks = range(p - 1) if name == "1f1b" else range(p)  # see the next test
        for rank in ranks:
            assert ours.orders[rank] == printed_order(theirs, rank), (p, m, v, rank)
        if several:
            assert dict(enumerate(ours.placement)) == theirs.stage_index_to_group_rank


def test_torch_prints_1f1b_of_the_last_rank_one_microbatch_off(torch_schedules):
    """Torch 2.13's printed 1F1B starts the last rank at microbatch 1. Its executor does not. If this fails: mended."""
    theirs = torch_schedules.Schedule1F1B(torch_stages((0, 1), 0, [])[0], 3)
    assert printed_order(theirs, 1) == Schedule.from_text("1F1,1B0,1F2,1B1,1F3,1B2", placement=(0, 0)).orders[0]
    assert generate("1f1b", 2, 3).orders[1] == torch_executes(torch_schedules, "1f1b", 2, 3, 1)[1]


def torch_accepts(schedules, name: str, p: int, m: int, v: int) -> bool:
    make = schedules.get_schedule_class(SCHEDULES[name].torch_name)
    stages = [RecordingStage(stage, p * v, p, 0, []) for stage in range(v)]
    try:
        make(stages if issubclass(make, schedules.PipelineScheduleMulti) else stages[0], m)
    except (ValueError, AssertionError):
        return False
    return True


@pytest.mark.parametrize("name", [name for name in IN_TORCH if name != "naive"])
def test_we_accept_exactly_what_torch_accepts(torch_schedules, name):
    most = SCHEDULES[name].virtual[1]
    for p in (1, 2, 3, 4, 5):
        for m in range(1, 14):
            for v in (1,) if most == 1 else (1, 2, 3):  # a single-stage class cannot be given two stages
                assert (problem(name, p, m, v) is None) == torch_accepts(torch_schedules, name, p, m, v), (p, m, v)


@pytest.mark.parametrize("name", SCHEDULES)
def test_torch_reads_our_text_and_runs_it(torch_schedules, name, tmp_path):
    """Also the two schedules that PyTorch has no class for run from their text."""
    ours = generate(name, 4, default_microbatches(name, 4))
    (tmp_path / "order.csv").write_text(ours.to_text())
    for rank in range(4):
        ran: list[Action] = []
        runtime = torch_schedules._PipelineScheduleRuntime(
            torch_stages(ours.placement, rank, ran), ours.num_microbatches
        )
        runtime._load_csv(str(tmp_path / "order.csv"))
        runtime._initialize_stages = lambda *_, **__: None
        runtime._step_microbatches()
        assert tuple(ran) == ours.orders[rank]
    runtime._dump_csv(str(tmp_path / "theirs.csv"), format="compute_only")
    assert Schedule.from_text((tmp_path / "theirs.csv").read_text(), name=name) == ours


@pytest.mark.parametrize("name", ["interleaved_1f1b", "zbv", "dualpipev"])
def test_we_read_torchs_text(torch_schedules, name, tmp_path):
    ours = generate(name, 4, 8)
    make = torch_schedules.get_schedule_class(SCHEDULES[name].torch_name)
    make(torch_stages(ours.placement, 0, []), 8)._dump_csv(str(tmp_path / "order.csv"), format="compute_only")
    assert Schedule.from_text((tmp_path / "order.csv").read_text(), name=name) == ours


def test_action_text_is_torchs(torch_schedules):
    for action in (Action(12, kind, 345) for kind in Kind):
        theirs = torch_schedules._Action.from_str(str(action))
        assert (theirs.stage_index, theirs.computation_type.value, theirs.microbatch_index) == action
        assert repr(theirs) == str(action)
    pair = Overlap(Action(0, F, 4), Action(7, B, 1))
    assert repr(torch_schedules._Action.from_str(str(pair))) == str(pair)


# --- against the papers ----------------------------------------------------------------------------------------------

TABLE = REPO.parent / "shared" / "facts" / "zerobubble_tables_4_5_9_two_models.csv"


@pytest.mark.skipif(not TABLE.exists(), reason=f"the published table is not at {TABLE}")
@pytest.mark.parametrize(("name", "column"), [("1f1b", "br_1F1B"), ("zb_h1", "br_ZB_H1"), ("zb_h2", "br_ZB_H2")])
def test_bubble_rates_of_qi_2024_to_all_printed_decimals(name, column):
    rows = list(csv.DictReader(TABLE.open()))
    assert len(rows) == 6
    for row in rows:
        durations = Durations(
            forward=float(row["T_F_ms"]),
            backward_input=float(row["T_B_ms"]),
            backward_weight=float(row["T_W_ms"]),
        )
        slots = simulate(generate(name, int(row["p"]), int(row["m"])), durations, hop=float(row["T_comm_ms"]))
        assert f"{bubble_of_span(slots):.4f}" == row[column]


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("m", [1, 2, 5, 8, 13, 32])
def test_bubble_of_gpipe_and_1f1b_in_both_definitions(p, m):
    for name in ("gpipe", "1f1b"):
        if problem(name, p, m) is None:
            slots = simulate(generate(name, p, m), Durations())
            assert bubble_fraction(slots) == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)
            assert bubble_of_ideal(slots) == pytest.approx((p - 1) / m, abs=1e-12)
            assert ideal_bubble(name, p, m) == bubble_fraction(slots)


@pytest.mark.parametrize(("p", "rounds", "v"), [(2, 1, 2), (2, 3, 3), (4, 1, 2), (4, 2, 4), (8, 2, 2), (8, 4, 3)])
def test_bubble_of_interleaved_schedules_is_divided_by_the_stages_per_rank(p, rounds, v):
    m = p * rounds
    for name in ("interleaved_1f1b", "looped_bfs"):
        slots = simulate(generate(name, p, m, v), Durations())
        assert bubble_of_ideal(slots) == pytest.approx((p - 1) / (v * m), abs=1e-12)


@pytest.mark.parametrize("durations", [Durations(), Durations(forward=10, backward_input=9, backward_weight=6)])
@pytest.mark.parametrize("p", [2, 4, 6])
def test_bubble_sizes_of_zero_bubble_schedules(p, durations):
    """Qi et al. 2024 (arXiv 2401.10241), from 2p - 1 microbatches on: (p-1)(F+B-W) for H1 and (p-1)(F+B-2W) for H2."""
    f, b, w = durations.forward, durations.backward_input, durations.backward_weight
    for m in (2 * p - 1, 3 * p):
        for name, idle in (("zb_h1", f + b - w), ("zb_h2", f + b - 2 * w)):
            rate = bubble_of_span(simulate(generate(name, p, m), durations))
            assert rate == pytest.approx((p - 1) * idle / (m * (f + b + w) + (p - 1) * idle), abs=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_zbv_leaves_no_rank_idle_if_all_parts_take_equally_long(p):
    for m in (2 * p - 1, 2 * p, 5 * p):
        assert bubble_of_span(simulate(generate("zbv", p, m), Durations())) == pytest.approx(0, abs=1e-12)
    assert p == 1 or bubble_of_span(simulate(generate("zbv", p, 2 * p), Durations(forward=2))) > 0.01


# --- worked out by hand ----------------------------------------------------------------------------------------------


def table(slots) -> list[str]:
    """Slots as "rank action start-end"."""
    return [f"{slot.rank} {slot.action} {slot.start:g}-{slot.end:g}" for slot in slots]


def test_gpipe_of_two_ranks_and_two_microbatches_by_hand():
    assert table(simulate(generate("gpipe", 2, 2), Durations())) == [
        *("0 0F0 0-1", "0 0F1 1-2", "0 0B0 5-7", "0 0B1 7-9"),
        *("1 1F0 1-2", "1 1F1 2-3", "1 1B0 3-5", "1 1B1 5-7"),
    ]


def test_a_message_between_ranks_delays_the_receiver_by_hand():
    assert table(simulate(generate("gpipe", 2, 2), Durations(), hop=0.5)) == [
        *("0 0F0 0-1", "0 0F1 1-2", "0 0B0 6-8", "0 0B1 8-10"),
        *("1 1F0 1.5-2.5", "1 1F1 2.5-3.5", "1 1B0 3.5-5.5", "1 1B1 5.5-7.5"),
    ]


def test_halves_let_the_rank_above_start_early_by_hand():
    slots = simulate(generate("zb_h1", 2, 2), Durations())
    assert table(slots) == [
        *("0 0F0 0-1", "0 0F1 1-2", "0 0I0 3-4", "0 0W0 4-5", "0 0I1 5-6", "0 0W1 6-7"),
        *("1 1F0 1-2", "1 1I0 2-3", "1 1F1 3-4", "1 1I1 4-5", "1 1W0 5-6", "1 1W1 6-7"),
    ]
    assert bubble_fraction(slots) == pytest.approx(2 / 14)  # one unit idle on either rank, of 7
    assert bubble_of_ideal(slots) == pytest.approx(1 / 6)
    assert bubble_of_span(slots) == pytest.approx(1 / 7)  # rank 0 spans 0 to 7, rank 1 only 1 to 7


def test_idle_time_counts_the_start_and_the_end_of_all_ranks_or_each_ranks_own_span_by_hand():
    slots = simulate(generate("zb_h2", 2, 3), Durations())
    assert [(slot.start, slot.end) for slot in slots if slot.action.microbatch == 2 and slot.action.kind == W] == [
        *((8, 9), (9, 10)),  # rank 0 works without a gap from 0 to 9, rank 1 from 1 to 10
    ]
    assert bubble_fraction(slots) == pytest.approx(2 / 20)
    assert bubble_of_ideal(slots) == pytest.approx(1 / 9)
    assert bubble_of_span(slots) == pytest.approx(0)


def test_stages_of_unlike_durations_and_no_message_at_the_turn_of_the_v_by_hand():
    schedule = Schedule.from_text("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0")
    assert schedule.placement == (0, 1, 1, 0)
    slow = Durations(forward=3, backward_input=2, backward_weight=1)
    slots = simulate(schedule, [Durations(), slow, Durations(), Durations()], hop=10)
    assert table(slots) == [
        *("0 0F0 0-1", "0 3F0 25-26", "0 3B0 26-28", "0 0B0 53-55"),
        *("1 1F0 11-14", "1 2F0 14-15", "1 2B0 38-40", "1 1B0 40-43"),
    ]


def test_the_results_of_an_overlapped_pair_leave_together_by_hand():
    apart = "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2"
    together = apart.replace("0F2,0B1", "(0F2;0B1)OVERLAP_F_B")
    assert table(simulate(Schedule.from_text(apart), Durations()))[-2:] == ["1 1F2 7-8", "1 1B2 8-10"]
    slots = table(simulate(Schedule.from_text(together), Durations()))
    assert slots[2:5] == ["0 0B0 4-6", "0 0F2 6-7", "0 0B1 7-9"]
    assert slots[-2:] == ["1 1F2 9-10", "1 1B2 10-12"]


def test_bubbles_of_no_work_are_zero():
    assert [bubble([]) for bubble in (bubble_fraction, bubble_of_ideal, bubble_of_span)] == [0, 0, 0]
    assert bubble_fraction(simulate(generate("gpipe", 2, 2), Durations(**dict.fromkeys(DURATION_NAMES, 0)))) == 0


def test_published_orders_by_hand():
    assert generate("1f1b", 3, 4).to_text().splitlines() == [
        "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3",
        "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3",
        "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3",
    ]
    assert generate("zb_h2", 2, 3).to_text().splitlines() == [
        "0F0,0F1,0F2,0I0,0W0,0I1,0W1,0I2,0W2",
        "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1W1,1W2",
    ]
    assert generate("naive", 2, 1).to_text() == "0F0,0B0\n1F0,1B0\n"


def test_placements_by_hand():
    assert place(2, 3, "loop") == (0, 1, 0, 1, 0, 1)
    assert place(3, 2, "v") == (0, 1, 2, 2, 1, 0)
    assert place(3, 1, "v") == place(3, 1, "loop") == (0, 1, 2)
    assert generate("zbv", 4, 8).stages_of(1) == (1, 6)
    assert generate("looped_bfs", 4, 8, 3).stages_of(1) == (1, 5, 9)


# --- rules that hold on every schedule and shape ---------------------------------------------------------------------


def expected_actions(name: str, num_stages: int, m: int) -> set[str]:
    """Which work there must be, without its order; DualPipeV chooses whole or halves by microbatch."""
    kinds = {"zb_h1": "FIW", "zb_h2": "FIW", "interleaved_zb": "FIW", "zbv": "FIW"}.get(name, "FB")
    return {f"{stage}{kind}{mb}" for stage in range(num_stages) for kind in kinds for mb in range(m)}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_complete_and_passes_the_check(name):
    for p, m, v in legal_shapes(name):
        schedule = generate(name, p, m, v)
        check(schedule)
        assert (schedule.num_ranks, schedule.num_stages, schedule.num_microbatches) == (p, p * v, m)
        work = [str(action) for order in schedule.orders for action in order]
        whole = {text.replace("I", "B") for text in work if "W" not in text} if name == "dualpipev" else set(work)
        assert whole == expected_actions(name, p * v, m)
        assert len(work) == len(set(work))
        assert any("I" in text for text in work) == SCHEDULES[name].splits_backward


def needs(action: Action, last: int) -> list[tuple[Action, ...]]:
    """What must be over before `action`: of each tuple one. Written out here once more, as an independent judge."""
    s, kind, m = action
    own_forward = [(Action(s, F, m),)]
    if kind == F:
        return [(Action(s - 1, F, m),)] if s else []
    if kind == W:
        return [(Action(s, I, m),)]
    return own_forward + ([(Action(s + 1, B, m), Action(s + 1, I, m))] if s < last else [])


def earliest_starts(schedule: Schedule, slots, hop: float) -> Iterator[tuple[float, float]]:
    """For each slot its start, and the time when its rank and all it needs are there."""
    end = {slot.action: slot.end for slot in slots}
    sent = {**end, **{pair.forward: end[pair.backward] for pair in schedule.overlapped}}
    before = {after: earlier for earlier, after in pairwise(slots) if earlier.rank == after.rank}
    for slot in slots:
        times = [before[slot].end if slot in before else 0.0]
        for one_of in needs(slot.action, schedule.num_stages - 1):
            needed = next(action for action in one_of if action in end)
            far = schedule.placement[needed.stage] != slot.rank
            times.append(sent[needed] + hop if far else end[needed])
        yield slot.start, max(times)


@pytest.mark.parametrize("name", SCHEDULES)
def test_nothing_starts_before_what_it_needs_and_nothing_waits_without_need(name):
    durations = Durations(forward=1.0, backward_input=1.25, backward_weight=0.75)
    for p, m, v in legal_shapes(name):
        schedule = generate(name, p, m, v)
        slots = simulate(schedule, durations, hop=0.125)
        assert [slot.action for slot in slots] == [action for order in schedule.orders for action in order]
        assert all(slot.end - slot.start == durations.of(slot.action.kind) for slot in slots)
        assert all(start == earliest for start, earliest in earliest_starts(schedule, slots, 0.125)), (p, m, v)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([n for n in SCHEDULES if n != "naive"]),
    st.integers(1, 6),
    st.integers(1, 20),
    st.integers(1, 4),
    st.floats(0, 3),
)
def test_any_shape_is_refused_with_a_way_out_or_runs(name, p, m, v, hop):
    trouble = problem(name, p, m, v)
    if trouble:
        with pytest.raises(ScheduleError) as caught:
            generate(name, p, m, v)
        assert str(caught.value) == trouble
        assert "choose" in trouble
        return
    schedule = generate(name, p, m, v)
    check(schedule)
    assert 0 <= bubble_fraction(simulate(schedule, Durations(), hop=hop)) < 1


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_named_way_out_is_legal(name):
    for p in (1, 2, 4, 5):
        m = default_microbatches(name, p)
        assert problem(name, p, m) is None
        assert problem(name, p, m, default_virtual(name)) is None


# --- text ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from(list(Kind)), st.integers(0, 10**6))
def test_actions_survive_text(stage, kind, microbatch):
    action = Action(stage, kind, microbatch)
    assert Action.parse(f" {action} ") == action
    assert type(Action.parse(str(action)).kind) is Kind


@pytest.mark.parametrize("text", ["", "F0", "0F", "0X1", "-1F0", "0F0 1", "2SEND_F1", "0REDUCE_GRAD", "0f0", "٣F0"])
def test_what_is_no_action_is_refused(text):
    with pytest.raises(ScheduleError, match=r"is not an action\. Write stage"):
        Action.parse(text)


@pytest.mark.parametrize(("name", "p", "m", "v"), [s for s in ALL if s[1] > 1 and s[2] in (1, 5, 8)])
def test_schedules_survive_text(name, p, m, v):
    schedule = generate(name, p, m, v)
    assert Schedule.from_text(schedule.to_text(), name=name) == schedule


def test_idle_cells_blanks_and_line_ends_are_no_work():
    assert Schedule.from_text("\n0F0,,, 0B0 \r\n ,1F0,1B0,\r\n") == Schedule.from_text("0F0,0B0\n1F0,1B0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The text holds no action. Write one row per rank"),
        ("0F0\n2F0", "stage 1 is on no rank. Number the stages from 0"),
        ("(0F0)OVERLAP_F_B", "is not an overlapped pair. Write it as"),
    ],
)
def test_text_that_is_no_schedule_is_refused(text, message):
    with pytest.raises(ScheduleError, match=message):
        Schedule.from_text(text)


def test_the_grid_in_the_docstring_is_the_real_one():
    grid = schedule_grid(generate("1f1b", 2, 3))
    assert grid.splitlines() == [line.strip() for line in schedule_grid.__doc__.splitlines()[4:7]]
    assert schedule_grid(generate("1f1b", 2, 9), num_columns=4).splitlines()[2] == "rank 1   .  1F0 1B0 1F1 ..."


def test_a_schedule_prints_short():
    assert repr(generate("zbv", 4, 8)) == "Schedule('zbv', 4 ranks, 8 stages, 8 microbatches)"


# --- refusing --------------------------------------------------------------------------------------------------------


def refusal(text: str, **fields) -> str:
    with pytest.raises(ScheduleError) as caught:
        check(Schedule.from_text(text, **fields))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "guilty", "why"),
    [
        ("0F0,0B0\n1F0,1F0,1B0", "rank 1, step 1 (1F0)", "it runs twice"),
        ("0F0,0F1,0B0,0B1\n1F0,1B0,1B1,1F1", "rank 1, step 2 (1B1)", "it needs 1F1 first"),
        ("0F0,0I0,0W0\n1F0,1W0,1I0", "rank 1, step 1 (1W0)", "it needs 1I0 first"),
        ("0I0,0F0,0W0", "rank 0, step 0 (0I0)", "it needs 0F0 first"),
        ("0F0,0B0,0I0,0W0", "rank 0, step 2 (0I0)", "a half of the backward beside 0B0"),
        ("0F0,0I0,0B0,0W0", "rank 0, step 2 (0B0)", "a full backward beside 0I0"),
        ("0F0,0B0,0W0", "rank 0, step 2 (0W0)", "a half of the backward beside 0B0"),
        ("0F0,0I0,1F0\n1I0,0W0,1W0", "rank 1, step 0 (1I0)", "stage 1 lives on rank 0: move it there"),
        ("0F0,0B0\n1F0", "rank 1, step 1 (its end)", "1B0 (or 1I0 and 1W0) is missing"),
        ("0F0,0B0\n1F0,1I0", "rank 1, step 2 (its end)", "1W0 is missing"),
        ("0F0,0B0\n1F0,1B0,1F1,1B1", "rank 0, step 2 (its end)", "0F1 is missing"),
    ],
)
def test_an_illegal_order_is_refused_with_the_guilty_row_marked(text, guilty, why):
    message = refusal(text)
    assert f"{guilty}: {why}" in message
    rank, rows = int(guilty.split()[1].rstrip(",")), message.splitlines()
    assert [line.split("  ")[0] for line in rows if "<--" in line] == [f"rank {rank}"]


def test_the_message_of_an_illegal_order_in_full():
    assert refusal("0F0,0F1,0B0,0B1\n1F0,1B0,1B1,1F1", name="mine").splitlines() == [
        "Schedule 'mine', rank 1, step 2 (1B1): it needs 1F1 first, on the same stage.",
        "",
        "step     0   1   2   3",
        "rank 0  0F0 0F1 0B0 0B1",
        "rank 1  1F0 1B0 1B1 1F1   <-- step 2: 1B1",
    ]


def test_stages_and_microbatches_that_are_not_there_are_refused():
    legal = generate("gpipe", 2, 2)
    fewer = Schedule("fewer", 1, legal.placement, legal.orders)
    with pytest.raises(ScheduleError, match=r"rank 0, step 1 \(0F1\): there is no microbatch 1: the .* are 0 to 0"):
        check(fewer)
    assert "there is no stage 1: the stages are 0 to 0" in refusal("0F0,0B0\n1F0,1B0", placement=(0,))


@pytest.mark.parametrize("pair", ["(0F1;0F0)", "(0B0;0F1)", "(0F1;0W0)"])
def test_a_pair_that_is_not_forward_then_backward_is_refused(pair):
    forward, backward = map(Action.parse, pair.strip("()").split(";"))
    order = (Action(0, F, 0), Action(0, I, 0), Action(0, F, 1), Action(0, W, 0), Action(0, B, 1))
    schedule = Schedule("pairs", 2, (0,), (order,), frozenset([Overlap(forward, backward)]))
    legal = pair == "(0F1;0W0)"  # neighbours, but nobody waits for W: not what a pair is for
    assert legal == ((forward, backward) in set(pairwise(order)))
    with pytest.raises(ScheduleError, match="needs a forward and, right after it on the same rank, a backward"):
        check(schedule)


def test_a_deadlock_is_found_and_shown_in_full():
    text = "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1"
    message = refusal(text)
    assert message.splitlines() == [
        "Schedule 'custom' stops: ranks 0, 1 wait for ever. Follow the arrows from rank to rank, and move an action "
        "that others wait for ahead of one that waits.",
        "",
        "time     0   1",
        "rank 0  0F0  .   <-- next 0B0, waits for 1B0 of rank 1",
        "rank 1   .  1F0   <-- next 1F1, waits for 0F1 of rank 0",
    ]
    with pytest.raises(ScheduleError) as caught:
        simulate(Schedule.from_text(text), Durations())
    assert str(caught.value) == message


@pytest.mark.parametrize(("text", "waits"), [("0B0,0F0", "next 0B0, waits for 0F0"), ("0F0,0W0,0I0", "next 0W0")])
def test_an_order_that_was_never_checked_does_not_get_times(text, waits):
    with pytest.raises(ScheduleError, match=waits):
        simulate(Schedule.from_text(text), Durations())


def test_a_deadlock_by_overlapping_says_so():
    message = refusal("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1")
    assert "next 1F1, waits for 0F1 of rank 0, which leaves only with the backward of its pair" in message
    check(Schedule.from_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1"))


def can_run(schedule: Schedule) -> bool:
    """Whether all ranks get to their end, by trying every rank's next action over and over."""
    todo, done, last = [list(order) for order in schedule.orders], set(), schedule.num_stages - 1
    held = {pair.forward: pair.backward for pair in schedule.overlapped}
    progress = True
    while progress:
        progress = False
        for rank, order in enumerate(todo):
            while order and all(
                any(a in done and (held.get(a, a) in done or schedule.placement[a.stage] == rank) for a in one_of)
                for one_of in needs(order[0], last)
            ):
                done.add(order.pop(0))
                progress = True
    return not any(todo)


def test_shuffled_orders_pass_exactly_if_they_can_run():
    rng, verdicts = random.Random(0), []
    for name, p, m, v in [s for s in ALL if 1 < s[1] < 5 and s[2] < 9] * 3:
        schedule = generate(name, p, m, v)
        orders = [list(order) for order in schedule.orders]
        for _ in range(rng.choice((1, 2, 6))):
            order = rng.choice(orders)
            i = rng.randrange(len(order))
            j = min(i + rng.choice((1, 2, 5)), len(order) - 1)
            order[i], order[j] = order[j], order[i]
        shuffled = Schedule(name, m, schedule.placement, tuple(map(tuple, orders)))
        try:
            check(shuffled)
        except ScheduleError:
            assert not can_run(shuffled), shuffled.to_text()
            verdicts.append(False)
        else:
            assert can_run(shuffled), shuffled.to_text()
            assert len(simulate(shuffled, Durations())) == sum(map(len, orders))
            verdicts.append(True)
    assert 50 < sum(verdicts) < len(verdicts) - 50  # both answers are put to the test


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("1fb1", 2, 2), "There is no schedule '1fb1'. Did you mean '1f1b'? The schedules are 1f1b, dualpipev"),
        (("GPipe", 2, 2), "Did you mean 'gpipe'?"),
        (("ZBVZeroBubble", 2, 2), "Did you mean 'zbv'?"),
        (("xyz", 2, 2), "There is no schedule 'xyz'. The schedules are"),
        (("1f1b", 4, 2), "1f1b needs at least as many microbatches as ranks, not 2 microbatches on 4 ranks: "),
        (("1f1b", 4, 2), "choose 4 microbatches, or 2 ranks."),
        (("1f1b", 2, 1), "not 1 microbatch on 2 ranks: choose 2 microbatches, or 1 rank."),
        (("interleaved_1f1b", 4, 9), "not 9 microbatches on 4 ranks: choose 8 or 10 microbatches, or 3 ranks."),
        (("dualpipev", 4, 7), "choose 8 microbatches, or 3 ranks."),
        (("naive", 2, 4), "naive needs the whole batch as one microbatch, not 4 microbatches on 2 ranks: choose 1 mic"),
        (("naive", 2, 10**15), "choose 1 microbatch."),
        (("zbv", 2, 4, 3), "zbv needs exactly 2 stages per rank, not 3: choose virtual 2."),
        (("gpipe", 2, 4, 2), "choose virtual 1, or a schedule for any number of stages per rank: interleaved_1f1b"),
        (("gpipe", 0, 4), "gpipe: 0 ranks: give a whole number, 1 or more."),
        (("gpipe", 2, 1.5), "gpipe: 1.5 microbatches: give a whole number"),
        (("looped_bfs", 2, 2, True), "looped_bfs: True stages per rank (virtual): give a whole number"),
    ],
)
def test_a_shape_that_does_not_fit_is_answered_with_the_way_out(asked, message):
    assert message in problem(*asked)
    with pytest.raises(ScheduleError):
        generate(*asked)


DURATION_NAMES = ("forward", "backward_input", "backward_weight")


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_what_is_no_duration_is_refused(value):
    for name in DURATION_NAMES:
        with pytest.raises(ValueError, match=f"{name}=.* is no duration"):
            Durations(**{name: value})
    with pytest.raises(ValueError, match=r"hop=.* is no duration"):
        simulate(generate("gpipe", 2, 2), Durations(), hop=value)


def test_durations_must_be_one_or_one_for_each_stage():
    with pytest.raises(ValueError, match="3 durations for 2 stages: give one for each stage, or one for all"):
        simulate(generate("gpipe", 2, 2), [Durations()] * 3)


# --- the package -----------------------------------------------------------------------------------------------------


def test_a_new_schedule_is_one_function(monkeypatch):
    monkeypatch.setattr(labkit.schedule.registry, "SCHEDULES", dict(SCHEDULES))

    @pipeline_schedule(
        "one_at_a_time",
        summary="Each microbatch forward and back before the next.",
        source="this test",
        accepts=lambda shape: shape.num_microbatches % 2 == 0,
        rule="an even number of microbatches",
    )
    def one_at_a_time(rank, shape):
        for microbatch in range(shape.num_microbatches):
            yield Action(rank, F, microbatch)
            yield Action(rank, B, microbatch)

    schedule = generate("one_at_a_time", 3, 4)
    check(schedule)
    assert bubble_fraction(simulate(schedule, Durations())) == pytest.approx(2 / 3)
    assert problem("one_at_a_time", 3, 5).endswith(
        "needs an even number of microbatches, not 5 microbatches on 3 ranks: choose 4 or 6 microbatches."
    )
    assert "one_at_a_time" not in SCHEDULES


def test_a_schedule_of_the_same_name_made_anew_is_not_the_old_one(monkeypatch):
    """Schedules are kept, since they are frozen; but by what makes them, not by their name."""
    monkeypatch.setattr(labkit.schedule.registry, "SCHEDULES", dict(SCHEDULES))
    assert generate("gpipe", 2, 3) is generate("gpipe", 2, 3)
    for kinds in ((F, B), (F, I, W)):

        @pipeline_schedule("mine", summary="Each microbatch forward and back.", source="this test")
        def mine(rank, shape, kinds=kinds):
            return [Action(rank, kind, m) for m in range(shape.num_microbatches) for kind in kinds]

        assert {action.kind for action in generate("mine", 2, 2).orders[0]} == set(kinds)


def test_slots_are_a_list_and_two_columns():
    slots = simulate(generate("gpipe", 2, 2), Durations())
    assert len(slots) == 8
    assert slots[-1] == (1, Action(1, B, 1), 5.0, 7.0)
    assert [slot.action for slot in slots[:2]] == [Action(0, F, 0), Action(0, F, 1)]
    assert slots.ends.tolist() == [slot.end for slot in slots]
    assert bubble_fraction(slots) == bubble_fraction(list(slots))
    assert bubble_of_span(slots) == bubble_of_span(list(slots))


def test_a_microbatch_below_0_is_refused():
    with pytest.raises(ScheduleError, match="there is no microbatch -1"):
        check(Schedule("custom", 1, (0,), ((Action(0, F, -1), Action(0, B, -1)),)))


def test_schedules_need_neither_torch_nor_tables():
    code = "import sys, labkit.schedule; print({'torch', 'numpy', 'polars'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "set()"


def test_the_list_of_public_names_is_true():
    names = labkit.schedule.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert all(getattr(labkit.schedule, name).__doc__ for name in names)
    assert all(spec.summary and spec.source and "\n" not in spec.summary for spec in SCHEDULES.values())


def test_a_large_schedule_is_simulated_at_once():
    """65 536 actions take 0.07 s here. The limit only has to tell a loop over actions from a poll over ranks."""
    schedule, took = generate("1f1b", 64, 512), []
    for _ in range(3):
        start = time.perf_counter()
        slots = simulate(schedule, Durations())
        took.append(time.perf_counter() - start)
    assert len(slots) == 2 * 64 * 512
    assert bubble_fraction(slots) == pytest.approx(63 / 575)
    assert min(took) < 0.5
