"""Pipelines whose groups of devices may serve several stages: exact for a few groups, by setting labels over kernels.

Before: plan/pipeline/labels.py.  After: plan/pipeline/planning.py.  Knows tables, not what they stand for.

The groups are fixed beforehand. A label has the kernels and the copies of each group, the active energy, and what else counts (memory that
stages of one group fill together, latency). Everything adds up, so a label that is no worse in each stays no worse.
Labels that cannot lead to anything better than a pipeline that is known already are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from .groups import Room
from .labels import Aim, Floats, History, Ints
from .pareto import kept
from .tables import StageTables

MOST_GROUPS = 3
"""Groups that serve stages in turn: the labels have a coordinate for each."""
MOST_LABELS = 3000
"""Labels per set of kernels; beyond, loads that differ little are taken for equal, and the error is told."""
FINEST = 1e-4
"""The least such difference, as a fraction of the least load."""


class Slots(NamedTuple):
    """Groups that serve all stages: the columns of the tables that stand for each, one per mode."""

    columns: tuple[tuple[int, ...], ...]
    idle_watts: float


class SharedLabels(NamedTuple):
    """Partial pipelines that have finished the same kernels, a row or position in each array per pipeline."""

    loads: Floats  # seconds per item that each group computes
    copies: Floats  # seconds per item for what comes into each group
    memory: Floats  # bytes on each device of each group
    active: Floats
    latency: Floats
    back: Floats  # seconds for the way back to the host
    slot: Ints  # the group of the last stage; -1 none
    place: Ints
    number: Ints

    def only(self, positions: Any) -> SharedLabels:
        """Return some of them."""
        return SharedLabels(*(array[positions] for array in self))


class SharedSteps(NamedTuple):
    """A pipeline that does everything."""

    period: float
    active: float
    latency: float
    idle_watts: float
    steps: list[tuple[int, int]]  # row and column of each stage
    slots: list[int]  # of each stage


def slots_of(tables: StageTables, room: Room, *, all_idle: bool) -> list[Slots]:
    """Return the choices of two or three groups of one class each that are worth a search.

    A choice in which more devices could take the place of fewer without any loss is not, if devices draw idle power
    whether they are in use or not (`all_idle`).
    """
    by_group: dict[Any, list[int]] = {}
    for at, column in enumerate(tables.columns):
        if at not in tables.shares:
            by_group.setdefault(column.group, []).append(at)
    groups = list(by_group)
    better = {
        group: [other for other in groups if all_idle and _replaces(tables, by_group, other, group)] for group in groups
    }
    found = []
    for count in range(2, MOST_GROUPS + 1):
        for chosen in combinations_with_replacement(groups, count):
            if room.holds(*(g.needs for g in chosen)) and not any(_improved(chosen, better, room)):
                watts = sum(room.idle_watts(g.needs) for g in chosen)
                found.append(Slots(tuple(tuple(by_group[g]) for g in chosen), watts))
    return found


def _improved(chosen: tuple[Any, ...], better: dict[Any, list[Any]], room: Room) -> Iterator[bool]:
    """Yield whether a replacement of one of the groups fits."""
    for at, group in enumerate(chosen):
        rest = [g.needs for i, g in enumerate(chosen) if i != at]
        for other in better[group]:
            yield room.holds(other.needs, *rest)


def _replaces(tables: StageTables, by_group: dict[Any, list[int]], other: Any, group: Any) -> bool:
    """Tell whether more devices of the same class are no worse in anything."""
    (name, n), (other_name, other_n) = group.parts[0], other.parts[0]
    if name != other_name or other_n <= n:
        return False
    return all(any(tables.no_worse(mine, theirs) for mine in by_group[other]) for theirs in by_group[group])


class SharedSearch:
    """Finds every pipeline worth having on a few fixed groups."""

    def __init__(self, tables: StageTables, slots: Slots, aim: Aim, known: tuple[Floats, Floats]) -> None:
        self._tables = tables
        self._slots = slots
        self._aim = aim
        self._known = known  # periods, rising, and active energies of pipelines that are found already
        self._history = History()
        self._limits = np.array([tables.limits[columns[0]] for columns in slots.columns])
        self._counts_memory = bool(np.isfinite(self._limits).any())
        columns = [c for group in slots.columns for c in group]
        self._rest_active, self._rest_seconds = tables.remaining(columns)
        least = self._rest_seconds[0] / len(slots.columns)  # seconds that no pipeline can be below
        most = len(tables.ways.sets) * float(
            tables.moves.max(initial=0.0)
        )  # seconds that no group's copies can be above
        self._counts_copies = most > least
        self.error = 0.0  # by how much period and latency may miss the best, as a fraction

    def run(self) -> list[SharedSteps]:
        """Return the best pipelines, none dominated by another."""
        tables, groups = self._tables, len(self._slots.columns)
        empty, figure, whole = np.zeros((1, groups)), np.zeros(1), np.zeros(1, dtype=np.int64)
        start = SharedLabels(empty, empty, empty, figure, figure, figure, np.array([-1]), whole, whole)
        labels = [start]
        for node in range(1, len(tables.ways.sets)):
            found = [
                self._ending(node, slot, column, labels)
                for slot, columns in enumerate(self._slots.columns)
                for column in columns
            ]
            joined = SharedLabels(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))
            labels.append(joined)
        return self._wholes(labels[-1])

    def _wholes(self, last: SharedLabels) -> list[SharedSteps]:
        period = _period(last)
        keep = kept([period, last.active, *([last.latency] if self._aim.latency else [])])
        found = []
        for at in keep.tolist():
            steps = self._history.steps(int(last.number[at]))
            slots = [column // len(self._tables.columns) for _, column in steps]
            steps = [(row, column % len(self._tables.columns)) for row, column in steps]
            figures = (float(period[at]), float(last.active[at]), float(last.latency[at]), self._slots.idle_watts)
            found.append(SharedSteps(*figures, steps, slots))
        return found

    def _ending(self, node: int, slot: int, column: int, labels: Sequence[SharedLabels]) -> SharedLabels:
        """Return the pipelines whose last stage, so far, is on one group and completes one set of kernels."""
        tables = self._tables
        rows = np.arange(int(tables.first[node]), int(tables.first[node + 1]))
        rows = rows[tables.seconds[rows, column] < np.inf]
        parts = [labels[int(tables.source[row])] for row in rows]
        parts = [part.only(part.slot != slot) for part in parts]
        row_of = np.repeat(rows, [len(part.slot) for part in parts])
        before = SharedLabels(*(np.concatenate(a) for a in zip(*parts, strict=True))) if parts else labels[0].only([])
        moved = tables.moves[tables.source[row_of], before.place, column]
        loads, copies, memory = before.loads.copy(), before.copies.copy(), before.memory.copy()
        loads[:, slot] += tables.seconds[row_of, column]
        copies[:, slot] += moved
        memory[:, slot] += tables.memory[row_of, column]
        latency = before.latency + tables.delay[row_of, column]
        latency += tables.moves_one[tables.source[row_of], before.place, column]
        back = before.back
        if node == len(tables.ways.sets) - 1:
            at = row_of - int(tables.first[node])
            back, latency = tables.back[at, column], latency + tables.back_one[at, column]
        made = before._replace(
            loads=loads,
            copies=copies,
            memory=memory,
            active=before.active + tables.active[row_of, column],
            latency=latency,
            back=back,
            slot=np.full(len(row_of), slot),
            place=np.full(len(row_of), column + 1),
        )
        keep = self._worth(made, node)
        made, row_of = made.only(keep), row_of[keep]
        number = self._history.add(made.number, row_of, np.full(len(row_of), slot * len(tables.columns) + column))
        return made._replace(number=number)

    def _worth(self, labels: SharedLabels, node: int) -> Ints:
        """Return the positions of labels that may lead to something new and that no other dominates."""
        groups = labels.loads.shape[1]
        period = np.maximum(_period(labels), (labels.loads.sum(axis=1) + self._rest_seconds[node]) / groups)
        possible = (labels.memory <= self._limits).all(axis=1) & (labels.latency <= self._aim.most_latency)
        if not self._aim.latency and len(self._known[0]):
            at = np.searchsorted(self._known[0], period, "right") - 1
            active = labels.active + self._rest_active[node]
            possible &= (at < 0) | (self._known[1][at] > active)
        positions = np.flatnonzero(possible)
        labels = labels.only(positions)
        keep, width = self._undominated(labels, 0.0), 0.0
        while len(keep) > MOST_LABELS and width < 1.0:
            width = 2.0 * width or FINEST
            keep = self._undominated(labels, width)
        self.error += width
        return positions[keep]

    def _undominated(self, labels: SharedLabels, width: float) -> Ints:
        """Return the positions of labels that no other dominates; with `width`, by steps of so much of the least load."""
        loads, copies, latency = labels.loads, labels.copies, labels.latency
        if width:
            step = width * max(self._rest_seconds[0] / loads.shape[1], 1e-300)
            loads, copies, latency = (np.floor(figures / step) for figures in (loads, copies, latency))
        memory = labels.memory.T if self._counts_memory else ()
        latencies = [latency] if self._aim.latency else []
        copied = copies.T if self._counts_copies else ()
        return kept([*loads.T, *copied, labels.active, labels.back, *latencies, *memory])


def _period(labels: SharedLabels) -> Floats:
    """Return the seconds between two items so far: what takes longest, kernels or copies of a group, or the way back."""
    found: Floats = np.maximum(labels.loads.max(axis=1, initial=0.0), labels.copies.max(axis=1, initial=0.0))
    return np.maximum(found, labels.back)
