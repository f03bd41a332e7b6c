"""The fixture that collects a test's figures, prints them, and keeps them when the test is over."""

import pytest
from figures import Figure, keep


@pytest.fixture
def figure(request, capsys):
    """`figure(what, ours=.., peer=.., ratio=.., spread=.., goal=.., points=..)` keeps one row."""
    found: list[Figure] = []
    part = f"{request.path.stem.removeprefix('test_')}::{request.node.name}"

    def add(
        what: str, *, ours: str, peer: str = "-", ratio: str = "-", spread: str = "-", goal: str = "-",
        points: tuple[tuple[float, float], ...] = (),
    ) -> None:  # fmt: skip
        found.append(Figure(part, what, ours, peer, ratio, spread, goal, points))
        with capsys.disabled():
            print(f"\n{what}: ours {ours}, peer {peer}, ratio {ratio} ({spread}), goal {goal}")

    yield add
    if found:
        keep(found)
