"""Every pipeline of a small workload, one by one, and the programs that keep too little to find the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement, product
from math import inf
from typing import Any, NamedTuple

from coexec.errors import DoesNotFit
from coexec.plan.pipeline.judge import _memory, drawn, moving, timed
from coexec.plan.pipeline.point import Parts, PipelineStage
from coexec.plan.pipeline.system import StreamSystem
from coexec.plan.pipeline.workload import StreamWork


class Figures(NamedTuple):
    """What a pipeline comes to."""

    period: float
    active: float
    latency: float
    used: float  # idle watts of the devices in use


class Option(NamedTuple):
    """A possible stage."""

    mask: int  # kernels that are over after it
    stage: PipelineStage
    compute: float
    one: float
    active: float


class Everything:
    """All stages of a workload on a system, with what they cost by judge.py, each worked out once."""

    def __init__(self, workload: StreamWork, system: StreamSystem, *, mixed: bool = False) -> None:
        self.workload, self.system = workload, system
        self.full = (1 << len(workload.kernels)) - 1
        self.sets = [
            m for m in range(self.full + 1) if all(not b & ~m for i, b in enumerate(workload.after) if m >> i & 1)
        ]
        names = [c.name for c in system.classes]
        counts = product(*(range(c.count + 1) for c in system.classes))
        every = [tuple((name, n) for name, n in zip(names, some, strict=True) if n) for some in counts]
        self.groups: list[Parts] = [group for group in every if group and (mixed or len(group) == 1)]
        self.stages = cache(self._stages)
        self.moves = cache(self._moves)

    def fits(self, groups: Sequence[Parts]) -> bool:
        devices = [part for group in groups for part in group]
        for c in self.system.classes:
            if sum(n for name, n in devices if name == c.name) > c.count:
                return False
        units = dict.fromkeys(self.system.budgets, 0)
        for name, n in devices:
            c = self.system.named(name)
            units[c.budget or c.name] += n * c.units
        return all(units[budget] <= limit for budget, limit in self.system.budgets.items())

    def idle(self, groups: Sequence[Parts]) -> float:
        return sum(n * self.system.named(name).idle_watts for group in groups for name, n in group)

    def _stages(self, done: int, group: Parts) -> list[Option]:
        found = []
        for mask in self.sets:
            if done & ~mask or mask == done:
                continue
            kernels = [k for i, k in enumerate(self.workload.kernels) if (mask & ~done) >> i & 1]
            one_device = len(group) == 1 and group[0][1] == 1
            modes: tuple[Any, ...] = (
                ("alone",) if one_device else ("divided", "in turn") if len(group) == 1 else ("divided",)
            )
            for mode in modes:
                compute, one, shares = timed(kernels, group, mode, self.system)
                if compute == inf:
                    continue
                stage = PipelineStage(tuple(k.name for k in kernels), group, mode, -1, shares, compute)
                ends = self.workload.alive(done) + self.workload.alive(mask)
                try:
                    memory = _memory(stage, kernels, ends, self.system)
                except DoesNotFit:
                    continue
                stage = PipelineStage(stage.kernels, group, mode, -1, shares, compute, 0.0, memory)
                found.append(Option(mask, stage, compute, one, drawn(kernels, stage, self.system)))
        return found

    def _moves(self, source: PipelineStage | None, target: PipelineStage | None, done: int) -> tuple[float, float]:
        source = PipelineStage(source.kernels, source.group, source.mode, -2, source.shares) if source else None
        size = self.workload.alive(done)
        return tuple(moving(source, target, size, self.system, one=one) for one in (False, True))  # type: ignore[return-value]

    def consecutive(self) -> Iterator[Figures]:
        """Yield every pipeline whose stages share no devices."""

        def go(done: int, last: PipelineStage | None, used: tuple[Parts, ...], f: Figures) -> Iterator[Figures]:
            if done == self.full:
                out, out_one = self.moves(last, None, done)
                yield Figures(max(f.period, out), f.active, f.latency + out_one, self.idle(used))
                return
            for group in self.groups:
                if not self.fits((*used, group)):
                    continue
                for o in self.stages(done, group):
                    move, move_one = self.moves(last, o.stage, done)
                    period = max(f.period, o.compute, move)
                    after = Figures(period, f.active + o.active, f.latency + o.one + move_one, 0.0)
                    yield from go(o.mask, o.stage, (*used, group), after)

        yield from go(0, None, (), Figures(0.0, 0.0, 0.0, 0.0))

    def shared(self, most: int = 3) -> Iterator[Figures]:
        """Yield every pipeline on up to so many groups that may serve several stages, one class each."""
        pure = [group for group in self.groups if len(group) == 1]
        for count in range(2, most + 1):
            for chosen in combinations_with_replacement(pure, count):
                if self.fits(chosen):
                    yield from self._on(chosen)

    def _on(self, chosen: tuple[Parts, ...]) -> Iterator[Figures]:
        room = [self.system.named(group[0][0]).memory for group in chosen]

        def go(
            done: int, last: PipelineStage | None, slot: int, loads: Any, copies: Any, full: Any, f: Figures
        ) -> Iterator[Figures]:
            if done == self.full:
                out, out_one = self.moves(last, None, done)
                yield Figures(max(*loads, *copies, out), f.active, f.latency + out_one, self.idle(chosen))
                return
            for other, group in enumerate(chosen):
                for o in self.stages(done, group) if other != slot else ():
                    move, move_one = self.moves(last, o.stage, done)
                    load = tuple(x + o.compute * (i == other) for i, x in enumerate(loads))
                    copied = tuple(x + move * (i == other) for i, x in enumerate(copies))
                    held = tuple(x + o.stage.memory[0] * (i == other) for i, x in enumerate(full))
                    if held[other] > room[other]:
                        continue
                    after = Figures(0.0, f.active + o.active, f.latency + o.one + move_one, 0.0)
                    yield from go(o.mask, o.stage, other, load, copied, held, after)

        zeros = (0.0,) * len(chosen)
        yield from go(0, None, -1, zeros, zeros, zeros, Figures(0.0, 0.0, 0.0, 0.0))

    def dynamic(self, keep: Callable[[list[Any]], list[Any]], *, last: bool) -> list[Figures]:
        """Return what a dynamic program finds that keeps some entries per kernels, devices and (with `last`) last group.

        Entries are (figures, idle watts of all devices, last stage, groups in use).
        """
        cells: dict[Any, list[Any]] = {(0, (), None): [(Figures(0.0, 0.0, 0.0, 0.0), None, ())]}
        complete: list[Figures] = []
        for done in self.sets:
            for key in [key for key in cells if key[0] == done]:
                for f, stage, used in keep(cells[key]):
                    if done == self.full:
                        out, _ = self.moves(stage, None, done)
                        complete.append(Figures(max(f.period, out), f.active, 0.0, self.idle(used)))
                        continue
                    for group in self.groups:
                        if not self.fits((*used, group)):
                            continue
                        for o in self.stages(done, group):
                            move, _ = self.moves(stage, o.stage, done)
                            after = Figures(max(f.period, o.compute, move), f.active + o.active, 0.0, 0.0)
                            groups = (*used, group)
                            counts = tuple(
                                sorted((n, sum(m for g in groups for c, m in g if c == n)) for n, _ in sum(groups, ()))
                            )
                            cell = (o.mask, tuple(dict(counts).items()), o.stage.group if last else None)
                            cells.setdefault(cell, []).append((after, o.stage, groups))
        return complete


def front(
    figures: Iterator[Figures] | Sequence[Figures], idle: float | None, *, latency: bool = False
) -> list[tuple[float, ...]]:
    """Return the front by period and energy (and latency); `idle` watts of all devices, None = of those in use."""
    points = set()
    for f in figures:
        watts = f.used if idle is None else idle
        points.add((f.period, f.active + watts * f.period, *((f.latency,) if latency else ())))
    return thinned(sorted(points))


def thinned(points: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return points without those that another one equals or dominates, up to rounding, in rising order."""
    steps = [_steps(sorted({point[axis] for point in points})) for axis in range(len(points[0]))] if points else []
    levelled = {tuple(step[x] for step, x in zip(steps, point, strict=True)): point for point in reversed(points)}
    found: list[tuple[float, ...]] = []
    for point in sorted(levelled):
        if not any(all(a <= b for a, b in zip(other, point, strict=True)) for other in found):
            found.append(point)
    return found


def _steps(values: list[float]) -> dict[float, float]:
    """Return each of some rising values as the least of those that only rounding tells apart from it."""
    found: dict[float, float] = {}
    before = least = -inf
    for value in values:
        least = least if value <= before * (1 + 1e-9) else value
        before = found[value] = value
        found[value] = least
    return found
