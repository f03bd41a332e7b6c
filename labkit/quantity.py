"""Times, sizes and rates as people write them: "10ms", "1.5 us", "100MB/s", "200Gb/s", "16KiB"."""

import math
import re

_TIME_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_PREFIX = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_NUMBER_UNIT = re.compile(r"\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([^\s]*)\s*")


def seconds(text: str | float) -> float:
    """A duration in seconds. A bare number is seconds already."""
    number, unit = _split(text, "a time such as 10ms, 250us or 1.5s")
    if unit not in ("", *_TIME_S):
        raise ValueError(f"{text!r} is not a time: the unit {unit!r} is none of {', '.join(_TIME_S)}; write e.g. 10ms")
    return _finite(number * _TIME_S.get(unit, 1.0), text)


def bytes_per_second(text: str | float) -> float:
    """A rate in bytes per second. "GB/s" counts bytes, "Gb/s" bits. A bare number is bytes per second already."""
    number, unit = _split(text, "a rate such as 100MB/s or 200Gb/s")
    if not unit:
        return _finite(number, text)
    match = re.fullmatch(r"([kKMGT]?i?)([bB])(?:/s|ps)", unit)
    if match is None or match[1] not in _PREFIX:
        raise ValueError(f"{text!r} is not a rate: write e.g. 100MB/s (bytes) or 200Gb/s (bits)")
    return _finite(number * _PREFIX[match[1]] / (8 if match[2] == "b" else 1), text)


def num_bytes(text: str | int) -> int:
    """A size in bytes. A bare number is bytes already."""
    number, unit = _split(text, "a size such as 16KiB or 25MB")
    prefix = unit.removesuffix("B")
    if prefix not in _PREFIX or (unit and not unit.endswith("B")):
        raise ValueError(f"{text!r} is not a size: write e.g. 16KiB, 25MB or 1GB")
    return int(_finite(number * _PREFIX[prefix], text))


def _split(text: str | float, wanted: str) -> tuple[float, str]:
    match = _NUMBER_UNIT.fullmatch(str(text))
    try:
        return (float(match[1]), match[2]) if match else (float(text), "")
    except ValueError:
        raise ValueError(f"{text!r} is not {wanted}") from None


def _finite(number: float, text: str | float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a finite number")
    return number
