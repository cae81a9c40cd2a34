"""Tasks whose parts are handed out while they run: `policy="dynamic"` and `policy="auto"`.

Before: plan/handout.py, lower/, execute/executor.py.  After: runtime.py.  Everything here happens under the program's lock.

One task is open at a time. What the program does meanwhile stands in lookahead's queue, and is lowered after the last
part was handed out: only then is it known which memory holds what. Nothing waits for that but the lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..backend.base import Ran
from ..graph.command import Command
from ..graph.instruction import Instruction, Kernel
from ..graph.task import Task
from ..lower.lookahead import Lookahead
from ..machine.platform import Platform
from ..plan.candidate import Share
from ..plan.handout import Handout, Stock
from ..plan.offering import HANDING_OVER, Site
from ..plan.place import Loads
from ..plan.planned import Planned

DEPTH = 2  # parts that each device has at a time: one runs, the next is being copied
LEAST = 0.01  # of the task's time that a part lasts at least: the last ones decide how evenly all finish
WORTH_IT = 8 * HANDING_OVER  # seconds that a part lasts at least

Lower = Callable[[Command, Sequence[Share]], list[Instruction]]
Submit = Callable[[Command, list[Instruction]], None]


class OpenTask:
    """The task that is being handed out."""

    def __init__(self, planned: Planned, site: Site, policy: str, cache: int, platform: Platform) -> None:
        self._cache = cache
        command, shares = planned.command, planned.shares
        self.task: Task = command.task
        self.why = command.why
        self.site = site
        self.shares = {chunk.device: share for chunk, share in zip(command.chunks, shares, strict=True)}
        first = site.box.lo[site.axis]
        stocks: dict[str, Stock] = {}
        for chunk, share in zip(command.chunks, shares, strict=True):
            lo, hi = chunk.box.lo[site.axis] - first, chunk.box.hi[site.axis] - first
            rate, granule = (hi - lo) / (share.seconds or 1.0), site.granule(platform.device(chunk.device).granule)
            before = stocks.get(chunk.device)  # a share may be cut to overlap copies: its pieces are neighbours
            stocks[chunk.device] = Stock(chunk.device, lo if before is None else before.lo, hi, rate, granule)
        seconds = max([share.seconds or 0.0 for share in shares])
        self.handout = Handout(
            list(stocks.values()),
            policy=policy,
            least=min(0.25, max(LEAST, WORTH_IT / max(seconds, WORTH_IT))),
            worth=WORTH_IT,
        )
        self.slots = 0

    def command(self, device: str, rows: tuple[int, int]) -> tuple[Command, tuple[Share]]:
        """Return the command of the next part."""
        share, site = self.shares[device], self.site
        work = site.work(*rows)
        seconds = share.model.seconds(work, together=True) if share.model is not None else None
        share = share._replace(work=work, seconds=seconds)
        chunk = site.chunk(device, *rows, self.slots, share, self._cache)
        self.slots += 1
        return Command(self.task.id, self.task, (chunk,), self.task.after, self.why), (share,)


class OnDemand:
    """Hands out one task at a time; what comes after it waits."""

    def __init__(
        self,
        lower: Lower,
        submit: Submit,
        loads: Loads,
        release: Callable[[Task], None],
        later: Lookahead,
        *,
        cache: int = 1 << 62,
    ) -> None:
        self._cache = cache  # bytes of arrays that a piece of a blocked part may touch
        self._lower = lower
        self._submit = submit
        self._loads = loads
        self._release = release
        self._later = later  # what comes after the open task
        self._open: OpenTask | None = None

    @property
    def open(self) -> bool:
        """Whether something is being handed out, so that nothing else may be lowered."""
        return self._open is not None

    def begin(self, planned: Planned, site: Site, policy: str) -> None:
        """Open a task and give each device its first parts. Everything before it is lowered."""
        task = planned.command.task
        opened = self._open = OpenTask(planned, site, policy, self._cache, self._loads.platform)
        self._later.blocked = True
        task.open += 1  # it is not over before its last part is handed out
        for _ in range(DEPTH):
            for device in opened.shares:  # once each, into however many pieces the plan cuts its share
                self._next(opened, device)

    def finished(self, ran: Ran) -> None:
        """Give the device that finished a part of the open task another one."""
        opened, instruction = self._open, ran.instruction
        if opened is None or instruction.task is not opened.task or not isinstance(instruction, Kernel):
            return
        if instruction.device not in opened.shares:  # it stood in for another
            return
        if instruction.redone:
            self._without(opened, instruction.device)
            return
        seconds, axis = ran.stop - ran.start, opened.site.axis
        rows = instruction.chunk.box.hi[axis] - instruction.chunk.box.lo[axis]
        opened.handout.measured(instruction.device, rows, seconds)
        if not instruction.more:  # else the part is not over yet
            self._next(opened, instruction.device)

    def _without(self, opened: OpenTask, device: str) -> None:
        """Let the others do what a device that failed has not taken yet."""
        others = opened.handout.leave(device)
        for other in others:
            self._next(opened, other)
        if not others:
            self._hand_out_the_rest(opened)

    def _next(self, opened: OpenTask, device: str) -> None:
        if opened is not self._open:
            return
        rows = opened.handout.take(device)
        if rows is not None:
            self._give(opened, device, rows)
        if not opened.handout.rows:
            self._close(opened)

    def _give(self, opened: OpenTask, device: str, rows: tuple[int, int]) -> None:
        command, shares = opened.command(device, rows)
        self._loads.add(device, shares[0].seconds, 0.0, opened.task.id)
        self._submit(command, self._lower(command, shares))

    def flush(self) -> None:
        """Hand out everything that is left, at once, to whoever has it: the program is about to end or to cancel."""
        while self._open is not None:
            self._hand_out_the_rest(self._open)

    def _hand_out_the_rest(self, opened: OpenTask) -> None:
        devices = list(opened.shares)
        for i, rows in enumerate(opened.handout.rest()):
            self._give(opened, devices[i % len(devices)], rows)
        self._close(opened)

    def _close(self, opened: OpenTask) -> None:
        if self._open is opened:
            self._open = None
            opened.task.let_go()
            self._release(opened.task)
            self._later.blocked = False
            self._later.go_on()
