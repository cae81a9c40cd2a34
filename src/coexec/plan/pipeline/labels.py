"""Partial pipelines of a search as arrays, how they are thinned out, and how a whole one is read back.

Before: plan/pipeline/pareto.py, plan/pipeline/tables.py.  After: plan/pipeline/consecutive.py, plan/pipeline/shared.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .tables import StageTables

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
TINY = 1e-300
"""Seconds: stands for 0 where a logarithm is taken."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a search looks for: which coordinates count, how exactly, and what is out of the question."""

    latency: bool = False  # a third coordinate beside period and active energy
    most_latency: float = float("inf")  # seconds
    error: float = 0.0  # by how much period and latency may miss the best, as a fraction; 0 = exact
    width: float = 0.0  # seconds of latency that labels may differ by and still be taken for equal

    def periods(self, seconds: Floats) -> Floats:
        """Return what periods are compared by: themselves, or the steps of a ladder.

        Stages take the maximum, which keeps the order of steps, so that this error does not grow from stage to stage.
        """
        if not self.error:
            return seconds
        found: Floats = np.floor(np.log(np.maximum(seconds, TINY)) / np.log1p(self.error))
        return found

    def latencies(self, seconds: Floats) -> Floats:
        """Return what latencies are compared by: themselves, or steps of `width`, which add up from stage to stage."""
        if not self.width:
            return seconds
        found: Floats = np.floor(seconds / self.width)
        return found


class History:
    """Where labels came from: the label before, the row of the tables, the column, and what else is needed to tell."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints, Ints]] = [(np.array([-1]), np.array([-1]), np.array([-1]))]
        self._size = 1  # label 0 is the beginning
        self._flat: tuple[Ints, ...] | None = None

    def add(self, parent: Ints, row: Ints, column: Ints) -> Ints:
        """Remember some labels and return their numbers."""
        numbers = np.arange(self._size, self._size + len(parent))
        self._parts.append((parent, row, column))
        self._size += len(parent)
        self._flat = None
        return numbers

    def steps(self, label: int) -> list[tuple[int, int]]:
        """Return the rows and columns that lead to a label, from the first."""
        if self._flat is None:
            self._flat = tuple(np.concatenate(part) for part in zip(*self._parts, strict=True))
        parent, row, column = self._flat
        found = []
        while label > 0:
            found.append((int(row[label]), int(column[label])))
            label = int(parent[label])
        return found[::-1]


class LabelSet(NamedTuple):
    """Partial pipelines that have finished the same kernels, a position in each array per pipeline."""

    period: Floats
    active: Floats
    latency: Floats
    taken: Ints  # what they take of all budgets, as one number
    place: Ints  # where their data is: 0 the host, then the columns
    number: Ints  # in the history

    def only(self, positions: Any) -> LabelSet:
        """Return some of them."""
        return LabelSet(*(array[positions] for array in self))

    @staticmethod
    def start() -> LabelSet:
        """Return the one pipeline that has done nothing."""
        figure, whole = np.zeros(1), np.zeros(1, dtype=np.int64)
        return LabelSet(figure, figure, figure, whole, whole, whole)

    @staticmethod
    def joined(parts: Sequence[LabelSet]) -> LabelSet:
        """Return several sets as one."""
        if not parts:
            return LabelSet.start().only(slice(0, 0))
        return LabelSet(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class CompleteSteps(NamedTuple):
    """A pipeline that does everything, with its place in the history."""

    period: float
    active: float
    latency: float
    idle_watts: float  # of the devices in use
    steps: list[tuple[int, int]]  # row and column of each stage


def lowest_latency(tables: StageTables) -> float:
    """Return seconds of latency below which no pipeline can be: each kernel alone where it is quickest."""
    bits = tables.kernels_of_rows()
    single = np.flatnonzero(bits.sum(axis=1) == 1.0)
    kernel = bits[single].argmax(axis=1)
    quickest = tables.delay[single].min(axis=1) - tables.handover
    best = np.full(bits.shape[1], np.inf)
    np.minimum.at(best, kernel, np.maximum(quickest, 0.0))
    return float(best.sum())
