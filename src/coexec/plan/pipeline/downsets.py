"""The ways through a workload: sets of kernels that can be over together, and which of them follow which.

Before: plan/pipeline/workload.py.  After: plan/pipeline/tables.py.  Knows what comes before what, and nothing of devices.

A pipeline is a rising sequence of down-sets: with a kernel, everything it waits for. For a chain these are its beginnings.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .workload import StreamWork

MOST = 10_000
"""Down-sets that are searched; beyond, some orders of the kernels are tried instead."""
MOST_STEPS = 400_000
"""Pairs of down-sets, one within the other: each is a possible stage. As above; a few seconds of work."""
ORDERS = 12
"""Orders that are tried then: one by depth, one by breadth, one that keeps the cuts small, the rest by chance."""


@dataclass(frozen=True)
class DownSets:
    """Sets of finished kernels, as bits, the smaller first; and for each the positions of those it may follow."""

    sets: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    order: tuple[int, ...] | None = None  # if only one order of the kernels is looked at


def ways_through(workload: StreamWork, seed: int = 0) -> tuple[list[DownSets], bool]:
    """Return what to search, and whether that is every order of the kernels."""
    found = _all(workload)
    if found is not None:
        return [found], True
    return [_along(order) for order in orders(workload, seed)], False


def _all(workload: StreamWork) -> DownSets | None:
    """Return all down-sets, or None if they are too many."""
    level, found = {0}, [0]
    while level:
        level = {grown for mask in level for grown in _grown(workload, mask)}
        found += sorted(level)
        if len(found) > MOST:
            return None
    member = membership(found, len(workload.kernels))
    before: list[tuple[int, ...]] = []
    steps = 0
    for i in range(len(found)):
        inside = np.flatnonzero(member[:i] @ (1.0 - member[i]) == 0.0) if i else np.empty(0, int)
        steps += len(inside)
        if steps > MOST_STEPS:
            return None
        before.append(tuple(inside.tolist()))
    return DownSets(tuple(found), tuple(before))


def membership(sets: Sequence[int], kernels: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return which kernel is in which set: a row per set, 1 or 0 per kernel."""
    size = -(-kernels // 8)
    raw = np.frombuffer(b"".join(mask.to_bytes(size, "little") for mask in sets), np.uint8).reshape(len(sets), size)
    return np.unpackbits(raw, axis=1, bitorder="little")[:, :kernels].astype(np.float32)


def _grown(workload: StreamWork, mask: int) -> Iterator[int]:
    for i, before in enumerate(workload.after):
        if not mask >> i & 1 and not before & ~mask:
            yield mask | 1 << i


def _along(order: tuple[int, ...]) -> DownSets:
    """Return the beginnings of one order."""
    sets = [0]
    for kernel in order:
        sets.append(sets[-1] | 1 << kernel)
    return DownSets(tuple(sets), tuple(tuple(range(i)) for i in range(len(sets))), order)


def orders(workload: StreamWork, seed: int = 0) -> list[tuple[int, ...]]:
    """Return some orders in which the kernels may run, none twice."""
    draw = random.Random(seed)
    chosen = [
        _order(workload, lambda ready, _: ready[-1]),
        _order(workload, lambda ready, _: ready[0]),
        _order(workload, lambda ready, done: min(ready, key=lambda i: workload.alive(done | 1 << i))),
    ]
    chosen += [_order(workload, lambda ready, _: draw.choice(ready)) for _ in range(ORDERS - len(chosen))]
    return list(dict.fromkeys(chosen))


def _order(workload: StreamWork, choose: Callable[[list[int], int], int]) -> tuple[int, ...]:
    done, ready, found = 0, list[int](), list[int]()
    waiting = list(range(len(workload.kernels)))
    while len(found) < len(workload.kernels):
        newly = [i for i in waiting if not workload.after[i] & ~done]
        waiting = [i for i in waiting if i not in newly]
        ready += newly
        kernel = choose(ready, done)
        ready.remove(kernel)
        found.append(kernel)
        done |= 1 << kernel
    return tuple(found)
