"""The simulated backend: a process whose instructions take virtual time on devices, memories and links of a platform.

Before: world.py and the other files here.  After: execute/.  Has no thread: time moves when the program waits, or has
spent time itself. Several processes may live in one world, one per rank of a cluster.

A lane is in order. A device runs as many kernels at once as it says; copies overlap kernels and share links fairly.
Instructions that the program submits begin no earlier than the program has got to them; those that a completion
releases, no earlier than the interpreter has come to it. Ties go by the order of issue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...graph.instruction import Allocation, Instruction, Launch
from ...graph.message import Send
from ...graph.task import Task
from ...machine.platform import HOST, USER, Device, Memory, Platform, host_links
from ..base import CallHelper, Finished, Ran
from . import admission
from .contention import node_of
from .costs import NOTHING, Costs, HostMeter, NoMeter
from .devices import IssuedEntry, Place
from .durations import GivenDurations, Law, Seconds, fixed_durations
from .energy import Energy
from .scenario import Scenario
from .values import Computed, Unknown
from .world import World

_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


class SimulatedBackend:
    """Devices on a clock of their own, as one process drives them."""

    kind = "simulated"
    runs_python = True
    helps = True

    def __init__(
        self,
        devices: Sequence[Device],
        seconds: Seconds | None = None,
        concurrent: int | None = None,
        *,
        law: Law | None = None,
        platform: Platform | None = None,
        execute: bool = False,
        scenario: Scenario | None = None,
        costs: Costs = NOTHING,
        world: World | None = None,
        rank: int = 0,
    ) -> None:
        """Drive `devices`. In a `world` with other processes, `platform` is what this one sees: the node `rank`."""
        self.devices = tuple(devices)
        self.executes = execute
        self.rank = rank
        self.host = 0.0  # what time it is for the program
        self.busy = False  # the program's thread does not wait
        self.law: Law = law or GivenDurations(seconds or fixed_durations())
        self.platform = platform or _trivial(self.devices)
        self.world = world or World(self.platform, scenario, concurrent)
        self.world.processes.append(self)
        self._time, self._lock = self.world.time, self.world.lock
        self._values = Computed() if execute else Unknown()
        self.costs = costs
        self._meter = HostMeter() if costs.live else NoMeter()
        self._places = {d.name: self.world.places[d.name] for d in self.devices}
        for name, at_once in (("host", 1), ("network", 1 << 30)):  # one thread does what the host computes
            self._places[name] = Place(Device(name, "cpu", HOST), at_once, 0.0, self.world.scenario.seed)
        cores = self.world.cores
        first = min((node for d in self.devices if (node := node_of(d)) in cores), default="")  # the program's node
        self._host_cores = [cores[first]] if first in cores else []
        self._entries: dict[int, IssuedEntry] = {}  # by instruction
        self._behind: dict[int, list[IssuedEntry]] = {}  # instruction -> what waits for it on other lanes
        self.interpreter = 0.0  # when it is free
        self._stepping = 0  # the thread that reports a completion
        self._reporting: Place | None = None  # where the last one came from: its thread reports it
        self._slept = False  # the program's thread waited for something
        self._touched = 0.0  # bytes, by the kernels that ran last
        self._finished: Finished | None = None
        self._call_helper: CallHelper | None = None

    # The contract -----------------------------------------------------------------------------------------------------

    def start(self, finished: Finished, call_helper: CallHelper | None = None) -> None:
        """Begin to accept work."""
        self._finished, self._call_helper = finished, call_helper

    @property
    def now(self) -> float:
        """The virtual time of the devices."""
        return self._time.now

    def clock(self) -> float:
        """Return the virtual time: the devices' or the program's, whichever is later."""
        return max(self._time.now, self.host)

    def supports(self, dtype: Any) -> bool:
        """Tell whether a device can hold `dtype`: platforms do not say otherwise."""
        del dtype
        return True

    def allocate(self, allocation: Allocation) -> None:
        """Back an allocation, if values are computed."""
        self._values.allocate(allocation)

    def given(self, allocation: Allocation) -> None:
        """Back an allocation for contents that the program brings."""
        self._values.given(allocation)

    def release(self, allocation: Allocation) -> None:
        """Give the memory back."""
        allocation.data = allocation.frozen = allocation.owner = None

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> None:
        """Queue an instruction on its lane."""
        with self._lock:
            stepping = self._account()
            if stepping and self.costs.cold:
                self.interpreter += self.costs.instruction
            place = self._places[instruction.step.device].lane(lane)
            begin = self.interpreter if stepping else max(self.host, self._time.now)
            if self.costs.wake and self._sleeps(place.place, stepping=stepping):
                begin += self.costs.wake
            entry = IssuedEntry(instruction, place, begin, self)
            self._entries[instruction.id] = entry
            for other in waits:
                if other.id in self._entries:
                    entry.blockers += 1
                    self._behind.setdefault(other.id, []).append(entry)
            place.queue.append(entry)
            if place.queue[0] is entry and not entry.blockers:
                self.world.come(entry)
        if not stepping:
            self._meter.go()

    def _sleeps(self, place: Place, *, stepping: bool) -> bool:
        """Tell whether the thread that serves a place must be woken: it has nothing to do, and is not the one that asks."""
        if stepping and place is self._reporting:
            return False
        if place is self._places["host"]:  # served by the program's thread, which is here or sleeps
            return stepping
        return place.threads and not place.running and not place.waiting

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction that has not begun on the virtual clock."""
        with self._lock:
            entry = self._entries.get(instruction.id)
            if entry is None or entry.start >= 0.0:
                return False
            queue, first = entry.lane.queue, entry.lane.queue[0] is entry
            queue.remove(entry)
            admission.withdrawn(entry)
            entry.start = self._time.now  # whatever was to begin it finds it begun
            self.world.admit(entry)  # it may have claimed the cores
            self.unblock(instruction)
            if first:
                self.world.next_of(entry)
            return True

    def help(self, waiting_for: Task | None = None) -> bool:
        """Let time go on to the next completion, or return False if nothing is under way.

        Whoever waits lets every program wait: programs of several ranks come to their waits together.
        """
        with self._lock:
            self._account()
        moved = False
        while not moved and (last := self.world.busiest()) is not None:
            moved = self._step(last.host)
            if not moved:
                with self._lock:
                    last._program_runs(0.0)
        if not moved:
            self._slept = moved = self._step(None) or (self.world.strand() and self._step(None))
        self._meter.go()
        return moved

    def left(self, *, idle: bool) -> None:
        """Note that the program goes on, at the time it has become."""
        del idle
        with self._lock:
            self._account()
            if self._slept:
                woken = self._reporting is not self._places["host"]  # what is the host's it has done itself
                self.host = max(self.host, self.interpreter + (self.costs.wake if woken else 0.0))
            self.host = max(self.host, self._time.now)
            self._slept = False
        self._meter.go()
        if self._call_helper is not None and self._time.next_time() is not None:
            self._call_helper()  # another thread waits, and nobody moves time any more

    def stop(self) -> None:
        """Finish what was issued."""
        while self._step(None):
            pass

    # What the program spends ------------------------------------------------------------------------------------------

    def charge(self, instructions: int) -> None:
        """Let the interpreter spend time on a batch of instructions that is submitted."""
        seconds = 0.0 if self.costs.live else self.costs.submission + instructions * self.costs.instruction
        with self._lock:
            stepping = self._account(seconds)
        if not stepping:
            self._meter.go()

    def _account(self, seconds: float = 0.0) -> bool:
        """Let whoever calls have spent some time, and what the meter says; tell whether it is the one that reports. Locked."""
        if self._stepping == threading.get_ident():
            self.interpreter += seconds
            return True
        seconds += self._meter.stop()
        if seconds:
            self.interpreter = self.host = max(self.host, self.interpreter, self._time.now) + seconds
            self._program_runs(1.0)
        return False

    def spend(self, seconds: float) -> None:
        """Let the program itself take time, for something that is no kernel."""
        with self._lock:
            self.host = max(self.host, self._time.now) + seconds

    def keep_up(self) -> None:
        """Let devices do what they do until the program's own time."""
        with self._lock:
            self._account()
        until = self.world.behind()  # programs stand still meanwhile
        while self._step(until):
            pass
        self._meter.go()

    def _program_runs(self, threads: float) -> None:
        """Let the program's thread use a core from now on, or none."""
        self.busy = threads > 0.0
        due = self._time.next_time()
        until = self.world.behind()
        if due is not None and due > until > self._time.now:
            self._time.now = until
        for crowd in self._host_cores:
            self.world.kernels.others(crowd, threads)

    # What came out ----------------------------------------------------------------------------------------------------

    def configure(self, device: str, design: str) -> None:
        """Give a device a design. It begins nothing else until that is loaded."""
        with self._lock:
            self._account()
            self.world.configure(self, device, design, self.clock())
        self._meter.go()

    @contextmanager
    def loading_nothing(self) -> Iterator[None]:
        """Let kernels that begin in a block find the design that they need, and wait for nothing."""
        with self._lock:
            self.world.looking += 1
        try:
            yield
        finally:
            with self._lock:
                self.world.looking -= 1

    def designs(self) -> dict[str, str]:
        """Return the design of each device that was given one."""
        with self._lock:
            return {name: place.design for name, place in self.world.places.items() if place.design}

    def device(self, name: str) -> Device:
        """Return a device as it is now, with its design."""
        return self.world.places[name].device

    def energy(self) -> Energy:
        """Return what all devices drew until now, those of other ranks included."""
        with self._lock:
            return self.world.energy()

    def sources(self) -> dict[str, dict[str, tuple[int, float]]]:
        """Return, by kernel, how its durations are known: source -> number of kernels and their seconds."""
        with self._lock:
            found: dict[str, dict[str, tuple[int, float]]] = {}
            for (kernel, source), figures in self.world.sources.items():
                found.setdefault(kernel, {})[source] = figures
            return found

    # What the world says ----------------------------------------------------------------------------------------------

    def _step(self, until: float | None) -> bool:
        return self._finished is not None and self.world.step(until)

    def completes(self, entry: IssuedEntry) -> None:
        """Let the interpreter spend time on a completion, which this thread is about to report. Locked."""
        self._stepping = threading.get_ident()
        self._reporting = entry.place
        step = entry.instruction.step
        if self.costs.cold and isinstance(step, Launch) and step.work is not None and entry.place.threads:
            kernels = sum([len(place.running) for place in self._places.values() if place.threads])
            self._touched = step.work.size * max(1, kernels)
        self.interpreter = max(self.interpreter, self._time.now) + self.costs.completing(self._touched)

    def report(self, entry: IssuedEntry, stop: float) -> None:
        """Do what an instruction does to values, and tell that it is over."""
        assert self._finished is not None, "whoever issues has started it"
        instruction = entry.instruction
        error = instruction.failure or entry.error
        if error is None and not entry.loads:
            try:
                if entry.meets:
                    self._values.message(instruction.step, entry)
                else:
                    self._values.run(instruction)
            except BaseException as caught:  # noqa: BLE001 - reported, never lost
                error = caught
        if entry.mate is not None and isinstance(instruction.step, Send):
            entry.mate.error = error
        waited = (stop - entry.start) * entry.waits
        name, lane = entry.place.device.name, entry.lane.number
        self._finished(_new(Ran, (instruction, name, lane, entry.start, stop, waited, error)))

    def reported(self) -> None:
        """Note that whoever was told has done what follows. Locked."""
        self._stepping = 0

    def unblock(self, instruction: Instruction) -> None:
        """Forget an instruction, and let what waited for it on other lanes begin. Locked."""
        self._entries.pop(instruction.id, None)  # what the world itself began is not among them
        for other in self._behind.pop(instruction.id, ()):
            other.blockers -= 1
            if not other.blockers and other.lane.queue and other.lane.queue[0] is other:
                self.world.come(other)


def _trivial(devices: Sequence[Device]) -> Platform:
    """Return a platform for devices that come without one: their memories, each joined with the host."""
    ids = sorted({device.memory for device in devices} - {USER, HOST})
    memories = [Memory("user"), Memory("host", paged=True)]
    memories += [Memory(f"memory {id}") for id in range(2, max([HOST, *ids]) + 1)]
    return Platform(tuple(devices), tuple(memories), host_links(ids))
