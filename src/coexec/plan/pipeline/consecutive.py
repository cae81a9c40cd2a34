"""Pipelines in which every stage has a group of devices of its own: exact, by dynamic programming over finished kernels.

Before: plan/pipeline/labels.py.  After: plan/pipeline/planning.py.  Knows tables, not what they stand for.

What may follow depends on the kernels that are over, on the devices that are left, and on where the data is. For equal ones
of these, a pipeline that is no worse in period, active energy (and latency) stays no worse whatever follows: all that
comes is a maximum and sums. A pipeline that has also used fewer devices has no fewer ways to go on. So only labels that
no other dominates are kept, and nothing is lost. Energy itself cannot stand in for active energy: a later, slower stage
makes idle devices wait longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .groups import Room
from .labels import Aim, CompleteSteps, History, LabelSet
from .pareto import kept, kept_by_count
from .tables import StageTables

Ints = np.ndarray[Any, np.dtype[np.int64]]


class ConsecutiveSearch:
    """Finds every pipeline worth having among those whose stages share no devices."""

    def __init__(self, tables: StageTables, room: Room, aim: Aim) -> None:
        self._tables = tables
        self._shape = room.shape
        self._room = room
        self._aim = aim
        self._history = History()
        self._labels = [LabelSet.start()]
        self._arrivals: dict[tuple[int, int], LabelSet] = {}
        used = np.stack(np.unravel_index(np.arange(int(np.prod(self._shape))), self._shape), axis=1)
        self._takes = [int(np.ravel_multi_index(c.group.needs, self._shape)) for c in tables.columns]
        self._fits: list[Any] = [(used + c.group.needs <= np.array(room.limits)).all(axis=1) for c in tables.columns]

    def run(self) -> list[CompleteSteps]:
        """Return the best pipelines, none dominated by another in period, active energy, devices (and latency)."""
        tables = self._tables
        for node in range(1, len(tables.ways.sets)):
            found = [self._ending(node, column) for column in range(len(tables.columns))]
            self._labels.append(LabelSet.joined([labels for labels in found if len(labels.taken)]))
        last = self._labels[-1]
        last = last.only(self._thinned(last))
        used = np.unravel_index(last.taken, self._shape)
        idle = [self._room.idle_watts([int(n) for n in row]) for row in zip(*used, strict=True)]
        return [
            CompleteSteps(float(t), float(a), float(s), watts, self._history.steps(int(number)))
            for t, a, s, watts, number in zip(last.period, last.active, last.latency, idle, last.number, strict=True)
        ]

    def _ending(self, node: int, column: int) -> LabelSet:
        """Return the pipelines whose last stage, so far, is on one column and completes one set of kernels."""
        tables, parts, rows = self._tables, [], []
        for row in range(int(tables.first[node]), int(tables.first[node + 1])):
            if tables.seconds[row, column] == np.inf:
                continue
            arrived = self._arrived(row, column)
            if len(arrived.taken):
                parts.append(arrived)
                rows.append(row)
        if not parts:
            return LabelSet.joined([])
        before = LabelSet.joined(parts)
        row_of = np.repeat(rows, [len(part.taken) for part in parts])
        labels = before._replace(
            period=np.maximum(before.period, tables.seconds[row_of, column]),
            active=before.active + tables.active[row_of, column],
            latency=before.latency + tables.delay[row_of, column],
            taken=before.taken + self._takes[column],
            place=np.full(len(row_of), column + 1),
        )
        if node == len(tables.ways.sets) - 1:
            labels = self._returned(labels, row_of - int(tables.first[node]), column)
        keep = self._thinned(labels)
        labels, row_of = labels.only(keep), row_of[keep]
        number = self._history.add(labels.number, row_of, np.full(len(row_of), column))
        return labels._replace(number=number)

    def _returned(self, labels: LabelSet, rows: Ints, column: int) -> LabelSet:
        """Return pipelines with the way of their results to the host."""
        tables = self._tables
        return labels._replace(
            period=np.maximum(labels.period, tables.back[rows, column]),
            latency=labels.latency + tables.back_one[rows, column],
        )

    def _arrived(self, row: int, column: int) -> LabelSet:
        """Return the pipelines that could be followed by this stage, with their data moved to it."""
        node = int(self._tables.source[row])
        mixed = column in self._tables.shares  # then what moves depends on the stage's cut
        key = (row if mixed else node, column)
        if (found := self._arrivals.get(key)) is None:
            labels = self._labels[node]
            labels = labels.only(self._fits[column][labels.taken])
            into = self._tables.into(np.array([row]), column)[0]
            labels = labels._replace(period=np.maximum(labels.period, into[labels.place]))
            if self._aim.latency:
                one = self._tables.into(np.array([row]), column, one=True)[0]
                labels = labels._replace(latency=labels.latency + one[labels.place])
            found = labels.only(self._thinned(labels))
            self._arrivals[key] = found
        return found

    def _thinned(self, labels: LabelSet) -> Ints:
        """Return the positions of labels worth keeping."""
        periods = self._aim.periods(labels.period)
        if not self._aim.latency:
            return kept_by_count(labels.taken, self._shape, periods, labels.active)
        allowed = np.flatnonzero(labels.latency <= self._aim.most_latency)
        labels = labels.only(allowed)
        used = np.unravel_index(labels.taken, self._shape)
        return allowed[kept([periods[allowed], labels.active, self._aim.latencies(labels.latency), *used])]
