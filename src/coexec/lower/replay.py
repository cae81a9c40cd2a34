"""Replay: a step that repeats itself in a repeated state is not analysed again, but made from a template.

Before: lower/lowering.py, lower/template.py, lower/catch_up.py.  After: runtime.py.  Pure: no thread, no device; its
caller holds the lock. While a step is replayed, the trackers of lowering and task graph stand still; as soon as the
program does something else, they are brought up to date.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..graph.command import Command
from ..graph.instruction import Allocation, Instruction
from ..graph.task import Task
from ..graph.task_graph import TaskGraph
from ..plan.candidate import Share
from ..program.array import Array, Storage
from ..program.mapping import Function
from .catch_up import Position, allocations, catch_up
from .lowering import Lowering
from .repeats import LONGEST, Event, Repeats, repeats
from .snapshot import Counters, Renaming, Snapshot, take
from .template import Line, Seen, Unrepeatable, build, deliver

LOOK_AGAIN = 8, 128  # steps that are replayed before one is planned and analysed again: at first, and in the end
HOPELESS = 16  # looks at a repetition that is none to the lowering, before looks become rare
LONGEST_NAMED = 1 << 14  # events of two steps that the program names
NAMED = 8  # ends of named steps since which everything may have repeated itself


class Replay:
    """Watches what is lowered, and takes over while it repeats itself."""

    def __init__(
        self,
        graph: TaskGraph,
        lowering: Lowering,
        plans: Callable[[], object] = lambda: None,
        held: Callable[[], bool] = lambda: False,
        *,
        on: bool = True,
    ) -> None:
        self._plans = plans  # changes when plans that were made do not hold any more
        self._held = held  # tells whether something that the program did is not lowered yet
        self._graph = graph
        self._lowering = lowering
        self.on = on
        self.steps = 0  # replayed in all
        self.tasks = 0  # replayed in all
        self.why = ""  # the last replay ended
        self._events = 0  # in all
        self._analysed = 0  # of those
        self._inside = 0  # steps that the program named and has not ended
        self._ends: deque[int] = deque(maxlen=NAMED)  # events before the last ends of such steps
        self._room = 4 * LONGEST  # events that are remembered outside of them
        self._last_array = 0
        self._given = False  # whether the last allocation belongs to the event that is being looked at
        self._playing: Position | None = None
        self._watch()

    def _watch(self) -> None:
        """Begin to look for repetition."""
        self._repeats = Repeats()
        self._seen: list[Seen] = []
        self._before: tuple[int, int, Snapshot, list[Allocation]] | None = None  # period, events until then
        self._looks = 0
        self._patience = LOOK_AGAIN[0]

    @property
    def playing(self) -> bool:
        """Whether a step is being replayed."""
        return self._playing is not None

    @property
    def between(self) -> bool:
        """Whether a step has just ended, or none is being replayed: the moment for a horizon."""
        return self._playing is None or not self._playing.open

    def _counters(self) -> Counters:
        lowering, arrays, tasks = self._lowering, self._last_array, self._graph.last
        allocations = lowering.coherence.last_allocation - self._given
        return Counters(lowering.emitter.last, allocations, arrays, tasks, lowering.last_private)

    # What the program does: asked first, while a step is replayed -------------------------------------------------

    def task(self, task: Task) -> tuple[Line, list[Instruction]] | None:
        """Return what a call is lowered to, or None if it is not what comes next."""
        if self._playing is None or (line := self._next("called", *_call(task, task.arrays), task)) is None:
            return None
        seen = line.seen.task
        if seen is not None and seen.visited is not None:
            task.visited, task.shapes = task.box, seen.shapes
        self.tasks += 1
        return line, self._playing.fill(line, task, self._graph)

    def read(self, task: Task, array: Array, to: Callable[[Any], None]) -> list[Instruction] | None:
        """Return what a host read is lowered to, or None if it is not what comes next."""
        if self._playing is None or (line := self._next("read", *_read(task, array))) is None:
            return None
        instructions = self._playing.fill(line, task, self._graph)
        deliver(instructions, to)
        return instructions

    def drop(self, id: int) -> list[Instruction] | None:
        """Return what the end of an array is lowered to, or None if it is not what comes next."""
        if self._playing is None or (line := self._next("dropped", "dropped", (id,), ())) is None:
            return None
        self._playing.gone[id] = self._lowering.states().pop(id)
        return self._playing.fill(line, None, self._graph)

    def made(self, storage: Storage, given: Allocation | None) -> None:
        """Note a new array, which is registered already."""
        initial = None if storage.initial is None else storage.initial.tobytes()  # 0.0 is not -0.0, and NaN is NaN
        what = ("made", storage.shape, storage.dtype, initial, None if given is None else given.memory)
        before = self._last_array
        self._given = given is not None
        line = self._next("made", what, (storage.id,), ()) if self._playing is not None else None
        self._given = False
        self._last_array = storage.id
        if line is not None and self._playing is not None:
            if given is not None:
                self._playing.numbers.allocations[0].append(given)
            self._playing.fill(line, None, self._graph)
        elif self.on:
            self._note(Seen(Event(what, (storage.id,), (), before), "made", self._counters(), given=given))

    # What the program did: noted afterwards, while none is ---------------------------------------------------------

    def called(
        self,
        task: Task,
        arrays: Sequence[Array],
        command: Command,
        shares: Sequence[Share],
        instructions: list[Instruction],
        *,
        late: bool = False,
    ) -> None:
        """Note a call on `arrays` that was lowered; `late`, after others that came later in the program."""
        if not self.on or self._is(late):
            return
        event = Event(*_call(task, arrays), self._last_array)
        slots = tuple([likeness(array) for array in arrays])
        mapped = _mapped(task, arrays, command.chunks) if _asks(task) else ()
        self._note(
            Seen(
                event, "called", self._counters(), instructions, task, command.chunks, tuple(shares), command.why,
                slots, mapped
            )
        )  # fmt: skip

    def has_read(self, task: Task, array: Array, instructions: list[Instruction], *, late: bool = False) -> None:
        """Note a host read that was lowered."""
        if self.on and not self._is(late):
            event = Event(*_read(task, array), self._last_array)
            self._note(Seen(event, "read", self._counters(), instructions, task, slots=(likeness(array),)))

    def dropped(self, id: int, instructions: list[Instruction], *, late: bool = False) -> None:
        """Note the end of an array."""
        if self.on and not self._is(late):
            event = Event("dropped", (id,), (), self._last_array)
            self._note(Seen(event, "dropped", self._counters(), instructions))

    def _is(self, late: bool) -> bool:
        """Tell whether something was held back: then steps are not what the program does in a row."""
        if late:
            self.skipped()
        return late

    def skipped(self) -> None:
        """Note that something was lowered that will not come again in this way."""
        if self._seen:
            self._watch()

    def disturbed(self) -> None:
        """Note that something was lowered, or is about to be, that is no part of a step."""
        self._before = None

    # Recognition ------------------------------------------------------------------------------------------------------

    def begin_step(self) -> tuple[int, int]:
        """Begin a step that the program names."""
        self._inside += 1
        self._repeats = Repeats()
        return self._events, self._analysed

    def end_step(self, begun: tuple[int, int], *, left: bool = False) -> tuple[bool, str]:
        """End a step; tell whether it was replayed, and else why not. One that was `left` has not come to its end."""
        self._inside -= 1
        if left:
            return False, "an exception left it"
        events, analysed = begun
        replayed = self._events > events and self._analysed == analysed
        why = self.why or "it has to be seen repeating itself"
        if not self._inside:
            if self._playing is None and self._analysed > analysed and not self._look_since_end():
                why = self.why or "it does not do what it did the last time"
            self._room = min(LONGEST_NAMED, max(4 * LONGEST, 4 * (self._events - (self._ends or (0,))[-1])))
            self._ends.append(self._events)
        return replayed, why if self.on else "replay is off"

    def _look_since_end(self) -> bool:
        """Look at what happened since a named step ended, with what lies between, if it is what happened before that."""
        for end in reversed(self._ends):
            period, seen = self._events - end, self._seen
            if period > len(seen) // 2:
                return False
            if period and all(repeats(seen[-i].event, seen[-i - period].event) for i in range(1, period + 1)):
                self._look(period)
                return True
        return False

    def _note(self, seen: Seen) -> None:
        self._events += 1
        self._analysed += 1
        self._seen.append(seen)
        if len(self._seen) > (LONGEST_NAMED if self._inside else self._room):
            del self._seen[: len(self._seen) // 2]
        if self._inside:  # the program says where a step ends
            return
        found = self._repeats
        found.add(seen.event)
        period, run = found.period, found.run
        if not period or run < period or run % period:
            return
        self._looks += 1
        if self._looks > HOPELESS and (run // period) & (run // period - 1):
            self._before = None
            return
        self._look(period)

    def _look(self, period: int) -> None:
        """See whether the state at the end of a step is that at its beginning, but for names."""
        if self._held():
            return  # the state is not that of the program yet, and replay would leave it so
        step, earlier = self._seen[-period:], self._seen[-2 * period : -period]
        if self._lowering.fitting.counts(i for entry in step for i in entry.instructions or ()):
            return  # what is allocated in limited memories is counted anew each time
        before = self._before
        if before is not None and before[0] == period and self._events - before[1] < period:
            return  # another end of the same step: only like ones are compared
        now = take(
            [id for s in (*earlier, *step) for id in s.event.arrays], self._counters(), self._lowering, self._graph
        )
        self._before = (period, self._events, now, [])
        if before is None or before[0] != period or self._events - before[1] != period:
            return
        if any(entry.task is not None and (entry.task.guess or entry.task.trial) for entry in step):
            return  # what is being measured will change the plan
        if not any(entry.instructions for entry in step):
            return
        start = before[2].counters
        renaming = Renaming(start, now.counters.since(start))
        arrays = _renamed(earlier, step, renaming.made.arrays)
        if not all(id in arrays for id in before[2].arrays) or not renaming.holds(before[2], now, arrays):
            return
        tables = [allocations(step), before[3] or allocations(earlier)]
        try:
            lines = build(earlier, step, start, renaming, arrays)
            self._playing = Position(lines, tables, now, renaming, arrays, self._lowering.emitter.front)
        except Unrepeatable:
            return
        self._version = self._plans()
        self._looks = 0

    # Replay -----------------------------------------------------------------------------------------------------------

    def _next(
        self, kind: str, what: Any, arrays: Sequence[int], views: Sequence[Any], task: Task | None = None
    ) -> Line | None:
        """Return the line of the next event of the step, if that is what happens; else stop."""
        playing = self._playing
        assert playing is not None
        if not playing.open:
            if playing.replayed >= self._patience or self._plans() is not self._version:
                self._look_again(playing)
                return None
            playing.begin(self._counters(), self._lowering, self._graph)
        line = playing.lines[playing.at]
        if line.kind != kind or not line.meets(what, arrays, views, playing.numbers.arrays):
            self.stop(f"{kind} {_name(what)} instead of {line.kind} {_name(line.what)}")
            return None
        if task is not None and line.seen.mapped and _mapped(task, task.arrays, line.seen.chunks) != line.seen.mapped:
            self.stop(f"{task.name}: a range mapper answers differently")
            return None
        self._events += 1
        if playing.advance():
            self.steps += 1
        return line

    def stop(self, why: str) -> None:
        """Bring everything up to date, and begin anew to look for repetition."""
        if self._playing is not None:
            playing, self._playing = self._playing, None
            catch_up(playing, self._lowering, self._graph)
            self.why = why
        if self.on:
            self._watch()

    def _look_again(self, playing: Position) -> None:
        """Let one step be planned and analysed; if that leads to the same state again, replay goes on."""
        self._playing = None
        self._patience = min(2 * self._patience, LOOK_AGAIN[1])
        catch_up(playing, self._lowering, self._graph)
        arrays = [playing.array(id) for id in playing.snapshot.arrays]
        now = take(arrays, self._counters(), self._lowering, self._graph)
        self._before = (len(playing.lines), self._events, now, playing.numbers.allocations[0])
        self.why = "time to look again"

    def pause(self) -> None:
        """Bring everything up to date between two steps, for a horizon."""
        if self._playing is not None:
            catch_up(self._playing, self._lowering, self._graph)
        self.disturbed()

    def resume(self, failed: Collection[int]) -> None:
        """Go on after a horizon, which does not stand for what has `failed`."""
        if self._playing is not None:
            emitter = self._lowering.emitter
            if self._playing.behind(emitter.epoch):
                self._playing, self.why = None, "a horizon stands for the last step"
                self._watch()
            else:
                self._playing.passed(emitter.front, emitter.epoch, self._graph.horizon, failed)


def _renamed(earlier: Sequence[Seen], step: Sequence[Seen], made: int) -> dict[int, int]:
    """Return which array of a step stands for which of the step before it; none that stands for two."""
    found: dict[int, int] = {}
    for a, b in zip(earlier, step, strict=True):
        for other, id in zip(a.event.arrays, b.event.arrays, strict=True):
            key = id if id == other else id - made
            if found.setdefault(key, id) != id:
                return {}
    return found


def likeness(array: Array) -> tuple[Any, ...]:
    """Return what lowering needs to know of `array` beside its storage."""
    return array._box, array._cut, array._grid, array.shape, array.size, array.dtype, array.nbytes


def _call(task: Task, arrays: Sequence[Array]) -> tuple[Any, tuple[int, ...], tuple[Any, ...]]:
    kernel = task.kernel
    assert kernel is not None
    what: Any = (kernel, task.key, task.options)
    if task.deal is not None:
        what = (*what, task.deal)
    if kernel.looked_at:
        what = (*what, *[None if type(v := task.scalars[name]) is Array else v for name in kernel.looked_at])
    if len(task.accesses) > len(kernel.array_params):
        what = (*what, *[param.name for param in task.accesses[len(kernel.array_params) :]])  # arrays as scalars
    views = tuple([(array._box, array._cut) for array in arrays])
    return what, tuple([array._storage.id for array in arrays]), views


def _read(task: Task, array: Array) -> tuple[Any, tuple[int, ...], tuple[Any, ...]]:
    return "read" if task.deal is None else ("read", task.deal), (array._storage.id,), ((array._box, array._cut),)


def _asks(task: Task) -> bool:
    """Tell whether what the task touches is the answer of a user's function."""
    return any(type(param.access.mapper) is Function for param in task.accesses)


def _mapped(task: Task, arrays: Sequence[Array], chunks: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        [
            param.access.mapper.boxes(chunk.box, task.space, array.shape)
            for param, array in zip(task.accesses, arrays, strict=True)
            if type(param.access.mapper) is Function
            for chunk in chunks
        ]
    )


def _name(what: Any) -> str:
    first = what[0] if isinstance(what, tuple) else what
    return str(getattr(first, "name", first))
