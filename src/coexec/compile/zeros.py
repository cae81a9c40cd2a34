"""Which zero is the extreme of a row: of -0.0 and 0.0, which are equal, NumPy's vectors decide for one.

Before: nothing.  After: compile/opencl_points.py, ops/reduction_source.py.  Asks NumPy once; the text is C's.

NumPy takes a row's first element into all lanes of a vector, then vectors of further elements, of equal ones the later. Then it
joins the lanes, in an order that depends on the processor, and takes what is left element by element. So each element has a rank,
and of all zeros the one of the highest rank is the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from .refused import Untraceable

MOST = 16
"""Lanes of a vector; the text has four bits for each."""
_TRIED = 129  # elements of a row whose zeros are made negative one by one: some vectors after the first element, nothing left
_LENGTHS = (1, 2, 3, 5, 9, 16, 17, 18, 31, 33, 40, 64, 65, 66, 129, 140, 257, 300, 1000)

Array = np.ndarray[Any, Any]


@cache
def lanes_of_extreme(name: str, dtype: str) -> tuple[int, ...]:
    """Return the lanes of NumPy's "maximum" or "minimum" of a row, the one whose zeros give way first; one if it has no vectors.

    Raise `Untraceable` if zeros of random rows say otherwise.
    """
    function: np.ufunc = getattr(np, name)
    row = np.zeros((_TRIED, _TRIED), dtype)
    np.fill_diagonal(row, -0.0)
    worse = -1.0 if name == "maximum" else 1.0
    winners = []
    for _ in range(_TRIED):
        found = np.flatnonzero(np.signbit(function.reduce(row, axis=1)))
        if len(found) != 1:
            break
        winners.append(int(found[0]))
        row[:, winners[-1]] = worse
    apart = winners[0] - winners[1] if len(winners) == _TRIED else 0
    lanes = tuple(dict.fromkeys((place - 1) % apart for place in winners if place))[::-1] if apart > 0 else ()
    if not 0 < len(lanes) <= MOST or not _holds(function, np.dtype(dtype), lanes):
        raise Untraceable(f"which zero is the {name} of a row is a secret of this NumPy")
    return lanes


def _holds(function: np.ufunc, dtype: np.dtype[Any], lanes: tuple[int, ...]) -> bool:
    """Tell whether ranks by these lanes say which zero of random rows is the answer."""
    rng = np.random.default_rng(0)
    worse = -1.0 if function is np.maximum else 1.0
    for length in _LENGTHS:
        rows = rng.choice(np.array([0.0, -0.0, worse], dtype), (50, length))
        rows[:, rng.integers(length)] = -0.0
        ranks = np.where(rows == 0, [_rank(place, length, lanes) for place in range(length)], -1)
        wanted = np.take_along_axis(rows, ranks.argmax(axis=1)[:, None], 1)[:, 0]
        if not np.array_equal(np.signbit(wanted), np.signbit(function.reduce(rows, axis=1))):
            return False
    return True


def _rank(place: int, length: int, lanes: tuple[int, ...]) -> int:
    """Return the rank of an element of a row."""
    end = 1 + (length - 1) // len(lanes) * len(lanes)
    if place >= end:
        return len(lanes) * length + place
    lane = lanes.index((place - 1) % len(lanes)) if place else len(lanes) - 1
    return lane * length + place


def zero_text(lanes: tuple[int, ...], own: str, place: str, count: str, value: str, total: str) -> Iterator[str]:
    """Yield what a loop over a row does with each element for `total`, which equals zero, to become NumPy's zero.

    `{own}_best` is to be -1 before the loop.
    """
    width = len(lanes)
    ranks = sum(rank << 4 * lane for rank, lane in enumerate(lanes))
    lane = f"({place} == 0 ? {width - 1}L : (long)(({hex(ranks)}UL >> (4 * (({place} - 1) % {width}))) & 15))"
    beyond = f"{place} > ({count} - 1) / {width} * {width}"
    yield f"const long {own}_rank = ({beyond} ? {width}L : {lane}) * {count} + {place};"
    yield f"if ({value} == 0 && {own}_rank > {own}_best) {{ {own}_best = {own}_rank; {total} = {value}; }}"
