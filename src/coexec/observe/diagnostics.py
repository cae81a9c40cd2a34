"""What is odd about a program, said once per kind and kernel, with the remedy.

Before: lower/watch.py, plan/conflicts.py and pace.py, which find it.  After: pump.py, driver.py.  Knows no thread and no clock.

Whoever finds something holds the program's lock and may be in the middle of its work, so nothing is said there and then:
`speak` does, on the program's own thread, outside the lock, where a warning that was turned into an error does no harm.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ..backend.base import Ran
from ..errors import CoexecWarning, PerformanceWarning, ProgramError
from ..geometry import Box, Region
from ..graph.instruction import Allocation, Copy, Instruction
from ..graph.task import Task
from ..lower.state import ArrayState
from ..lower.watch import Unwritten
from ..machine.platform import Platform
from ..origin import program_depth
from .keeping_up import Progress, SchedulingPace

OFTEN = 10  # allocations of one array in one memory, or moves of one box back to where it came from
SMALL = 1 << 16  # bytes: a box smaller than this may go to and fro as often as it likes
BOXES, ARRAYS = 64, 256  # whose moves are remembered: boxes per array, and arrays
SUBJECTS = 10_000  # kinds and kernels that are remembered as said


def _nowhere(text: str) -> None:
    del text


class Diagnostics:
    """Collects what is odd, says it once, and raises it at the call if the policy is "error"."""

    def __init__(
        self, policy: str, platform: Platform, note: Callable[[str], None] = _nowhere, *, timed: bool = False
    ) -> None:
        """Begin. `timed` is true if records have real times, and the program does not wait for each call."""
        self.on, self.strict = policy != "off", policy == "error"
        self.pending: list[tuple[type[CoexecWarning], str]] = []
        self._memories = [memory.name for memory in platform.memories]
        self._note = note
        self._said: set[tuple[str, str]] = set()
        self._growths: dict[int, dict[int, int]] = {}  # array -> memory -> how often its allocation grew
        self._moves: dict[int, dict[Box, _Move]] = {}
        self._pace = SchedulingPace(self.say) if self.on and timed else None

    def say(self, kind: str, subject: str, text: str, category: type[CoexecWarning] = PerformanceWarning) -> None:
        """Remember a warning, unless this kind was said about this subject before, or nobody wants to hear it."""
        if not self.on or (kind, subject) in self._said or len(self._said) >= SUBJECTS:
            return
        self._said.add((kind, subject))
        self._note(text)
        self.pending.append((category, text))

    def speak(self) -> None:
        """Warn of everything that was found since the last time, at the program's present line."""
        while self.pending:
            category, text = self.pending.pop(0)
            warnings.warn(text, category, stacklevel=program_depth())

    # What the program asks for ----------------------------------------------------------------------------------------

    def unwritten(self, task: Task, found: Sequence[Unwritten]) -> None:
        """Take note of reads of what nobody wrote; raise ProgramError under the policy "error"."""
        first = found[0]
        region = Region([part.box for part in found if part.state is first.state])
        boxes = ", ".join(map(str, region.boxes[:3])) + (", ..." if len(region.boxes) > 3 else "")
        if task.kernel is None:
            text = f"a host read of {_array(first.state)} sees {boxes}, which nothing has written; "
            remedy = "start from cx.zeros or cx.array, or write it first"
        else:
            text = f"{_task(task.name, task.call, task.line)} reads {boxes} of {first.name!r}, {_array(first.state)}, which nothing has written; "
            remedy = "start from cx.zeros or cx.array, or declare cx.write if the body assigns every element"
        if self.strict:
            raise ProgramError(text + remedy)
        self.say("unwritten", task.name, text + remedy, CoexecWarning)

    def conflict(self, task: Task, text: str, both_write: bool) -> None:
        """Take note that parts of a task get in each other's way.

        Raise ProgramError if they write the same elements and the policy is "error".
        """
        if self.strict and both_write:
            raise ProgramError(text)
        self.say("conflict", task.name, text, CoexecWarning)

    def kept_out(self, task: Task, devices: Sequence[str]) -> None:
        """Take note that devices do nothing of a task because its arguments overlap."""
        text = f"{_task(task.name, task.call, task.line)} was given arguments that overlap, so {', '.join(devices)} "
        self.say(
            "kept out",
            task.name,
            f"{text}does nothing of it: what comes out then is what its body gives with NumPy; pass a copy, x.copy()",
        )

    # What that costs --------------------------------------------------------------------------------------------------

    def grew(self, task: Task | None, state: ArrayState, memory: int) -> None:
        """Count how often an array was allocated anew because it had to be larger."""
        counts = self._growths.setdefault(state.id, {})
        counts[memory] = counts.get(memory, 1) + 1  # the first allocation was no growth
        if counts[memory] == OFTEN and task is not None:
            self.say(
                "reallocations",
                task.name,
                f"{_array(state)} was allocated {OFTEN} times in {self._memories[memory]}, a little larger each time, last "
                f"for {_task(task.name, task.call, task.line)}; touch its final size first, or hold "
                "allocations back until it is known with Runtime(lookahead='infinite')",
            )

    def copied(self, task: Task | None, copy: Copy) -> None:
        """Count how often the same box went back to where it came from, because a task needed it there."""
        source, target = copy.source, copy.target
        if task is None or source.array < 0 or copy.reason != "coherence":
            return
        for box in copy.boxes:
            if box.volume * source.dtype.itemsize < SMALL:
                continue
            if len(self._moves) >= ARRAYS and source.array not in self._moves:
                self._moves.clear()
            moves = self._moves.setdefault(source.array, {})
            move = moves.get(box)
            if move is None:
                if len(moves) >= BOXES:
                    moves.clear()
                moves[box] = _Move(source.memory, target.memory, task)
            elif move.again(source.memory, target.memory, task):
                self._to_and_fro(source, box, move)

    def _to_and_fro(self, allocation: Allocation, box: Box, move: _Move) -> None:
        here, there = self._memories[move.target], self._memories[move.source]
        self.say(
            "to and fro",
            move.asked[0],
            f"{box} of an array of type {allocation.dtype} moved {OFTEN} times to and fro between {here} and {there}: "
            f"{_task(*move.asked)} needs it in {here}, {_task(*move.before)} in {there}; run both on one device with "
            ".using(devices=...)",
        )

    @property
    def remembered(self) -> int:
        """How many arrays are watched for what they cost."""
        return len(self._growths.keys() | self._moves.keys())

    def dropped(self, array: int) -> None:
        """Forget an array."""
        self._growths.pop(array, None)
        self._moves.pop(array, None)

    # How fast it goes -------------------------------------------------------------------------------------------------

    def ran(self, records: Sequence[Ran]) -> None:
        """Look at instructions that finished, or at some of them. Replayed calls are lowered only once, so lowering does not see them all."""
        if self._pace is not None and self._pace.ran(records):
            for ran in records:
                step = ran.instruction.step
                if type(step) is Copy:
                    self.copied(ran.instruction.task, step)

    @contextmanager
    def unpaced(self) -> Iterator[None]:
        """Count nothing within: coexec itself calls and waits, to try what a program could do."""
        kept, self._pace = self._pace, None
        try:
            yield
        finally:
            self._pace = kept

    def waited(self, seconds: float, tasks: int, *, own: bool) -> None:
        """Note that the program waited for so many seconds, and say what is odd. `tasks` is the number of tasks so far; `own`: the wait is one."""
        if self._pace is not None:
            self._pace.waited(seconds, tasks, own=own)
        if self.pending:
            self.speak()

    def close(self) -> None:
        """Find what can be told at the end only."""
        if self._pace is not None:
            self._pace.close()

    def progress(
        self, lock: AbstractContextManager[Any], issued: Callable[[], Sequence[Instruction]], clock: Callable[[], float]
    ) -> Callable[[], None]:
        """Return what a thread that waits calls now and then: it tells if nothing finishes any more."""
        progress = self.stuck = Progress(self.say, lock, issued, clock)

        def look() -> None:
            if self.on:
                progress.look()
                self.speak()

        return look


class _Move:
    """The last copy of a box between two memories, and how many copies in a row went back where the one before came from."""

    __slots__ = ("_back", "asked", "before", "source", "target")

    def __init__(self, source: int, target: int, task: Task) -> None:
        self.source, self.target = source, target
        self.asked = self.before = (task.name, task.call, task.line)
        self._back = 0

    def again(self, source: int, target: int, task: Task) -> bool:
        """Note the next move; tell whether it was the way back for the tenth time."""
        back = (source, target) == (self.target, self.source)
        self.source, self.target = source, target
        if not back:
            return False
        self._back += 1
        self.before, self.asked = self.asked, (task.name, task.call, task.line)
        return self._back == OFTEN


def _task(name: str, call: str, line: int) -> str:
    return f"task {name!r} ({Path(call).name}:{line})" if call else f"task {name!r}"


def _array(state: ArrayState) -> str:
    return f"an array of shape {state.box.hi} and type {state.dtype}"
