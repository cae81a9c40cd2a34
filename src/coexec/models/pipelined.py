"""The best mapping for throughput, exactly: sets work on inputs that follow each other, and the slowest set decides.

Before: models/tables.py.  After: models/planning.py.  Knows the same class of mappings as models/shortest.py.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from operator import le
from typing import NamedTuple

import numpy as np

from ..errors import PlanError
from .fabric import Members
from .mapping import Mapping, SetStage
from .shortest import candidate_sets, may_follow
from .tables import FREE, BytePrice, ChainCosts, Floats, Ints, by_output


class Ranges(NamedTuple):
    """A set with a design: seconds of every range of layers once its inputs are there, and how to find its shardings."""

    seconds: Floats  # first layer, last layer
    chosen: list[Ints]  # per last layer: by first layer and placement of the output, the sharding
    before: list[Ints]  # and the placement before it
    ends: list[Ints]  # per last layer: by first layer, the best placement


def ranges(costs: ChainCosts, members: Members, design: str, price: BytePrice = FREE) -> Ranges:
    """Return the least time of every range of layers on a set with a design."""
    count, memory = len(costs.workload.layers), costs.fabric.memory(members)
    found = Ranges(np.full((count, count), inf), [], [], [])
    rows: Floats = np.empty((0, 0))
    for index in range(count):
        table = costs.table(index, members, design)
        new = costs.arrive(index, members, design)[None, :]
        before = np.full((1, new.shape[1]), -1)
        if index:
            stay = rows[:, :, None] + costs.stay(index, members, design)[None]
            least = stay.argmin(axis=1)
            new = np.vstack([np.take_along_axis(stay, least[:, None, :], axis=1)[:, 0, :], new])
            before = np.vstack([least, before])
        fits = table.activations + table.weights <= memory
        rows, chosen = by_output(table, np.where(fits, new + price.of(table), inf))
        found.chosen.append(chosen)
        found.before.append(np.take_along_axis(before, chosen, axis=1))
        found.ends.append(rows.argmin(axis=1))
        found.seconds[: index + 1, index] = rows.min(axis=1)
    return found


class PipelineSearch:
    """The least period, over what is used, the present set and the last layer."""

    def __init__(self, costs: ChainCosts, price: BytePrice = FREE) -> None:
        self.costs, self.fabric, self.price = costs, costs.fabric, price
        self.sets = candidate_sets(self.fabric)
        self.follow = may_follow(self.fabric)
        self._ranges: dict[object, Ranges] = {}

    def run(self, stop: Callable[[], None] = lambda: None) -> tuple[Mapping, float]:
        """Return the mapping with the least period, and the period; raise PlanError if there is none."""
        count = len(self.costs.workload.layers)
        if not count:
            raise PlanError(f"{self.costs.workload.name} has no layer with sums, so there is nothing to map")
        self.count = count
        self.times, self.designs = self._least(stop)
        best: dict[tuple[Members, int], Floats] = {}
        came: dict[tuple[Members, int], list[tuple[tuple[Members, int], int] | None]] = {}
        zero = (0,) * len(self.fabric.all)
        for s, members in enumerate(self.sets):
            way = self.costs.way(0, self.fabric.to_host(members))
            best[members, s] = self._with_result(s, self.times[s][0] + way)
            came[members, s] = [None] * count
        for used in sorted(self.fabric.sets(), key=sum) if self.follow else []:
            stop()
            for s, members in enumerate(self.sets):
                rest = tuple(a - b for a, b in zip(used, members, strict=True))
                if min(rest) >= 0 and rest != zero:
                    self._extend(used, s, rest, best, came)
        end = min(best, key=lambda key: best[key][-1])
        if not best[end][-1] < inf:
            raise PlanError(
                f"no set of accelerators of {self.fabric.name!r} has the memory for {self.costs.workload.name}"
            )
        return self._traced(end, came), float(best[end][-1])

    def _with_result(self, s: int, seconds: Floats) -> Floats:
        """Return times by last layer, with the way back to the host after the very last."""
        back = self.costs.way(self.count, self.fabric.to_host(self.sets[s]))
        return np.concatenate([seconds[:-1], [seconds[-1] + back]])

    def _least(
        self, stop: Callable[[], None]
    ) -> tuple[list[Floats], list[np.ndarray[tuple[int, int], np.dtype[np.int64]]]]:
        """Return for each set the least time of every range over its designs, and which design has it."""
        times, chosen = [], []
        for members in self.sets:
            stop()
            each = np.stack([self.ranges(members, design).seconds for design in self.fabric.designs(members)])
            times.append(each.min(axis=0))
            chosen.append(each.argmin(axis=0))
        return times, chosen

    def ranges(self, members: Members, design: str) -> Ranges:
        """Return the times of ranges, shared by all sets that compute alike."""
        key = (self.costs.set_class(members, design), self.fabric.memory(members))
        if key not in self._ranges:
            self._ranges[key] = ranges(self.costs, members, design, self.price)
        return self._ranges[key]

    def _extend(
        self, used: Members, s: int, rest: Members, best: dict[tuple[Members, int], Floats],
        came: dict[tuple[Members, int], list[tuple[tuple[Members, int], int] | None]],
    ) -> None:  # fmt: skip
        """Let a set follow every set that may be the last one of what was used before it."""
        key = (used, s)
        present = best.get(key, np.full(self.count, inf))
        sources = came.get(key, [None] * self.count)
        for other, members in enumerate(self.sets):
            if (rest, other) not in best or not all(map(le, members, rest)):
                continue
            link = self.fabric.between(members, self.sets[s])
            ways = np.array([self.costs.way(first, link) for first in range(1, self.count)])
            own = self.times[s][1:] + ways[:, None]
            own[:, -1] += self.costs.way(self.count, self.fabric.to_host(self.sets[s]))
            both = np.maximum(best[rest, other][:-1, None], own)  # first layer - 1, last layer
            if both.size == 0:
                continue
            first = both.argmin(axis=0)
            least = both[first, np.arange(self.count)]
            for last in np.flatnonzero(least < present):
                present[last], sources[last] = least[last], ((rest, other), int(first[last]) + 1)
        if np.isfinite(present).any():
            best[key], came[key] = present, sources

    def _traced(
        self, end: tuple[Members, int], came: dict[tuple[Members, int], list[tuple[tuple[Members, int], int] | None]]
    ) -> Mapping:
        key, last = end, self.count - 1
        stages: list[SetStage] = []
        while True:
            source = came[key][last]
            first = 0 if source is None else source[1]
            stages.append(self._stage(key[1], first, last))
            if source is None:
                return tuple(reversed(stages))
            key, last = source[0], first - 1

    def _stage(self, s: int, first: int, last: int) -> SetStage:
        """Return a set with the shardings of its range, found backwards."""
        members = self.sets[s]
        design = self.fabric.designs(members)[int(self.designs[s][first, last])]
        found = self.ranges(members, design)
        placement, shardings = int(found.ends[last][first]), []
        for index in range(last, first - 1, -1):
            table = self.costs.table(index, members, design)
            shardings.append(table.shardings[found.chosen[index][first, placement]])
            placement = int(found.before[index][first, placement])
        return SetStage(members, design, first, tuple(reversed(shardings)))
