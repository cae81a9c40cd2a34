"""Whether scheduling keeps up with execution, and whether execution goes on at all: found from what ran and who waited.

Before: execute/ (its records).  After: diagnostics.py, which says it; pump.py.  Costs the calls themselves nothing.

All of the first records are studied and later one in eight, so a figure is a good estimate, not a count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..backend.base import Ran
from ..execute.inline_calls import EVERY
from ..graph.instruction import Copy, Fill, HostLaunch, Instruction, Launch, Reduce
from ..graph.task import Task
from .analysis.intervals import length, merge
from .pictures.svg import seconds_text

Say = Callable[[str, str, str], None]
"""Takes the kind of a finding, its subject, and the text."""

ALL_OF, ONE_IN = 1024, 8  # records studied
MANY = 500  # tasks of one kernel, studied, before they may be called too small
FEW = 100  # tasks: below that, how a program is scheduled does not matter
SYNCS = 0.1  # of the tasks
SHORT = 1e-3  # seconds: a wait this long is for work, not for the wait's own sake
STARVED = 0.2  # of the active time
MOMENT = 5e-3  # seconds of activity below which nothing is said
PATIENCE = 20.0  # seconds without any completion
WORKING = frozenset({Launch, HostLaunch, Reduce, Copy, Fill})


class _Tally:
    """What is known of the tasks of one kernel."""

    __slots__ = ("scheduling", "seconds", "starved", "tasks")

    def __init__(self) -> None:
        self.tasks = 0
        self.seconds = self.scheduling = self.starved = 0.0


class SchedulingPace:
    """Studies records and waits of a run in real time."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._seen = self._studied = 0
        self._kernels: dict[str, _Tally] = {}
        self._busy = 0.0
        self._syncs, self._waited, self._last = 0, 0.0, 0

    def ran(self, records: Sequence[Ran]) -> bool:
        """Study what finished, or some of it; tell whether these were."""
        self._seen += len(records)
        if self._studied > ALL_OF and self._studied * ONE_IN > self._seen:
            return False
        self._studied += len(records)
        working: list[tuple[float, float]] = []
        for instruction, _, _, start, stop, waited, _ in records:
            step = instruction.step
            if type(step) in WORKING:
                working.append((start, stop))
                if type(step) is Launch:
                    self._tally(instruction.task, step, stop - start - waited)
        self._busy += length(merge(working))
        return True

    def _tally(self, task: Task, step: Launch, seconds: float) -> None:
        if task.studied and not step.chunk.slot:
            # A known call, run again in the caller and not scheduled; one record stands for several.
            self._busy += seconds * (EVERY - 1)
            return
        tally = self._kernels.get(task.name)
        if tally is None:
            tally = self._kernels[task.name] = _Tally()
        tally.seconds += seconds
        if step.chunk.slot:
            return  # its task is counted with its first part
        task.studied = True
        tally.tasks += 1
        tally.scheduling += task.scheduling
        if task.starved:
            tally.starved += task.scheduling
        if tally.tasks == MANY and tally.seconds < tally.scheduling:
            self._say(
                "small tasks",
                task.name,
                f"kernel {task.name!r} computes for {seconds_text(tally.seconds / MANY)} per task and costs "
                f"{seconds_text(tally.scheduling / MANY)} to schedule, over {MANY} tasks; let each call do more (larger "
                "arrays, several steps in one body), or use plain NumPy for arrays this small",
            )

    def waited(self, seconds: float, tasks: int, *, own: bool) -> None:
        """Note that the program waited, after so many tasks in all. Waits with no work between them are one.

        `own` tells that the wait is itself the last of the tasks, as a read is.
        """
        between, self._last = tasks - self._last - own, tasks
        if between > 0:
            self._syncs += 1
        self._waited += seconds
        if tasks > FEW and self._syncs > SYNCS * tasks and self._waited < SHORT * self._syncs:
            self._say(
                "waits",
                "",
                f"the program waited {self._syncs} times in {tasks} tasks, for {seconds_text(self._waited / self._syncs)} "
                "each: the devices stand still until it goes on; read results (np.asarray, float, item, cx.wait) only where "
                "they are needed, e.g. test for convergence every tenth step",
            )

    def starvation(self) -> tuple[float, float]:
        """Return the seconds in which nothing ran because a task was being scheduled, and the seconds of activity."""
        scale = self._seen / self._studied if self._studied else 0.0
        starved = sum([tally.starved for tally in self._kernels.values()])
        return starved * scale, (starved + self._busy) * scale

    def close(self) -> None:
        """Tell what can be told at the end only."""
        starved, active = self.starvation()
        if active <= MOMENT or starved <= STARVED * active or sum(t.tasks for t in self._kernels.values()) <= FEW:
            return
        worst = sorted(self._kernels, key=lambda name: -self._kernels[name].starved)[:3]
        self._say(
            "starvation",
            "",
            f"for about {seconds_text(starved)}, {starved / active:.0%} of the active time, every device stood idle while "
            f"tasks were being scheduled (most of it for {', '.join(map(repr, worst))}); make the tasks larger, repeat the "
            "same steps so that they are replayed, or use fewer devices",
        )


class Progress:
    """Notices that nothing finishes any more while somebody waits."""

    def __init__(
        self,
        say: Say,
        lock: AbstractContextManager[Any],
        issued: Callable[[], Sequence[Instruction]],
        clock: Callable[[], float],
        patience: float = PATIENCE,
    ) -> None:
        self._say, self._lock, self._issued, self._clock, self.patience = say, lock, issued, clock, patience
        self._open: set[int] = set()
        self._since = 0.0

    def look(self) -> None:
        """Compare what runs with what ran the last time. Called by a thread that waits, now and then."""
        now = self._clock()
        with self._lock:
            issued = self._issued()
            ids = {instruction.id for instruction in issued}
            if not self._open or not self._open <= ids:
                self._open, self._since = ids, now
            elif now - self._since >= self.patience:
                self._tell([i for i in issued if i.id in self._open], now - self._since)

    def _tell(self, issued: Sequence[Instruction], seconds: float) -> None:
        running = [(i.task, i.device) for i in issued if type(i.step) in WORKING and i.task is not None]
        names = dict.fromkeys(f"T{task.id} {task.name!r} on {device}" for task, device in running)
        if names:
            self._say(
                "no progress",
                running[0][0].name,
                f"nothing has finished for {seconds:.0f} s while the program waits; running: {', '.join(list(names)[:5])}; "
                "if that is not simply long, look for an endless loop or a lock in the body: Runtime(sync=True) runs it in "
                "the caller, under a debugger",
            )
