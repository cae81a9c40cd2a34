"""The longest chain of instructions that had to follow each other.

Before: trace.py.  After: report.py.  Knows edges and durations, not who ran what when.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from .trace import Row, Trace


class CriticalPath(NamedTuple):
    """The chain with the most working time: no number of devices makes the run shorter than that."""

    length: float  # seconds
    steps: list[Row]  # the `ran` rows on it, in order


def critical_path(trace: Trace) -> CriticalPath:
    """Return the longest path through what ran, along needs and after edges.

    An instruction that left no record (a horizon, say) takes no time but still orders others.
    """
    finish: dict[int, float] = {}
    previous: dict[int, int] = {}
    for id in _in_order(trace):
        before = max((d for d in trace.dependencies(id) if d in finish), key=lambda d: (finish[d], -d), default=None)
        row = trace.ran_by_id.get(id)
        finish[id] = (row["stop"] - row["start"] if row else 0.0) + (finish[before] if before is not None else 0.0)
        if before is not None:
            previous[id] = before
    last = max(finish, key=lambda i: (finish[i], -i), default=None)
    steps: list[Row] = []
    at = last
    while at is not None:
        if at in trace.ran_by_id:
            steps.append(trace.ran_by_id[at])
        at = previous.get(at)
    return CriticalPath(finish[last] if last is not None else 0.0, steps[::-1])


def _in_order(trace: Trace) -> list[int]:
    """Return all instructions, each after those it depends on: by id on one rank, else by when they were over."""
    ids = sorted({*trace.instruction_by_id, *trace.ran_by_id})
    if all(before < id for id in ids for before in trace.dependencies(id)):
        return ids
    over = {id: float(row["stop"]) for id, row in trace.ran_by_id.items()}
    return sorted(ids, key=lambda number: (over.get(number, inf), number))
