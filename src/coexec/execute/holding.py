"""Lookahead in a live runtime: what ends the waiting when the program pauses, and where the errors of held tasks go.

Before: lower/lookahead.py, execute/moment.py, execute/executor.py.  After: runtime.py.  Knows no command.
"""

from __future__ import annotations

from ..graph.task import Task, mark_reported
from ..lower.lookahead import Lookahead
from ..lower.lowering import Lowering
from ..lower.poison import poison
from .executor import Executor
from .failure import not_lowered
from .moment import Moment

PAUSE = 1e-3  # seconds without a call until what is held is lowered, if the devices have nothing to do
LONGEST_PAUSE = 32 * PAUSE  # or whatever they do


class Holding:
    """A queue between planning and lowering, and a thread that empties it."""

    def __init__(self, lowering: Lowering, executor: Executor, mode: str, *, timed: bool = True) -> None:
        self._lowering = lowering
        self._executor = executor
        self.queue = Lookahead(lowering, mode)
        self.queue.fail = self.fail
        self._moment = Moment(executor.lock, self.let_go, "coexec-lookahead", PAUSE, LONGEST_PAUSE)
        self.stop = self._moment.stop
        if mode == "auto" and timed:  # else it is emptied when the program waits
            self.queue.on_hold = self._moment.touch

    def release(self, task: Task) -> None:
        """Have everything up to `task` lowered: somebody is about to wait for it."""
        if self.queue.holding and not task.finished:
            with self._executor.lock:
                self.queue.release(task)

    def let_go(self, last: bool) -> bool:
        """Lower what is held, if the devices have nothing to do or have been busy for long. Locked, on our thread."""
        if not last and not self._executor.engine.idle:
            return not self.queue.holding
        try:
            self.queue.flush()
        except BaseException as error:  # noqa: BLE001 - ours: it must fail every wait, not vanish with this thread
            self._executor.break_down(error)
        return True

    def fail(self, task: Task, error: Exception, *, told: bool = False) -> None:
        """Fail a task that could not be lowered: whoever wants its results is told. Locked.

        Its call has returned; or, where the program was `told`, it raises, and the failure need not be reported again.
        """
        emitter, failure = self._lowering.emitter, not_lowered(task, error)
        if told:
            mark_reported(failure)
        id = emitter.id()
        try:
            poison(self._lowering, task, id)
        finally:
            task.let_go()
            self._executor.refuse(task, id, failure)
            self._executor.submit(emitter.take())
