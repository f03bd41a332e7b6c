"""Engine tests start processes. Every test here is marked so, and a failed one leaves none behind."""

from pathlib import Path

import pytest

import labkit

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session", autouse=True)
def _stop_ranks():
    yield
    labkit.close()
