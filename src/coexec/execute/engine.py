"""The engine: a pure out-of-order state machine. Instructions and completions in, "issue this on that lane" out.

Before: lower/.  After: execute/executor.py.  Knows no clock, thread or device; its caller serialises all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

from ..backend.base import Postponed
from ..graph.instruction import Instruction
from .lanes import DeviceLanes, Lane

_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor
IMMEDIATE = Lane("", -1)
"""Where allocations, horizons and epochs go: the executor does them itself, nothing is queued behind them."""


class Issue(NamedTuple):
    """An instruction to start now, on a lane, behind `waits` on other lanes of the same device."""

    instruction: Instruction
    lane: Lane
    waits: tuple[Instruction, ...] = ()


class Engine:
    """Decides what may start next. Starts nothing itself."""

    def __init__(self, devices: Mapping[str, DeviceLanes]) -> None:
        self._devices = devices
        self._eager = {name for name, lanes in devices.items() if lanes.eager}
        self.open: dict[int, Instruction] = {}
        self.ready: list[tuple[int, int, Instruction]] = []  # a heap: highest priority, then oldest, first
        self.failed: dict[int, BaseException] = {}  # over, and failed: what they wrote is poisoned
        self.doomed: list[tuple[Instruction, BaseException]] = []  # ready but cancelled: the caller finishes them

    @property
    def idle(self) -> bool:
        """Whether every instruction is over."""
        return not self.open

    def __len__(self) -> int:
        return len(self.open)

    def submit(self, batch: Iterable[Instruction]) -> None:
        """Take instructions; everything that one depends on was submitted before it, or stands before it in the batch."""
        opened, failed, eager = self.open, self.failed, self._eager
        get = opened.get
        for node in batch:
            parents: list[Instruction] = []
            for id in node.needs:
                parent = get(id)
                if parent is not None:
                    if parent.readers is None:
                        parent.readers = [node]
                    else:
                        parent.readers.append(node)
                    parents.append(parent)
                elif failed and id in failed:
                    node.poison = node.failure = failed[id]
            for id in node.after:
                parent = get(id)
                if parent is not None:
                    if parent.dependents is None:
                        parent.dependents = [node]
                    else:
                        parent.dependents.append(node)
                    parents.append(parent)
            opened[node.id] = node
            if parents:
                node.parents = parents
                node.waiting = len(parents)
                if parents[0].lane is None or node.step.device not in eager or not self._may_be_eager(node):
                    continue
            heappush(self.ready, (-node.step.priority, node.id, node))

    def _may_be_eager(self, node: Instruction) -> bool:
        """Tell whether `node` may be queued behind its unfinished parents."""
        lanes = self._devices.get(node.step.device)
        if lanes is None or not lanes.eager or node.held:
            return False
        last = False
        first: Lane | None = None
        for parent in node.parents:
            if parent.over:
                continue
            lane: Lane | None = parent.lane
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
            if node.waiting:
                node.parents = [parent for parent in node.parents if not parent.over]
                if node.parents and not self._may_be_eager(node):
                    continue  # overtaken: it becomes ready again when its last parent is over
            elif node.poison is not None and not node.step.tells:
                node.issued = True
                self.doomed.append((node, node.poison))
                return None
            return self._assign(node)
        return None

    def _assign(self, node: Instruction) -> Issue:
        lanes = self._devices.get(node.step.device)
        node.issued = True
        if lanes is None:
            node.lane = IMMEDIATE
            node.parents = ()
            return Issue(node, IMMEDIATE)
        waits: tuple[Instruction, ...] = ()
        if node.waiting and not lanes.across:
            lane: Lane = node.parents[0].lane
            for parent in node.parents:
                parent.handed = True
            node.eager = True
        else:
            inherited = lanes.of_parent(node.parents) if node.parents else None
            lane = inherited if inherited is not None else lanes.fresh()
            if node.waiting:
                waits = tuple([parent for parent in node.parents if parent.lane is not lane])
                node.eager = True
        lane.depth += 1
        lane.tail = node
        node.lane = lane
        node.parents = ()
        if lanes.eager:
            device = self._devices.get
            for children in (node.readers, node.dependents):  # submitted in the same batch
                if children is not None:
                    for child in children:  # on another device it must wait for this one to be over
                        if not child.issued and device(child.step.device) is lanes and self._may_be_eager(child):
                            self._is_ready(child)
        issue: Issue = _new(Issue, (node, lane, waits))
        return issue

    def _is_ready(self, node: Instruction) -> None:
        heappush(self.ready, (-node.step.priority, node.id, node))

    def finish(self, node: Instruction, failure: BaseException | None = None) -> None:
        """Note that an instruction is over. Completions may come in any order."""
        del self.open[node.id]
        node.over = True
        failure = failure or node.poison
        lane: Lane | None = node.lane
        if lane is not None and lane is not IMMEDIATE:
            lane.depth -= 1
            if lane.tail is node:
                lane.tail = None
        readers, dependents = node.readers, node.dependents
        node.readers = node.dependents = None  # whoever keeps it keeps nothing before or after it
        node.parents = ()
        if failure is not None:
            self.failed[node.id] = failure
            for child in readers or ():
                if child.poison is None:
                    child.poison = child.failure = failure
        for children in (readers, dependents):
            if children is not None:
                for child in children:
                    child.waiting -= 1
                    if not child.issued and (not child.waiting or (lane is IMMEDIATE and self._may_be_eager(child))):
                        heappush(self.ready, (-child.step.priority, child.id, child))

    def doom(self, node: Instruction, failure: BaseException) -> bool:
        """Cancel an instruction that was not issued yet. False if it was."""
        if node.issued or node.id not in self.open:
            return False
        if node.poison is None:
            node.poison = node.failure = failure
        return True

    def unissue(self, node: Instruction, failure: BaseException) -> bool:
        """Cancel an instruction that was taken back from its lane; False if it waits for nothing, and so is over.

        One that was issued behind unfinished parents is not over before they are: others rely on that order.
        """
        if not node.waiting:
            return False
        _leave_lane(node)
        doomed = [node]
        while doomed:  # those that need it may be issued behind it already
            node = doomed.pop()
            if node.poison is None:
                node.poison = node.failure = failure
                doomed += node.readers or ()
        return True

    def put_back(self, node: Instruction) -> None:
        """Let an instruction be issued again that did not run, because one before it has failed."""
        _leave_lane(node)
        node.held = True
        node.failure = node.poison
        _postpone(node)
        if not node.waiting:
            self._is_ready(node)

    def take_over(self, node: Instruction) -> None:
        """Note that others do what a lane could not: it is not over, and nothing can be queued behind it any more."""
        _leave_lane(node)
        node.issued = True
        _postpone(node)

    def forget_failures(self, alive: set[int]) -> None:
        """Drop failures that nothing can depend on any more."""
        if self.failed:
            open_needs = {id for node in self.open.values() for id in node.needs}
            self.failed = {id: error for id, error in self.failed.items() if id in alive or id in open_needs}

    def waiting(self) -> list[Instruction]:
        """Return what is not issued yet."""
        return [node for node in self.open.values() if not node.issued]

    def issued(self) -> list[Instruction]:
        """Return what is issued and not over."""
        return [node for node in self.open.values() if node.issued]


def followed(node: Instruction) -> bool:
    """Tell whether something was issued behind this instruction already."""
    return any(child.issued for child in (*(node.readers or ()), *(node.dependents or ())))


def _postpone(node: Instruction) -> None:
    """Let nothing begin that was issued behind `node`: lanes report it, and it is put back in turn."""
    for child in (*(node.readers or ()), *(node.dependents or ())):
        if child.issued and child.failure is None:
            child.failure = Postponed()


def _leave_lane(node: Instruction) -> None:
    node.issued = False
    lane: Lane | None = node.lane
    if lane is not None:
        lane.depth -= 1
        if lane.tail is node:
            lane.tail = None
        node.lane = None
