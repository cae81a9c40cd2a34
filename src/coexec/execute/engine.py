"""The engine: a pure out-of-order state machine. Instructions and completions in, "issue this on that lane" out.

Before: lower/.  After: execute/executor.py.  Knows no clock, thread or device; its caller serialises all calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from ..backend.base import Postponed
from ..graph.instruction import Instruction
from .lanes import DeviceLanes, Lane

IMMEDIATE = Lane("", -1)
"""Where allocations, horizons and epochs go: the executor does them itself, nothing is queued behind them."""


class Pending:
    """An instruction that is not over."""

    __slots__ = (
        "dependents",
        "failure",
        "handed",
        "held",
        "instruction",
        "issued",
        "lane",
        "over",
        "parents",
        "readers",
        "waiting",
    )

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.waiting = 0  # dependencies that are not over
        self.readers: list[Pending] | None = None  # those who need its result
        self.dependents: list[Pending] | None = None  # those who only come after it
        self.parents: Sequence[Pending] = ()
        self.failure: BaseException | None = None
        self.lane: Lane | None = None
        self.issued = False
        self.handed = False  # its lane was given to a child
        self.over = False
        self.held = False  # it was issued too early once: it waits until its parents are over


class Issue(NamedTuple):
    """An instruction to start now, on a lane, behind `waits` on other lanes of the same device."""

    instruction: Instruction
    lane: Lane
    waits: tuple[Instruction, ...] = ()


class Engine:
    """Decides what may start next. Starts nothing itself."""

    def __init__(self, devices: Mapping[str, DeviceLanes]) -> None:
        self._devices = devices
        self._open: dict[int, Pending] = {}
        self.ready: list[tuple[int, int, Pending]] = []  # a heap: highest priority, then oldest, first
        self.failed: dict[int, BaseException] = {}  # over, and failed: what they wrote is poisoned
        self.doomed: list[tuple[Instruction, BaseException]] = []  # ready but cancelled: the caller finishes them

    @property
    def idle(self) -> bool:
        """Whether every instruction is over."""
        return not self._open

    def __len__(self) -> int:
        return len(self._open)

    def submit(self, instruction: Instruction) -> None:
        """Take an instruction; everything it depends on was submitted before it."""
        node = Pending(instruction)
        opened = self._open
        parents: list[Pending] = []
        for id in instruction.needs:
            parent = opened.get(id)
            if parent is not None:
                if parent.readers is None:
                    parent.readers = [node]
                else:
                    parent.readers.append(node)
                parents.append(parent)
            elif self.failed and id in self.failed:
                node.failure = instruction.failure = self.failed[id]
        for id in instruction.after:
            parent = opened.get(id)
            if parent is not None:
                if parent.dependents is None:
                    parent.dependents = [node]
                else:
                    parent.dependents.append(node)
                parents.append(parent)
        opened[instruction.id] = node
        if parents:
            node.parents = parents
            node.waiting = len(parents)
            if not self._may_be_eager(node):
                return
        heappush(self.ready, (-instruction.priority, instruction.id, node))

    def _may_be_eager(self, node: Pending) -> bool:
        """Tell whether `node` may be queued behind its unfinished parents."""
        lanes = self._devices.get(node.instruction.device)
        if lanes is None or not lanes.eager or node.held:
            return False
        last = False
        first: Lane | None = None
        for parent in node.parents:
            if parent.over:
                continue
            lane = parent.lane
            if lane is None or lane.device != lanes.device:
                return False
            if first is None:
                first = lane
            elif lane is not first and not lanes.across:
                return False
            last = last or parent is lane.tail
        return last or lanes.across

    def next(self) -> Issue | None:
        """Return the ready instruction of highest priority with its lane, or None."""
        while self.ready:
            node = heappop(self.ready)[2]
            if node.issued:
                continue
            instruction = node.instruction
            if node.waiting:
                node.parents = [parent for parent in node.parents if not parent.over]
                if node.parents and not self._may_be_eager(node):
                    continue  # overtaken: it becomes ready again when its last parent is over
            if node.failure is not None and not node.waiting and not instruction.tells:
                node.issued = True
                self.doomed.append((instruction, node.failure))
                return None
            return self._assign(node, instruction)
        return None

    def _assign(self, node: Pending, instruction: Instruction) -> Issue:
        lanes = self._devices.get(instruction.device)
        node.issued = True
        if lanes is None:
            node.lane = IMMEDIATE
            node.parents = ()
            return Issue(instruction, IMMEDIATE)
        waits: tuple[Instruction, ...] = ()
        if node.waiting and not lanes.across:
            lane = node.parents[0].lane
            assert lane is not None
            for parent in node.parents:
                parent.handed = True
            instruction.eager = True
        else:
            inherited = lanes.of_parent(node.parents) if node.parents else None
            lane = inherited if inherited is not None else lanes.fresh()
            if node.waiting:
                waits = tuple(p.instruction for p in node.parents if p.lane is not lane)
                instruction.eager = True
        lane.depth += 1
        lane.tail = node
        node.lane = lane
        node.parents = ()
        device = self._devices.get
        for children in (node.readers, node.dependents):  # submitted in the same batch
            if children is not None:
                for child in children:  # on another device it must wait for this one to be over
                    if not child.issued and device(child.instruction.device) is lanes and self._may_be_eager(child):
                        heappush(self.ready, (-child.instruction.priority, child.instruction.id, child))
        return Issue(instruction, lane, waits)

    def finish(self, instruction: Instruction, failure: BaseException | None = None) -> None:
        """Note that an instruction is over. Completions may come in any order."""
        node = self._open.pop(instruction.id)
        node.over = True
        failure = failure or node.failure
        lane = node.lane
        if lane is not None and lane is not IMMEDIATE:
            lane.depth -= 1
            if lane.tail is node:
                lane.tail = None
        if failure is not None:
            self.failed[instruction.id] = failure
            for child in node.readers or ():
                if child.failure is None:
                    child.failure = child.instruction.failure = failure
        for children in (node.readers, node.dependents):
            if children is not None:
                for child in children:
                    child.waiting -= 1
                    if not child.issued and (not child.waiting or (lane is IMMEDIATE and self._may_be_eager(child))):
                        heappush(self.ready, (-child.instruction.priority, child.instruction.id, child))

    def doom(self, instruction: Instruction, failure: BaseException) -> bool:
        """Cancel an instruction that was not issued yet. False if it was."""
        node = self._open.get(instruction.id)
        if node is None or node.issued:
            return False
        if node.failure is None:
            node.failure = instruction.failure = failure
        return True

    def unissue(self, instruction: Instruction, failure: BaseException) -> bool:
        """Cancel an instruction that was taken back from its lane; False if it waits for nothing, and so is over.

        One that was issued behind unfinished parents is not over before they are: others rely on that order.
        """
        node = self._open[instruction.id]
        if not node.waiting:
            return False
        self._leave_lane(node)
        doomed = [node]
        while doomed:  # those that need it may be issued behind it already
            node = doomed.pop()
            if node.failure is None:
                node.failure = node.instruction.failure = failure
                doomed += node.readers or ()
        return True

    def put_back(self, instruction: Instruction) -> None:
        """Let an instruction be issued again that did not run, because one before it has failed."""
        node = self._open[instruction.id]
        self._leave_lane(node)
        node.held = True
        instruction.failure = node.failure
        self._postpone(node)
        if not node.waiting:
            heappush(self.ready, (-instruction.priority, instruction.id, node))

    def take_over(self, instruction: Instruction) -> None:
        """Note that others do what a lane could not: it is not over, and nothing can be queued behind it any more."""
        node = self._open[instruction.id]
        self._leave_lane(node)
        node.issued = True
        self._postpone(node)

    def followed(self, instruction: Instruction) -> bool:
        """Tell whether something was issued behind this instruction already."""
        node = self._open[instruction.id]
        return any(child.issued for child in (*(node.readers or ()), *(node.dependents or ())))

    def _postpone(self, node: Pending) -> None:
        """Let nothing begin that was issued behind `node`: lanes report it, and it is put back in turn."""
        for child in (*(node.readers or ()), *(node.dependents or ())):
            if child.issued and child.instruction.failure is None:
                child.instruction.failure = Postponed()

    def _leave_lane(self, node: Pending) -> None:
        node.issued = False
        if node.lane is not None:
            node.lane.depth -= 1
            if node.lane.tail is node:
                node.lane.tail = None
            node.lane = None

    def forget_failures(self, alive: set[int]) -> None:
        """Drop failures that nothing can depend on any more."""
        if self.failed:
            open_needs = {id for node in self._open.values() for id in node.instruction.needs}
            self.failed = {id: error for id, error in self.failed.items() if id in alive or id in open_needs}

    def waiting(self) -> list[Instruction]:
        """Return what is not issued yet."""
        return [node.instruction for node in self._open.values() if not node.issued]

    def issued(self) -> list[Instruction]:
        """Return what is issued and not over."""
        return [node.instruction for node in self._open.values() if node.issued]
