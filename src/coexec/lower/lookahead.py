"""Lookahead: hold commands back until their allocations have their final size, and lower everything in program order.

Before: lower/lowering.py.  After: execute/on_demand.py, execute/upkeep.py, runtime.py.  Pure: no thread and no clock.

Growing an allocation means a second one, a copy, and both at once in a memory that may not have the room. So a command
that would allocate part of an array waits in a queue until later commands have shown what else of it they need: until
nothing was added for two steps of four levels of the critical path, or of 64 tasks. Whatever the program does
afterwards waits behind it. A box that is the whole array cannot grow, so its command does not wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from ..geometry import Box
from ..graph.command import Command
from ..graph.task import Task
from ..machine.platform import HOST, USER
from ..program.array import Array
from .lowering import Lowering
from .state import ArrayState, Foreseen
from .touch import Draft

LEVELS = 2 * 4  # levels of the critical path without growth, after which no more is expected
TASKS = 2 * 64  # or tasks
MOST_HELD = 256  # commands: a program whose arrays always grow does not wait for its end
REMEMBERED = 1024  # arrays whose final sizes are remembered, by how they were first used
LEVELS_KEPT = 2048

Act = Callable[[], object]
Lower = Callable[[Draft | None], None]
Fail = Callable[[Task, Exception], None]


class Held(NamedTuple):
    """Something that is lowered later."""

    act: Act
    task: Task | None = None
    waits: Sequence[Foreseen] = ()  # the allocations that may still grow


def _raise(task: Task, error: Exception) -> None:
    del task
    raise error


def _nothing() -> None:
    """Tell nobody."""


class Lookahead:
    """The queue between planning and lowering. Everything here happens under the program's lock."""

    def __init__(self, lowering: Lowering, mode: str = "auto", *, most: int = MOST_HELD) -> None:
        self._lowering = lowering
        self._mode = mode
        self._most = most
        self.fail: Fail = _raise  # takes what goes wrong when a held command is lowered
        self.on_hold: Act = _nothing  # told of every command that stays held
        self.blocked = False  # a task is being handed out: nothing else may be lowered
        self._held: deque[Held] = deque()
        self._due = 0  # how many of the held must go, whatever they wait for
        self._busy = False
        self._foreseen: dict[ArrayState, None] = {}  # the arrays of held commands
        self._levels: dict[int, int] = {}  # of the tasks since something is held
        self._floor = self._level = self._tasks = 0
        self._known: dict[Hashable, list[Box]] = {}  # how an array was first used -> what was needed of it in the end
        self._memories = {device.name: device.memory for device in lowering.platform.devices} | {"host": HOST}
        paged = all(lowering.platform.memories[memory].paged for memory in self._memories.values())
        self.off = mode == "none" or paged  # whole arrays everywhere: nothing grows
        if mode == "auto" and not self.off:
            lowering.coherence.backed = self._learn

    @property
    def holding(self) -> bool:
        """Whether something is held back."""
        return bool(self._held)

    @property
    def late(self) -> bool:
        """Whether what is being lowered now was held back."""
        return self._busy

    def __len__(self) -> int:
        return len(self._held)

    # In ---------------------------------------------------------------------------------------------------------------

    def passes(self, command: Command) -> bool:
        """Tell at a glance whether a command need not be looked at: nothing is held, and its arrays are there whole."""
        if self._held:
            return self._busy  # it comes from the queue
        if self.off:
            return True
        complete = [array._storage.state.complete for array in command.task.arrays]
        memory = -1
        for chunk in command.chunks:
            if memory != (memory := self._memories[chunk.device]):
                for memories in complete:
                    if memory not in memories:
                        return False
        return True

    def command(self, command: Command, lower: Lower) -> None:
        """Have a command lowered: at once if it allocates nothing that could grow, else when that is known."""
        draft = self._lowering.draft(command)
        if not self._held and draft.is_backed():
            lower(draft._replace(backed=True))
            return
        self._count(command.task)
        waits = self._anticipate(command, draft)
        if not self._held and all(map(self._settled, waits)):
            lower(draft)
            self._forget()
            return
        self._expect(command, draft)
        self._held.append(Held(lambda: lower(None), command.task, waits))
        if self._mode == "auto" and len(self._held) > self._most:
            self.flush()
        else:
            self.go_on()
        if self._held:
            self.on_hold()

    def then(self, act: Act, task: Task | None = None) -> None:
        """Do `act`, which lowers something other than a command: now, or when everything before it is lowered."""
        if not self._held and not self.blocked:
            act()
            return
        if task is not None and task.marks:
            self._levels[task.id] = max([self._levels.get(id, self._floor) for id in task.after], default=0)
        self._held.append(Held(act, task))
        self.go_on()

    def fence(self, array: Array, act: Act, task: Task) -> None:
        """Do `act`, a host read of `array`, and everything before it."""
        if self._held and not array._box.empty:
            self._need(array._storage.state, HOST, array._box, None)
        self.then(act, task)
        self.flush()

    def drop(self, storage_id: int, act: Act) -> None:
        """Do `act`, which frees an array, in its turn. From now on nothing of the array can grow."""
        state = self._lowering.states().get(storage_id)
        if state is not None and state.foreseen is not None:
            for foreseen in state.foreseen.values():
                foreseen.closed = True

        def freed() -> None:
            if state is not None:
                self._foreseen.pop(state, None)
            act()

        self.then(freed)

    # Out --------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Lower everything that is held, or have it lowered as soon as nothing is handed out any more."""
        self._due = len(self._held)
        self.go_on()

    def release(self, task: Task) -> None:
        """Lower everything up to `task`, for which somebody waits; nothing if it is not held."""
        for position, held in enumerate(self._held, 1):
            if held.task is task:
                self._due = max(self._due, position)
                self.go_on()
                return

    def release_until(self, number: int) -> None:
        """Lower everything that was dealt to ranks up to round `number`: another rank waits for it."""
        due = 0
        for position, held in enumerate(self._held, 1):
            if held.task is not None and 0 < held.task.round <= number:
                due = position
        if due:
            self._due = max(self._due, due)
            self.go_on()

    def go_on(self) -> None:
        """Lower what need not wait any longer; not within itself, however many tasks are handed out meanwhile."""
        if self._busy:
            return
        self._busy = True
        try:
            while self._held and not self.blocked and self._may_go(self._held[0]):
                self._due = max(0, self._due - 1)
                self._let_go(self._held.popleft())
        finally:
            self._busy = False
        if not self._held:
            self._forget()

    def _may_go(self, held: Held) -> bool:
        return bool(self._due) or self.off or all(map(self._settled, held.waits))

    def _let_go(self, held: Held) -> None:
        try:
            held.act()
        except Exception as error:
            if held.task is None:
                raise
            self.fail(held.task, error)

    def _forget(self) -> None:
        """Forget what was foreseen: nothing is held any more."""
        self._levels.clear()
        self._floor = self._level = self._tasks = self._due = 0
        for state in self._foreseen:
            state.foreseen = state.expected = None
        self._foreseen.clear()

    # What will be needed ----------------------------------------------------------------------------------------------

    def _count(self, task: Task) -> None:
        """Note how far the program has come: tasks, and the longest chain of them."""
        levels = self._levels
        level = levels[task.id] = 1 + max([levels.get(id, self._floor) for id in task.after], default=self._floor)
        self._level = max(self._level, level)
        self._tasks += 1
        if len(levels) > LEVELS_KEPT:
            self._levels = dict(list(levels.items())[LEVELS_KEPT // 2 :])
            self._floor = min(self._levels.values())

    def _settled(self, foreseen: Foreseen) -> bool:
        """Tell whether an allocation is not expected to grow any more."""
        if foreseen.closed or self._mode == "infinite":
            return foreseen.closed
        return self._level - foreseen.level >= LEVELS or self._tasks - foreseen.tasks >= TASKS

    def _anticipate(self, command: Command, draft: Draft) -> list[Foreseen]:
        """Note which boxes a command will need; return those allocations that it will make or grow."""
        task, found = command.task, []
        for parts in draft.chunks:
            for touch in parts:
                if not touch.box.empty and touch.state.id >= 0:  # private arrays have their size from the beginning
                    key = (task.name, touch.name, touch.state.box, touch.memory, touch.box)
                    found.append(self._need(touch.state, touch.memory, touch.box, key))
        for param, array in zip(task.accesses, task.arrays, strict=True):
            if param.access.mode == "reduce" and not array._box.empty:
                found.append(self._need(array._storage.state, HOST, array._box, None))
        return [foreseen for foreseen in found if foreseen is not None]

    def _need(self, state: ArrayState, memory: int, box: Box, key: Hashable) -> Foreseen | None:
        """Note that a box will be needed; None if that allocates nothing that could grow."""
        if (
            memory == USER
            or state.find(memory, box) is not None
            or self._lowering.coherence.may_be_whole(state, memory)
        ):
            return None
        if state.foreseen is None:
            state.foreseen = {}
            self._foreseen[state] = None
        foreseen = state.foreseen.get(memory)
        if foreseen is None:
            foreseen = state.foreseen[memory] = Foreseen(self._level - LEVELS, self._tasks)
            foreseen.boxes = self._final_boxes(state, memory, key)
        if foreseen.add(box):
            foreseen.level, foreseen.tasks = self._level, self._tasks
            foreseen.closed = foreseen.boxes == [state.box]
        return foreseen

    def _expect(self, command: Command, draft: Draft) -> None:
        """Let the planner see where data will be when this command is lowered."""
        task = command.task
        touches = [t for parts in draft.chunks for t in parts if not t.box.empty and t.state.id >= 0]
        for touch in sorted(touches, key=lambda touch: touch.writes):
            self._foreseen[touch.state] = None
            touch.state.expect(touch.memory, touch.box, writes=touch.writes)
        for param, array in zip(task.accesses, task.arrays, strict=True):
            if param.access.mode == "reduce" and not array._box.empty:
                self._foreseen[array._storage.state] = None
                array._storage.state.expect(HOST, array._box, writes=True)

    # What was needed before -------------------------------------------------------------------------------------------

    def _final_boxes(self, state: ArrayState, memory: int, key: Hashable) -> list[Box]:
        """Return what was needed in the end of an earlier array that was first used in the same way."""
        if self._mode != "auto":
            return []
        if state.origin is None:
            state.origin = {}
        known = self._known.get(state.origin.setdefault(memory, key), ())
        return [box for box in known if state.find(memory, box) is None]

    def _learn(self, state: ArrayState, memory: int) -> None:
        """Remember how far the allocations of an array have grown."""
        key = state.origin.get(memory) if state.origin is not None else None
        if key is not None:
            boxes = [backing.box for backing in state.backings[memory]]
            if self._known.get(key) != boxes:
                self._lowering.coherence.foresight += 1
            self._known[key] = boxes
            if len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]
