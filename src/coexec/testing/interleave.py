"""A controlled scheduler: real engine, executor and bodies, driven by hand through every order that could happen.

Before: execute/, testing/graphs.py, testing/model_memory.py.  After: tests.  Has no thread and no clock.

    def scene() -> tuple[GraphBuilder, Callable[[Drive], None]]: ...    # build a program; say what must hold in the end
    assert explore(scene) == 24                                          # so many interleavings, all right

A choice is made wherever a real run has one: which lane finishes its next instruction, and whether the program submits
more before that. Bodies run when they finish, so a missing edge shows as a wrong value in some order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ..backend.base import Backend, CallHelper, Finished, Ran
from ..backend.launch import run
from ..errors import InvariantError
from ..execute.engine import Engine
from ..execute.executor import Executor
from ..execute.lanes import DeviceLanes, LanePolicy
from ..graph.instruction import Allocation, Instruction
from ..graph.task import Task
from ..machine.platform import Device
from .graphs import GraphBuilder
from .model_memory import allocate, release
from .queries import allocations

Choose = Callable[[int], int]
"""Picks one of so many possibilities."""


class HandBackend:
    """Devices that finish an instruction when they are told to."""

    kind = "invented"
    runs_python = True
    helps = False

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices: Sequence[Device] = tuple(devices)
        self.lanes: dict[tuple[str, int], deque[tuple[Instruction, Sequence[Instruction]]]] = {}
        self.ran: list[Instruction] = []  # whose bodies ran, in order
        self._over: set[int] = set()
        self._finished: Finished | None = None

    def start(self, finished: Finished, call_helper: CallHelper | None = None) -> None:
        """Begin to accept work."""
        del call_helper
        self._finished = finished

    def clock(self) -> float:
        """Return a time that stands still."""
        return 0.0

    def supports(self, dtype: Any) -> bool:
        """Tell whether a device can hold `dtype`: model memory holds anything."""
        del dtype
        return True

    def allocate(self, allocation: Allocation) -> None:
        """Back an allocation with memory that holds nothing useful."""
        allocate(allocation)

    def release(self, allocation: Allocation) -> None:
        """Take its memory away."""
        release(allocation)

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> None:
        """Queue an instruction on its lane."""
        self.lanes.setdefault((instruction.device, lane), deque()).append((instruction, waits))

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction: nothing has begun until it is told to finish."""
        for queue in self.lanes.values():
            for entry in queue:
                if entry[0] is instruction:
                    queue.remove(entry)
                    return True
        return False

    def heads(self) -> list[tuple[str, int]]:
        """Return the lanes whose next instruction could finish now."""
        return [
            lane for lane, queue in self.lanes.items() if queue and all(other.id in self._over for other in queue[0][1])
        ]

    def finish(self, lane: tuple[str, int]) -> None:
        """Run the next instruction of a lane and report it."""
        instruction, _ = self.lanes[lane].popleft()
        error = instruction.failure
        if error is None:
            self.ran.append(instruction)
            try:
                run(instruction.task, instruction.step)
            except Exception as raised:  # noqa: BLE001 - whatever a body raises is its result
                error = raised
        self._over.add(instruction.id)
        if self._finished is None:
            raise InvariantError("a backend finishes nothing before it is started")
        self._finished(Ran(instruction, instruction.device, lane[1], 0.0, 0.0, 0.0, error))

    def help(self, waiting_for: Task | None = None) -> bool:
        """Do nothing: only the test decides."""
        return False

    def left(self, *, idle: bool) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing: whatever was issued was finished by the test."""


class Drive:
    """One run of one program, choice by choice."""

    def __init__(
        self, g: GraphBuilder, choose: Choose, *, policy: str = "disjoint+reuse", across: bool = False, limit: int = 64
    ) -> None:
        self.g = g
        self._choose = choose
        self.backend = HandBackend(g.platform.devices)
        names = [*g.devices, "host"]
        lanes = {name: DeviceLanes(name, limit, LanePolicy.parse(policy), across=across) for name in names}
        self.engine = Engine(lanes)
        backend: Backend = self.backend
        memories = dict.fromkeys(range(len(g.platform.memories)), backend)
        self.executor = Executor(self.engine, dict.fromkeys(names, backend), memories, threading.RLock())
        self._batches = deque(g.batches)
        self._allocations = {a.id: a for a in [*g.given, *(a for i in g.emitted for a in allocations(i))]}.values()

    def run(self) -> None:
        """Submit and finish everything, in the order of the choices."""
        while self.step():
            pass
        self.check_over()

    def submit_all(self) -> None:
        """Submit everything before anything finishes."""
        while self._batches:
            self._submit()

    def check_over(self) -> None:
        """Raise unless everything is over and coexec itself did not fail."""
        if self.executor.broken is not None:
            raise self.executor.broken
        if not self.engine.idle:
            raise InvariantError(f"stuck: {self.engine.waiting()} wait and nothing is issued")

    def step(self) -> bool:
        """Do one thing that could happen next; False if nothing can."""
        heads = self.backend.heads()
        possible = len(heads) + bool(self._batches)
        if not possible:
            return False
        chosen = self._choose(possible) if possible > 1 else 0
        if chosen < len(heads):
            self.backend.finish(heads[chosen])
        else:
            self._submit()
        return True

    def state(self) -> object:
        """Return all that decides what can happen from here on: what waits where, and what every allocation holds."""
        lanes = {lane: tuple(i.id for i, _ in queue) for lane, queue in self.backend.lanes.items() if queue}
        nodes = [(n.id, n.issued, n.handed, n.waiting, str(n.poison)) for n in self.engine.open.values()]
        held = {a.id: None if a.data is None else a.data.tobytes() for a in self._allocations}
        failed = tuple(sorted(self.engine.failed))
        return len(self._batches), tuple(sorted(lanes.items())), tuple(nodes), tuple(sorted(held.items())), failed

    def _submit(self) -> None:
        with self.executor.lock:
            self.executor.submit(self._batches.popleft())

    def cancel(self, task: Task) -> None:
        """Cancel whatever of a task has not begun."""
        with self.executor.lock:
            mine = [i for i in [*self.engine.waiting(), *self.engine.issued()] if i.task is task]
            self.executor.cancel(mine, "the test says so")


Scene = Callable[[], tuple[GraphBuilder, Callable[[Drive], None]]]
"""Builds a program anew, and returns with it what must hold after a run."""


class Choices:
    """A sequence of choices: those of a given beginning, then always the first."""

    def __init__(self, path: list[tuple[int, int]]) -> None:
        self._path = path  # which, of how many
        self._given = len(path)
        self._made = 0

    def __call__(self, possible: int) -> int:
        """Choose one of `possible`."""
        if self._made == len(self._path):
            self._path.append((0, possible))
        self._made += 1
        return self._path[self._made - 1][0]

    @property
    def fresh(self) -> bool:
        """Whether the given beginning is behind us."""
        return self._made >= self._given


def every_choice(run: Callable[[Choices], None], *, limit: int = 5000) -> int:
    """Call `run` once for each sequence of choices it can be given; return how many there were.

    Raises InvariantError if there are more than `limit`: a test that claims to try everything must.
    """
    path: list[tuple[int, int]] = []
    count = 0
    while True:
        run(Choices(path))
        count += 1
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return count
        if count == limit:
            raise InvariantError(f"more than {limit} interleavings; make the program smaller or sample them")
        path[-1] = (path[-1][0] + 1, path[-1][1])


def explore(scene: Scene, *, all_at_once: bool = False, limit: int = 5000, across: bool = False) -> int:
    """Reach every state of a small program by every step that leads to it; return how many runs that took.

    `scene`'s check raises if an end is wrong. A run that meets a state seen before stops there: what could follow is
    known. So each interleaving is either run to its end or equals one that was, from some state on.
    """
    seen: set[object] = set()

    def one(choices: Choices) -> None:
        g, check = scene()
        drive = Drive(g, choices, across=across)
        if all_at_once:
            drive.submit_all()
        while drive.step():
            if choices.fresh:
                state = drive.state()
                if state in seen:
                    return
                seen.add(state)
        drive.check_over()
        check(drive)

    return every_choice(one, limit=limit)


def sample(
    scene: Scene, seed: int, *, runs: int = 1, policy: str = "disjoint+reuse", across: bool = False, limit: int = 64
) -> None:
    """Run some random interleavings of a program that has too many."""
    random = Random(seed)
    for _ in range(runs):
        g, check = scene()
        drive = Drive(g, random.randrange, policy=policy, across=across, limit=limit)
        drive.run()
        check(drive)
