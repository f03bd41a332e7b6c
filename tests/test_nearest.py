"""What is offered in place of a plan that cannot run."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.nearest import CANDIDATES, nearest_legal
from labkit.plan import Plan, PlanError


@pytest.mark.parametrize(
    ("values", "keep", "changes"),
    [
        ({"pp": 4, "layers": 8, "global_batch": 30, "microbatches": 8}, set(), {"global_batch": 32}),
        ({"pp": 3, "layers": 8, "global_batch": 36}, {"pp"}, {"layers": 9}),
        ({"tp": 3, "width": 64}, {"width"}, {"tp": 4}),
        ({"zero": 2}, {"zero"}, {"dp": 2}),
        ({"pp": 4, "dp": 8}, {"pp"}, {"dp": 4}),
    ],
)
def test_the_nearest_by_hand(values, keep, changes):
    with pytest.raises(PlanError):
        Plan(**values)
    assert nearest_legal(values, frozenset(keep)).changes == changes


def test_a_legal_plan_is_its_own_nearest():
    assert nearest_legal({"pp": 2, "dp": 2}).changes == {}


def test_nothing_is_offered_where_nothing_helps():
    assert nearest_legal({"lr": -1.0}) is None
    assert nearest_legal({"task": "nonsense"}) is None


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            name: st.sampled_from(CANDIDATES[name])
            for name in ("layers", "global_batch", "microbatches", "dp", "tp", "pp")
        }
    )
)
def test_no_single_change_is_nearer(values):
    """What is offered runs; and where one field changed, no smaller change of that field would have done."""
    try:
        Plan(**values)
        return
    except PlanError:
        found = nearest_legal(values)
    if found is None:
        return
    assert found.plan == Plan(**{**values, **found.changes})
    if len(found.changes) == 1:
        ((name, new),) = found.changes.items()
        old = values.get(name, getattr(Plan(), name))
        if isinstance(new, int) and isinstance(old, int) and new and old and not isinstance(new, bool):
            nearer = [v for v in CANDIDATES[name] if v and abs(math.log2(v / old)) < abs(math.log2(new / old)) - 1e-9]
            for value in nearer:
                with pytest.raises(PlanError):
                    Plan(**{**values, name: value})
