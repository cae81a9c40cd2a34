"""The layer that holds commands back until their allocations have their final size. Everything stays in program order.

Before: schedule/plan.py.  After: schedule/lower.py.  Pure: no thread and no clock.

Growing an allocation means a second one, a copy, and both at once in a memory that may not have the room. So a command
that would allocate part of an array waits in a queue until later commands have shown what else of it they need: until
nothing was added for two steps of four levels of the critical path, or of 64 tasks. Whatever the program does
afterwards waits behind it. A box that is the whole array cannot grow, so its command does not wait.

A read lets everything go at once, often before a step of the program was seen as a whole. Then arrays that the same calls
touch, of one shape and type, are taken to change places in the next step: each gets the halo of the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from ..geometry import Box
from ..graph.command import Command
from ..graph.task import Task
from ..lower.state import ArrayState, Foreseen
from ..lower.touch import Draft, Touch
from ..machine.platform import HOST, USER
from ..plan.planned import Planned
from .events import Dropped, Mark, Read, Settle
from .lower import LowerLayer

LEVELS = 2 * 4  # levels of the critical path without growth, after which no more is expected
TASKS = 2 * 64  # or tasks
MOST_HELD = 256  # commands: a program whose arrays always grow does not wait for its end
REMEMBERED = 1024  # arrays whose final sizes are remembered, by how they were first used
LEVELS_KEPT = 2048

Lowered = Planned | Read | Mark | Dropped
"""What is lowered."""


class HeldItem(NamedTuple):
    """Something that is lowered later."""

    item: Lowered
    task: Task | None = None
    waits: Sequence[Foreseen] = ()  # the allocations that may still grow


class HoldLayer:
    """The queue between planning and lowering."""

    def __init__(self, successor: LowerLayer, mode: str = "auto", *, most: int = MOST_HELD) -> None:
        self._successor = successor
        self._lowering = lowering = successor.lowering
        self._mode = mode
        self._most = most
        self.held: deque[HeldItem] = deque()
        self._due = 0  # how many of the held must go, whatever they wait for
        self._busy = False  # what is being lowered now was held back
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
        return bool(self.held)

    def __len__(self) -> int:
        return len(self.held)

    # In ---------------------------------------------------------------------------------------------------------------

    def on(self, item: Read | Mark | Dropped) -> None:
        """Have something lowered: now, or when everything before it is."""
        if isinstance(item, Dropped):
            self._dropped(item)
        elif isinstance(item, Read):
            if self.held and not item.array._box.empty:
                self._need(item.array._storage.state, HOST, item.array._box, None)
                self._guess()
            self._then(item)
            self._settle_all()
        else:
            if self.held:
                levels = [self._levels.get(id, self._floor) for id in item.task.after]
                self._levels[item.task.id] = max(levels, default=0)
            self._then(item)
            if not item.horizon:
                self._settle_all()

    def command(self, planned: Planned) -> None:
        """Lower a command at once if it allocates nothing that could grow, else when that is known."""
        command = planned.command
        if not self.held and (self._successor.recall(planned) or self._lower_known(planned, command)):
            return
        draft = self._lowering.draft(command)
        if not self.held and draft.is_backed():
            self._successor.lower(planned, draft._replace(backed=True))
            return
        self._count(command.task)
        waits = self._anticipate(command, draft)
        if not self.held and all(map(self._settled, waits)):
            self._successor.lower(planned, draft)
            self._forget()
            return
        self._expect(command, draft)
        self.held.append(HeldItem(planned, command.task, waits))
        if self._mode == "auto" and len(self.held) > self._most:
            self._settle_all()
        else:
            self._go_on()

    def _lower_known(self, planned: Planned, command: Command) -> bool:
        """Lower a command that need not be looked at, because its arrays are there whole; tell whether it was."""
        if not self.off:
            complete = [array._storage.state.complete for array in command.task.arrays]
            last = -1
            for chunk in command.chunks:
                memory = self._memories[chunk.device]
                if memory != last:
                    last = memory
                    for memories in complete:
                        if memory not in memories:
                            return False
        self._successor.lower(planned, None)
        return True

    def _then(self, item: Read | Mark | Dropped) -> None:
        """Lower something other than a command: now, or when everything before it is."""
        if not self.held:
            self._successor.on(item)
            return
        self.held.append(HeldItem(item, None if isinstance(item, Dropped) else item.task))
        self._go_on()

    def _dropped(self, item: Dropped) -> None:
        """Free an array in its turn. From now on nothing of it can grow."""
        state = self._lowering.states().get(item.array)
        if state is not None and state.foreseen is not None:
            for foreseen in state.foreseen.values():
                foreseen.closed = True
        self._then(item)

    def part(self, planned: Planned, *, more: bool) -> None:
        """Lower a part that is handed out. Nothing is held: everything before it was let go."""
        self._successor.part(planned, more=more)

    def refuse(self, task: Task, error: Exception, *, told: bool = False) -> None:
        """Let a task fail that cannot be lowered."""
        self._successor.refuse(task, error, told=told)

    def has_begun(self, task: Task) -> bool:
        """Tell whether some of a task was lowered that could not be lowered as a whole."""
        return self._lowering.has_begun(task)

    # Out --------------------------------------------------------------------------------------------------------------

    def settle(self, event: Settle) -> None:
        """Lower everything that is held, or everything up to a task or a round."""
        if event.task is not None:
            self._settle_until([held.task is event.task for held in self.held])
        elif event.round:
            rounds = [0 if held.task is None else held.task.round for held in self.held]
            self._settle_until([0 < number <= event.round for number in rounds])
        else:
            self._guess()
            self._settle_all()

    def _settle_all(self) -> None:
        self._due = len(self.held)
        self._go_on()

    def _settle_until(self, wanted: list[bool]) -> None:
        """Lower everything up to the last that somebody waits for; nothing if it is not held."""
        if True in wanted:
            self._due = max(self._due, len(wanted) - wanted[::-1].index(True))
            self._go_on()

    def _go_on(self) -> None:
        """Lower what need not wait any longer."""
        if self._busy:
            return
        self._busy = True
        try:
            while self.held and self._may_go(self.held[0]):
                self._due = max(0, self._due - 1)
                self._let_go(self.held.popleft())
        finally:
            self._busy = False
        if not self.held:
            self._forget()

    def _may_go(self, held: HeldItem) -> bool:
        return bool(self._due) or self.off or all(map(self._settled, held.waits))

    def _let_go(self, held: HeldItem) -> None:
        item = held.item
        if isinstance(item, Dropped):
            state = self._lowering.states().get(item.array)
            if state is not None:
                self._foreseen.pop(state, None)
        try:
            if isinstance(item, Planned):
                self._successor.lower(item, None, late=True)
            else:
                self._successor.on(item, late=True)
        except Exception as error:
            if held.task is None:
                raise
            self._successor.refuse(held.task, error)

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
                    found += [self._need(touch.state, touch.memory, box, key) for box in touch.backed()]
            self._may_swap(parts)
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

    def _may_swap(self, parts: Sequence[Touch]) -> None:
        """Note what arrays of one kind that a chunk touches would need in each other's place."""
        for touch in parts:
            foreseen = touch.state.foreseen.get(touch.memory) if touch.state.foreseen is not None else None
            if foreseen is not None:
                alike = [t for t in parts if t.state is not touch.state and _of_one_kind(t, touch)]
                foreseen.likely += [box for t in alike for box in t.backed() if box not in foreseen.likely]

    def _guess(self) -> None:
        """Let allocations have what they will need if arrays change places; called when later commands are not awaited."""
        for state in self._foreseen if self._mode == "auto" else ():
            for foreseen in (state.foreseen or {}).values():
                foreseen.guess()

    def _expect(self, command: Command, draft: Draft) -> None:
        """Let the planner see where data will be when this command is lowered."""
        task = command.task
        touches = [t for parts in draft.chunks for t in parts if not t.box.empty and t.state.id >= 0]
        for touch in sorted(touches, key=lambda touch: touch.writes):
            self._foreseen[touch.state] = None
            for box in touch.backed():
                touch.state.expect(touch.memory, box, writes=touch.writes)
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


def _of_one_kind(one: Touch, other: Touch) -> bool:
    """Tell whether two arrays could stand for each other in the next step."""
    return one.memory == other.memory and one.state.box == other.state.box and one.state.dtype == other.state.dtype
