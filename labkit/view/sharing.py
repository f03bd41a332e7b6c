"""A form's values as a short text, for a link: "dp=2;pp=2;paced=off". What is not said is as the form opens.

In: groups of fields, and values or a text. Out: the other one. A text comes from anywhere: its length, names and values
are checked.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from labkit.view.fields import Field, Group, start_values

MAX_CHARACTERS = 1000


def shared_text(groups: Sequence[Group], values: Mapping[str, Any]) -> str:
    """The values that differ from those the form opens with."""
    opening = start_values(groups)
    return ";".join(f"{name}={_word(values[name])}" for name in opening if values.get(name) != opening[name])


def values_of(groups: Sequence[Group], text: str) -> dict[str, Any]:
    """The form's values that a text stands for. Raises ValueError for one that is no such text."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"the shared plan has {len(text):,} characters: at most {MAX_CHARACTERS} are read")
    fields = {one.name: one for group in groups for one in group.fields}
    values = start_values(groups)
    for part in filter(None, text.split(";")):
        name, equals, word = part.partition("=")
        if not equals or name not in fields:
            raise ValueError(
                f"the shared plan says {part[:40]!r}: it must be name=value, with one of {', '.join(fields)}"
            )
        values[name] = _value(fields[name], word)
    return values


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)


def _value(field: Field, word: str) -> Any:
    if field.kind == "switch":
        known = {"on": True, "off": False}
    elif field.kind == "number":
        return _number(field, word)
    else:
        known = {_word(value): value for value, _ in field.choices}
    if word not in known:
        raise ValueError(f"the shared plan says {field.name}={word[:40]!r}: known are {', '.join(known)}")
    return known[word]


def _number(field: Field, word: str) -> int | float | None:
    if not word and field.value is None:
        return None
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    low, high = -math.inf if field.low is None else field.low, math.inf if field.high is None else field.high
    if not (math.isfinite(number) and low <= number <= high):
        raise ValueError(f"the shared plan says {field.name}={word[:40]!r}: give a number from {low:g} to {high:g}")
    return int(number) if number.is_integer() else number
