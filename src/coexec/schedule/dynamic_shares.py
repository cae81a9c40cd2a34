"""A task whose parts are handed out while it runs: `policy="dynamic"` and `policy="auto"`.

Before: plan/division/dynamic_shares.py.  After: schedule/plan.py.  Pure.  One task is open at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..graph.command import Command
from ..graph.instruction import Instruction, Launch
from ..graph.task import Task
from ..machine.platform import Platform
from ..plan.division.dynamic_shares import DynamicShares, Stock
from ..plan.division.make_offers import HANDING_OVER
from ..plan.planned import Planned

DEPTH = 2  # parts that each device has at a time: one runs, the next is being copied
LEAST = 0.01  # of the task's time that a part lasts at least: the last ones decide how evenly all finish
WORTH_IT = 8 * HANDING_OVER  # seconds that a part lasts at least

Given = tuple[str, tuple[int, int]]
"""A device, and the rows that it is given."""


class OpenTask:
    """The task that is being handed out."""

    def __init__(self, planned: Planned, cache: int, platform: Platform) -> None:
        command, shares, site = planned.command, planned.shares, planned.site
        assert site is not None
        self.task: Task = command.task
        self._cache = cache  # bytes of arrays that a piece of a blocked part may touch
        self._why = command.why
        self._site = site
        self._shares = {chunk.device: share for chunk, share in zip(command.chunks, shares, strict=True)}
        first = site.box.lo[site.axis]
        stocks: dict[str, Stock] = {}
        for chunk, share in zip(command.chunks, shares, strict=True):
            lo, hi = chunk.box.lo[site.axis] - first, chunk.box.hi[site.axis] - first
            rate, granule = (hi - lo) / (share.seconds or 1.0), site.granule(platform.device(chunk.device).granule)
            before = stocks.get(chunk.device)  # a share may be cut to overlap copies: its pieces are neighbours
            stocks[chunk.device] = Stock(chunk.device, lo if before is None else before.lo, hi, rate, granule)
        seconds = max([share.seconds or 0.0 for share in shares])
        self._shares_left = DynamicShares(
            list(stocks.values()),
            policy=planned.handout,
            least=min(0.25, max(LEAST, WORTH_IT / max(seconds, WORTH_IT))),
            worth=WORTH_IT,
        )
        self._slots = 0  # parts so far

    @property
    def left(self) -> int:
        """How many rows nobody has been given yet."""
        return self._shares_left.rows

    def first(self) -> Iterator[Given]:
        """Return the first parts, as many for each device as it has at a time, into however many its share is cut."""
        for _ in range(DEPTH):
            for device in self._shares:
                yield from self._next(device)

    def finished(self, instruction: Instruction, step: Launch, seconds: float) -> Iterator[Given]:
        """Return what is given out now that a part is over."""
        device, axis = step.device, self._site.axis
        if device not in self._shares:  # it stood in for another
            return
        if instruction.redone:
            yield from self._without(device)
            return
        rows = step.chunk.box.hi[axis] - step.chunk.box.lo[axis]
        self._shares_left.measured(device, rows, seconds)
        if not step.more:  # else the part is not over yet
            yield from self._next(device)

    def rest(self) -> Iterator[Given]:
        """Return everything that is left, for whoever has it: the program is about to end or to cancel."""
        devices = list(self._shares)
        for i, rows in enumerate(self._shares_left.rest()):
            yield devices[i % len(devices)], rows

    def part(self, device: str, rows: tuple[int, int]) -> Planned:
        """Return the command of the next part."""
        share, site, task = self._shares[device], self._site, self.task
        work = site.work(*rows)
        seconds = share.model.seconds(work, together=True) if share.model is not None else None
        share = share._replace(work=work, seconds=seconds)
        chunk = site.chunk(device, *rows, self._slots, share, self._cache)
        self._slots += 1
        return Planned(Command(task.id, task, (chunk,), task.after, self._why), (share,))

    def _next(self, device: str) -> Iterator[Given]:
        rows = self._shares_left.take(device) if self._shares_left.rows else None
        if rows is not None:
            yield device, rows

    def _without(self, device: str) -> Iterator[Given]:
        """Let the others do what a device that failed has not taken yet."""
        others = self._shares_left.leave(device)
        for other in others:
            yield from self._next(other)
        if not others:
            yield from self.rest()
