"""Collects the figures of all bench tests, prints them, and writes them when the session ends."""

import pytest
from figures import Figure, keep


@pytest.fixture(scope="session")
def _figures():
    found: list[Figure] = []
    yield found
    if found:
        keep(found)


@pytest.fixture
def figure(request, _figures, capsys):
    """`figure(what, ours=.., peer=.., ratio=.., spread=.., goal=..)` keeps one row."""

    def add(what: str, *, ours: str, peer: str = "-", ratio: str = "-", spread: str = "-", goal: str = "-") -> None:
        part = request.path.stem.removeprefix("test_")
        _figures.append(Figure(part, what, ours, peer, ratio, spread, goal))
        with capsys.disabled():
            print(f"\n{what}: ours {ours}, peer {peer}, ratio {ratio} ({spread}), goal {goal}")

    return add
