"""Everything a search looks up, as arrays: for each possible stage and group its seconds and joules, and what moving costs.

Before: plan/pipeline/downsets.py, plan/pipeline/groups.py.  After: plan/pipeline/consecutive.py.  The same sums as judge.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np

from .downsets import DownSets, membership
from .groups import DeviceGroup
from .judge import BUFFERS, ways_between
from .point import Mode
from .system import HOST, StreamSystem, WayEnd
from .workload import StreamWork

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


class Column(NamedTuple):
    """A group, and the ways in which it may work. With several, the one with the shortest period counts.

    That is also the one that draws the least, so nothing is lost unless latency or the memory of several stages matters.
    """

    group: DeviceGroup
    modes: tuple[Mode, ...]


def columns_of(groups: Sequence[DeviceGroup], *, apart: bool) -> list[Column]:
    """Return one column per group, or with `apart` one per group and mode."""
    if apart:
        return [Column(group, (mode,)) for group in groups for mode in group.modes]
    return [Column(group, group.modes) for group in groups]


class StageTables:
    """A row for each two down-sets of which one may follow the other, a column for each group of devices.

    Rows are sorted by the later set; those of set `i` are `first[i]` to `first[i + 1]`. Places are numbered from 0, the
    host, and then the columns.
    """

    def __init__(
        self, workload: StreamWork, system: StreamSystem, ways: DownSets, columns: Sequence[Column], *, latency: bool
    ) -> None:
        self.ways = ways
        self._latency = latency  # what single items take is looked at; otherwise it is all 0
        self.columns = list(columns)
        lengths = [len(before) for before in ways.before]
        self.first = np.concatenate([[0], np.cumsum(lengths)])
        self.source = np.array([j for before in ways.before for j in before], dtype=np.int64)
        self.target = np.repeat(np.arange(len(lengths)), lengths)
        self.limits = [min(system.named(name).memory for name, _ in c.group.parts) for c in columns]  # bytes
        self.handover = max(c.handover for c in system.classes)  # seconds
        self.sizes = np.array([workload.alive(mask) for mask in ways.sets])
        member = membership(ways.sets, len(workload.kernels))
        self._bits = (member[self.target] - member[self.source]).astype(np.float64)
        self._ends = self.sizes[self.source] + self.sizes[self.target]
        rows, width = len(self.source), len(self.columns)
        self.seconds = np.full((rows, width), inf)  # between two items
        self.delay = np.full((rows, width), inf)  # of one item
        self.active = np.full((rows, width), inf)  # joules of one item
        self.overhead = np.zeros((rows, width))  # joules of these for handing over, which stages may share
        self.memory = np.full((rows, width), inf)  # bytes on each device; of mixed groups, on the fullest
        self.mode = np.zeros((rows, width), dtype=np.int64)  # which of the column's modes
        self.shares: dict[int, Floats] = {}  # of mixed groups, by column: a row per row, a column per class
        for at, column in enumerate(self.columns):
            for which, mode in enumerate(column.modes):
                if len(column.group.parts) > 1:
                    self._fill_mixed(at, column.group, workload, system)
                else:
                    self._fill(at, which, mode, column.group, workload, system)
        self._fill_moves(system)

    def kernels_of_rows(self) -> Floats:
        """Return which kernels each row's stage has: 1 or 0 per kernel."""
        return self._bits

    def _summed(self, figures: Sequence[float]) -> Floats:
        """Return the sum over each row's kernels; inf where one of them is."""
        given = np.asarray(figures, dtype=np.float64)
        endless = np.isinf(given)
        total: Floats = self._bits @ np.where(endless, 0.0, given)
        if endless.any():
            total[self._bits @ endless > 0.0] = inf
        return total

    def _fill(
        self, at: int, which: int, mode: Mode, group: DeviceGroup, workload: StreamWork, system: StreamSystem
    ) -> None:
        """Add a mode of a group of one class, where it is better than the modes before it."""
        (name, n), kernels = group.parts[0], workload.kernels
        c = system.named(name)
        turns = mode == "in turn"
        figures = [kernel.on(name, 1 if turns else n) if kernel.replicable or not turns else inf for kernel in kernels]
        one = c.handover + self._summed(figures)
        part = 1.0 / n if mode == "divided" else 1.0
        memory = self._summed([k.weights for k in kernels])
        memory += part * (self._summed([k.workspace for k in kernels]) + BUFFERS * self._ends)
        one[memory > c.memory] = inf
        period = one / n if turns else one
        better = period < self.seconds[:, at]
        self.seconds[better, at] = period[better]
        self.delay[better, at] = one[better]
        count = 1 if turns else n
        kernel_joules = self._summed(
            [t * k.active_watts(c) if t < inf else inf for t, k in zip(figures, kernels, strict=True)]
        )
        self.active[better, at] = count * (c.handover * c.active_watts + kernel_joules)[better]
        self.overhead[better, at] = count * c.handover * c.active_watts
        self.memory[better, at] = memory[better]
        self.mode[better, at] = which

    def _fill_mixed(self, at: int, group: DeviceGroup, workload: StreamWork, system: StreamSystem) -> None:
        """Add a mixed group: all its classes end together, see judge.cut."""
        classes = [system.named(name) for name, _ in group.parts]
        each = np.stack([self._summed([k.on(name, n) for k in workload.kernels]) for name, n in group.parts], axis=1)
        handover = np.array([c.handover for c in classes])
        possible: Any = (each > 0.0).all(axis=1) & (each < inf).all(axis=1)
        rate = 1.0 / np.where(possible[:, None], each, 1.0)
        end = (1.0 + rate @ handover) / rate.sum(axis=1)
        shares = (end[:, None] - handover) * rate
        counts = np.array([n for _, n in group.parts])
        held = self._summed([k.workspace for k in workload.kernels]) + BUFFERS * self._ends
        memory = self._summed([k.weights for k in workload.kernels])[:, None] + shares / counts * held[:, None]
        possible &= (shares > 0.0).all(axis=1) & (memory <= [c.memory for c in classes]).all(axis=1)
        self.seconds[possible, at] = self.delay[possible, at] = end[possible]
        joules = np.stack(
            [
                self._summed(
                    [k.on(name, n) * k.active_watts(c) if k.on(name, n) < inf else inf for k in workload.kernels]
                )
                for c, (name, n) in zip(classes, group.parts, strict=True)
            ],
            axis=1,
        )
        over = handover * [c.active_watts for c in classes]
        self.active[possible, at] = ((shares[possible] * joules[possible] + over) * counts).sum(axis=1)
        self.overhead[possible, at] = float((over * counts).sum())
        self.memory[possible, at] = memory.max(axis=1)[possible]
        self.shares[at] = shares

    # What bounds need ---------------------------------------------------------------------------------------------

    def remaining(self, columns: Sequence[int]) -> tuple[Floats, Floats]:
        """Return for each down-set how many joules and seconds of work at least are left, on these columns."""
        single = np.flatnonzero(self._bits.sum(axis=1) == 1.0)
        kernel = self._bits[single].argmax(axis=1)
        each = np.ix_(single, np.asarray(columns, dtype=np.int64))
        with np.errstate(invalid="ignore", divide="ignore"):
            computing = np.where(self.delay[each] > 0.0, 1.0 - self.handover / self.delay[each], 0.0)
        computing = np.clip(computing, 0.0, 1.0)  # the part that is not handing over, which stages may share
        left = []
        for table, kernels in ((self.active, None), (self.seconds, computing)):
            least = np.full(self._bits.shape[1], inf)
            finite = np.where(np.isfinite(table[each]), table[each], 0.0)
            possible = np.maximum(finite - self.overhead[each], 0.0) if kernels is None else finite * kernels
            np.minimum.at(least, kernel, np.where(np.isfinite(table[each]), possible, inf).min(axis=1))
            member = membership(self.ways.sets, self._bits.shape[1])
            least[np.isinf(least)] = 0.0  # no pipeline has it, as the search will find
            left.append((1.0 - member) @ least)
        return left[0], left[1]

    def no_worse(self, mine: int, other: int) -> bool:
        """Tell whether one column could take the place of another in any pipeline without making anything worse."""
        figures = (self.seconds, self.delay, self.active, self.memory, self.back, self.back_one)
        into = (self.moves[:, :, mine] <= self.moves[:, :, other]).all()
        into &= (self.moves_one[:, :, mine] <= self.moves_one[:, :, other]).all()
        out = (self.moves[:, mine + 1] <= self.moves[:, other + 1]).all()
        out &= (self.moves_one[:, mine + 1] <= self.moves_one[:, other + 1]).all()
        return bool(into and out and all((table[:, mine] <= table[:, other]).all() for table in figures))

    # Moving data --------------------------------------------------------------------------------------------------

    def _fill_moves(self, system: StreamSystem) -> None:
        places = [None, *self.columns]
        pure = [at for at in range(len(self.columns)) if at not in self.shares]
        shape = (len(self.sizes), len(places), len(self.columns))
        last = slice(self.first[-2], self.first[-1])
        self.moves, self.moves_one = np.zeros(shape), np.zeros(shape)  # [down-set, from, to]; mixed groups: see into()
        self.back, self.back_one = (np.zeros((last.stop - last.start, len(self.columns))) for _ in range(2))
        self._ways: dict[bool, list[list[list[tuple[float, float, int]]]]] = {}
        for one, moves, back in ((False, self.moves, self.back), (True, self.moves_one, self.back_one)):
            if one and not self._latency:
                continue
            ways = [[_links(system, source, target, one=one) for target in self.columns] for source in places]
            self._ways[one] = ways
            for source, target in product(range(len(places)), pure):
                moves[:, source, target] = self._slowest(ways[source][target], self.sizes)
            for at, column in enumerate(self.columns):
                shares = self.shares[at][last] if at in self.shares else None
                sizes = np.full(len(back), self.sizes[-1])
                back[:, at] = self._slowest(_links(system, column, None, one=one), sizes, shares)

    @staticmethod
    def _slowest(links: Sequence[tuple[float, float, int]], sizes: Floats, shares: Floats | None = None) -> Floats:
        found = np.zeros(len(sizes))
        for latency, per_byte, part in links:
            share = 1.0 if shares is None else shares[:, part]
            found = np.maximum(found, latency + share * sizes * per_byte)
        return np.where(sizes > 0.0, found, 0.0)

    def into(self, rows: Ints, at: int, *, one: bool = False) -> Floats:
        """Return the seconds that data needs to a group in these rows, from each place: a row per row."""
        if at not in self.shares:
            return (self.moves_one if one else self.moves)[self.source[rows], :, at]
        sizes, shares = self.sizes[self.source[rows]], self.shares[at][rows]
        return np.stack([self._slowest(links[at], sizes, shares) for links in self._ways[one]], axis=1)


def _links(
    system: StreamSystem, source: Column | None, target: Column | None, *, one: bool = False
) -> list[tuple[float, float, int]]:
    """Return latency and seconds per byte of each way between two places, and whose share goes over it."""

    def ends(place: Column | None) -> list[WayEnd]:
        if place is None:
            return [WayEnd(HOST)]
        turns = place.modes == ("in turn",)
        return [WayEnd(name, n, turns) for name, n in place.group.parts]

    return [
        (latency, per_byte, sent if target is None else received)
        for sent, out in enumerate(ends(source))
        for received, into in enumerate(ends(target))
        for latency, per_byte in ways_between(out, into, system, one=one)
    ]
