"""Stores in an order that can be run: old contents are kept where they are still wanted, and stores share loops.

Before: compile/trace.py.  After: compile/llvm.py, compile/opencl.py.  Pure: a list of stores in, groups of stores out.

A value is computed where it is stored, which may be later than the body computed it. So a value that reads what was
overwritten in between is stored first, into memory of its own, and so is one that reads other elements of the array
that it is written to. Stores of one shape become one loop where each element depends on its own place only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .graph import (
    Assign,
    Axes,
    Buffer,
    Expr,
    Fold,
    Gather,
    Line,
    Read,
    View,
    nodes_of,
    substituted,
    through,
    whole_axes,
)
from .host import size_key
from .refused import Untraceable

LARGEST = 32  # stores in one loop
ROUNDS = 200  # values kept apart in one body, more than any that was seen

Group = list[Assign]
Looked = tuple[Read, Axes | None]  # a read, and where it looks in terms of the loop's axes if that is known


def scheduled(stores: Sequence[Assign]) -> list[Group]:
    """Return the stores in groups that share a loop."""
    return grouped(overlaps_kept(stale_kept(list(stores))))


def kept(stores: Sequence[Assign], wanted: list[Expr], at: int) -> list[Assign]:
    """Return stores in which values are stored in memory of their own before the store number `at`, and read after."""
    known: dict[int, Expr] = {}
    made: list[Assign] = []
    taken = {store.buffer.name for store in stores}
    for node in wanted:
        number = next(n for n in range(len(taken) + 1) if f"kept{n}" not in taken)
        taken.add(f"kept{number}")
        buffer = Buffer(f"kept{number}", node.dtype, node.shape, parameter=False, version=1)
        made.append(Assign(buffer, whole_axes(len(node.shape)), node, stores[at].time))
        known[id(node)] = Read(shape=node.shape, dtype=node.dtype, time=node.time, buffer=buffer, version=1)
    later = substituted([store.value for store in stores[at:]], known)
    changed = [replace(store, value=value) for store, value in zip(stores[at:], later, strict=True)]
    return [*stores[:at], *made, *changed]


# Old contents -----------------------------------------------------------------------------------------------------------


def stale_kept(stores: list[Assign]) -> list[Assign]:
    """Return stores of which none reads what an earlier one has overwritten."""
    for _ in range(ROUNDS):
        found = _first_stale(stores)
        if found is None:
            return stores
        at, wanted = found
        stores = kept(stores, wanted, at)
    raise Untraceable("it reads old contents of arrays too often")


def _first_stale(stores: list[Assign]) -> tuple[int, list[Expr]] | None:
    """Return the store that overwrites what a later one still wants, and the values to keep before it."""
    writers: dict[int, list[int]] = {}
    for number, store in enumerate(stores):
        for node in nodes_of(store.value):
            if isinstance(node, Read) and node.version < len(writers.get(id(node.buffer), ())):
                at = writers[id(node.buffer)][node.version]
                return at, _largest_before(store.value, node, stores[at].time)
        writers.setdefault(id(store.buffer), []).append(number)
    return None


def _largest_before(root: Expr, read: Read, time: int) -> list[Expr]:
    """Return the largest values over a read that were there before a time."""
    over: set[int] = set()
    for node in nodes_of(root):
        if node is read or any(id(arg) in over for arg in node.args):
            over.add(id(node))
    found: dict[int, Expr] = {}
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if id(node) in seen or id(node) not in over:
            continue
        seen.add(id(node))
        if node.time < time:
            found[id(node)] = node
        else:
            stack += node.args
    return list(found.values())


# Overlap ----------------------------------------------------------------------------------------------------------------


def looks(store: Assign) -> list[Looked]:
    """Return each read of a store's value, and where it looks."""
    found: list[Looked] = []
    seen: set[Any] = set()
    fresh = -1
    stack: list[tuple[Expr, Axes]] = [(store.value, whole_axes(len(store.value.shape)))]
    while stack:
        node, at = stack.pop()
        key = id(node), tuple(line.key for line in at)
        if key in seen:
            continue
        seen.add(key)
        if isinstance(node, Read):
            known = len(node.shape) == len(node.buffer.shape) and _alike(node.shape, node.buffer.shape)
            found.append((node, at if known else None))
        elif isinstance(node, View):
            stack.append((node.arg, through(node.axes, at)))
        elif isinstance(node, Gather):
            found += [(read, None) for read in nodes_of(node.arg) if isinstance(read, Read)]
            stack.append((node.index, at[node.axis : node.axis + len(node.index.shape)]))
        elif isinstance(node, Fold):
            stack.append((node.arg, (*at[: node.axis], Line(0, 1, fresh), *at[node.axis :])))
            fresh -= 1
        else:
            stack += [(arg, at if arg.shape else ()) for arg in node.args]
    return found


def _alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return [size_key(size) for size in a] == [size_key(size) for size in b]


def same_place(a: Axes | None, b: Axes) -> bool:
    """Tell whether two views show the same element at each point."""
    return a is not None and [line.key for line in a] == [line.key for line in b]


def apart(a: Axes | None, b: Axes) -> bool:
    """Tell whether two views surely have no element in common."""
    if a is None:
        return False
    for one, other in zip(a, b, strict=True):
        difference = one.start - other.start
        if not isinstance(difference, int):
            continue
        if one.axis is None and other.axis is None and difference:
            return True
        steps = abs(one.step) if one.axis is not None else 0, abs(other.step) if other.axis is not None else 0
        if difference % (int(np.gcd(*steps)) or 1):
            return True
    return False


def overlaps_kept(stores: list[Assign]) -> list[Assign]:
    """Return stores of which none reads other elements of the buffer that it writes."""
    found: list[Assign] = []
    for store in stores:
        inside = [at for read, at in looks(store) if read.buffer is store.buffer]
        if all(same_place(at, store.axes) or apart(at, store.axes) for at in inside):
            found.append(store)
        else:
            found += kept([*found, store], [store.value], len(found))[len(found) :]
    return found


# Groups -----------------------------------------------------------------------------------------------------------------


def grouped(stores: Sequence[Assign]) -> list[Group]:
    """Return stores in groups, each of which one loop can run."""
    groups: list[Group] = []
    seen: dict[int, list[Looked]] = {}
    for store in stores:
        seen[id(store)] = looks(store)
        last = groups[-1] if groups else []
        if (
            last
            and len(last) < LARGEST
            and _alike(last[0].value.shape, store.value.shape)
            and _may_join(last, store, seen)
        ):
            last.append(store)
        else:
            groups.append([store])
    return groups


def _may_join(group: Group, store: Assign, seen: dict[int, list[Looked]]) -> bool:
    """Tell whether a store may share the loop of those before it."""
    for earlier in group:
        for read, at in seen[id(store)]:
            if read.buffer is earlier.buffer and not (same_place(at, earlier.axes) or apart(at, earlier.axes)):
                return False
        for read, at in seen[id(earlier)]:
            if read.buffer is store.buffer and not (same_place(at, store.axes) or apart(at, store.axes)):
                return False
        if earlier.buffer is store.buffer and not (
            same_place(earlier.axes, store.axes) or apart(earlier.axes, store.axes)
        ):
            return False
    return True
