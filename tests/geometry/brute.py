"""Boxes to draw, and the slow truth about them: boolean masks.

Before: geometry/.  After: the tests beside it.  Knows nothing of how geometry/ computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from coexec.geometry import Box, whole

SIDE = 7
"""Masks show the points 0 <= x < SIDE per axis; drawn boxes never leave them."""
Mask = np.ndarray[Any, np.dtype[np.bool_]]
some_ndim = st.integers(0, 3)


def boxes(ndim: int, *, empty: bool = True) -> st.SearchStrategy[Box]:
    """Draw a box, possibly with edges that cross."""
    edge = st.integers(0, SIDE)
    crossed = st.tuples(edge, edge)
    sides = st.lists(
        crossed if empty else crossed.map(sorted).filter(lambda side: side[0] < side[1]), min_size=ndim, max_size=ndim
    )
    return sides.map(lambda pairs: Box(tuple([a for a, _ in pairs]), tuple([b for _, b in pairs])))


def several(count: int, *, empty: bool = True) -> st.SearchStrategy[list[Box]]:
    """Draw exactly `count` boxes of one dimension."""
    return some_ndim.flatmap(lambda ndim: st.lists(boxes(ndim, empty=empty), min_size=count, max_size=count))


def per_ndim(draw: Callable[[int], st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Draw the dimension first, then what depends on it."""
    return some_ndim.flatmap(draw)


def everything(ndim: int) -> Box:
    """Return the box of all points a mask shows."""
    return whole((SIDE,) * ndim)


def mask(ndim: int, *parts: Box) -> Mask:
    """Return which points lie in any of the boxes."""
    found = np.zeros((SIDE,) * ndim, bool)
    for part in parts:
        found[part.slices((0,) * ndim)] = True
    return found


def count(ndim: int, parts: Iterable[Box]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how many of the boxes each point lies in."""
    found = np.zeros((SIDE,) * ndim, np.int64)
    for part in parts:
        assert not part.empty
        found[part.slices((0,) * ndim)] += 1
    return found
