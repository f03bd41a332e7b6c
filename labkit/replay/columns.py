"""Arithmetic on columns of whole numbers, as replay needs it: keys of several columns, order by several columns.

A trace has a row for every sync, so these run on hundreds of thousands of numbers; polars' joins and sorts of whole
tables would take most of a replay.
"""

from __future__ import annotations

import numpy as np
import polars as pl

Ints = np.ndarray


def ints(frame: pl.DataFrame, *names: str) -> dict[str, Ints]:
    """Columns as 64-bit numbers, -1 for null; of a text, a number that is equal for equal texts."""
    dtypes = frame.schema
    found = frame.select(
        pl.col(name).hash().reinterpret(signed=True)
        if dtypes[name] == pl.String
        else pl.col(name).cast(pl.Int64).fill_null(-1)
        for name in names
    )
    return {name: found[name].to_numpy() for name in names}


def text_code(text: str) -> int:
    """The number that `ints` gives for a text."""
    return int(pl.Series([text]).hash().reinterpret(signed=True)[0])


def mixed(*columns: Ints) -> Ints:
    """One number for equal rows of the columns (64 bits, so different rows differ)."""
    key = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        key = (key ^ column.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key.view(np.int64)


def order_by(*columns: Ints) -> Ints:
    """Places in the order of the columns (numbers from 0), of which the first counts most; equal ones keep theirs.

    Packed into one number together with their place, which numpy sorts ten times as fast as it sorts places by a key.
    """
    num = len(columns[0])
    bits = [int(column.max(initial=0)).bit_length() for column in (*columns, np.array([num]))]
    if sum(bits) > 63:
        return np.lexsort(columns[::-1])
    key = np.zeros(num, np.int64)
    for column, width in zip(columns, bits):
        key = (key << width) | column
    key = (key << bits[-1]) | np.arange(num)
    return np.sort(key) & ((1 << bits[-1]) - 1)


def first_of_equal(keys: Ints) -> Ints:
    """For each key, whether it is the first in its run: keys come sorted, or at least equal ones together."""
    return np.concatenate([np.ones(min(1, len(keys)), bool), keys[1:] != keys[:-1]])


def occurrence(keys: Ints) -> Ints:
    """0 for the first of equal keys, 1 for the second ..."""
    found = np.zeros(len(keys), np.int64)
    if first_of_equal(np.sort(keys)).all():  # np.unique would hash, which takes longer
        return found
    order = np.argsort(keys, kind="stable")
    place = np.arange(len(keys))
    found[order] = place - np.maximum.accumulate(np.where(first_of_equal(keys[order]), place, 0))
    return found


def find(keys: Ints, among: Ints) -> Ints:
    """For each key, the place of the first one like it among others; -1 where there is none."""
    if not len(among):
        return np.full(len(keys), -1)
    order = np.argsort(among)
    if not first_of_equal(among[order]).all():
        order = np.argsort(among, kind="stable")  # which takes twice as long
    by_key, place = np.argsort(keys), np.empty(len(keys), np.int64)
    place[by_key] = np.searchsorted(among[order], keys[by_key])  # keys in order are found three times as fast
    found = order[np.minimum(place, len(among) - 1)]
    return np.where(among[found] == keys, found, -1)


def next_of(keys: Ints, times: Ints, of_keys: Ints, of_times: Ints) -> Ints:
    """For each (key, time), the place of the first of others with that key and a time not before; -1 for none."""
    num = len(times)
    codes = np.unique(np.concatenate([keys, of_keys]), return_inverse=True)[1]
    other = np.repeat([0, 1], [num, len(of_times)])  # at equal times the one that asks comes first
    order = order_by(codes, np.concatenate([times, of_times]), other)
    place = np.where(other[order] == 1, np.arange(len(order)), len(order))
    place = np.minimum.accumulate(place[::-1])[::-1]
    there = order[np.minimum(place, len(order) - 1)]
    same = (place < len(order)) & (codes[there] == codes[order])
    found = np.empty(len(order), np.int64)
    found[order] = np.where(same, there - num, -1)
    return found[:num]
