"""A plan as text: there and back for every form, and nothing else is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from labkit.view.fields import Field, form_groups, start_values
from labkit.view.sharing import MAX_CHARACTERS, shared_text, values_of

GROUPS = form_groups()
FIELDS = [one for group in GROUPS for one in group.fields]


def value_of(field: Field) -> some.SearchStrategy:
    if field.kind == "switch":
        return some.booleans()
    if field.kind == "choice":
        return some.sampled_from([value for value, _ in field.choices])
    numbers = some.integers(-(-field.low // 1), 10**6 if field.high is None else int(field.high))
    return numbers if field.value is not None else some.none() | numbers


@given(some.fixed_dictionaries({field.name: value_of(field) for field in FIELDS}))
def test_there_and_back(values):
    assert values_of(GROUPS, shared_text(GROUPS, values)) == values


def test_what_is_as_the_form_opens_is_not_said():
    assert shared_text(GROUPS, start_values(GROUPS)) == ""
    assert values_of(GROUPS, "") == start_values(GROUPS)
    assert shared_text(GROUPS, start_values(GROUPS) | {"dp": 2, "paced": False}) == "dp=2;paced=off"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dp=5", "dp='5': known are 1, 2, 3"),
        ("layers=0", "layers='0': give a number from 1 to 64"),
        ("layers=1e999", "give a number from 1 to 64"),
        ("layers=nan", "give a number from 1 to 64"),
        ("layers=", "give a number"),
        ("paced=maybe", "known are on, off"),
        ("task=own", "task='own'"),
        ("__class__=x", "one of task, layers"),
        ("dp", "it must be name=value"),
        ("dp=2;" * MAX_CHARACTERS, "at most 1000 are read"),
    ],
)
def test_other_texts_are_refused_with_the_way_out(text, told):
    with pytest.raises(ValueError) as refused:
        values_of(GROUPS, text)
    assert told in str(refused.value) and len(str(refused.value)) < 500
