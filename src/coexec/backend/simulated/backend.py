"""The simulated backend: instructions take virtual time on the devices, memories and links of a platform.

Before: the other files here.  After: execute/.  Has no thread: time moves when the program waits, or has spent time itself.

A lane is in order. A device runs as many kernels at once as it says; copies overlap kernels and share links fairly.
Instructions that the program submits begin no earlier than the program has got to them; those that a completion
releases, no earlier than the interpreter has come to it. Ties go by the order of issue.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ...errors import DeviceLost
from ...graph.instruction import Allocation, Instruction
from ...graph.task import Task
from ...machine.platform import HOST, USER, Device, Memory, Platform, host_links
from ..base import CallHelper, Finished, Ran
from .costs import NOTHING, Costs
from .crowds import crowds_of
from .durations import Given, Law, Seconds, Timed, fixed_durations
from .energy import Energy, energy
from .network import Network
from .places import Entry, Place
from .scenario import Happening, Scenario
from .sharing import Crowding
from .timeline import Job, Timeline
from .values import Computed, Unknown


class SimulatedBackend:
    """Devices on a clock of their own."""

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
    ) -> None:
        self.devices = tuple(devices)
        self.executes = execute
        self.host = 0.0  # what time it is for the program
        self._scenario = scenario or Scenario()
        self._law: Law = law or Given(seconds or fixed_durations())
        self._values = Computed() if execute else Unknown()
        self._costs = costs
        self._time = Timeline()
        self._platform = platform or _trivial(self.devices)
        self._scenario.check(self._platform)
        self._network = Network(self._platform, self._time, self._scenario)
        self._kernels = Crowding(self._time, lambda job: job.owner.place.factor)
        seed = self._scenario.seed
        self._places = {d.name: Place(d, concurrent or d.concurrent, self._scenario.spread(d), seed) for d in devices}
        self._places["host"] = Place(Device("host", "cpu", HOST), 1 << 30, 0.0, seed)
        self._crowds, cores = crowds_of(self._platform)
        first = min(cores, default="")  # the program runs on the first node
        self._host_cores = [cores[first]] if first in cores else []
        self._to_come = self._scenario.in_order()
        self._entries: dict[int, Entry] = {}  # by instruction
        self._behind: dict[int, list[Entry]] = {}  # instruction -> what waits for it on other lanes
        self._over: list[Entry] = []  # what the last event completed: one at most
        self._interpreter = 0.0  # when it is free
        self._program_busy = False  # the program's thread does not wait
        self._stepping = 0  # the thread that moves time
        self._lock = threading.RLock()  # of everything here; never held while others are told
        self._turn = threading.Lock()  # one thread moves time
        self._finished: Finished | None = None
        self._call_helper: CallHelper | None = None
        self._sources: dict[tuple[str, str], tuple[int, float]] = {}

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
            stepping = self._stepping == threading.get_ident()
            place = self._places[instruction.device].lane(lane)
            entry = Entry(instruction, place, self._interpreter if stepping else max(self.host, self._time.now))
            self._entries[instruction.id] = entry
            for other in waits:
                if other.id in self._entries:
                    entry.blockers += 1
                    self._behind.setdefault(other.id, []).append(entry)
            place.queue.append(entry)
            if place.queue[0] is entry and not entry.blockers:
                self._come(entry)

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction that has not begun on the virtual clock."""
        with self._lock:
            entry = self._entries.get(instruction.id)
            if entry is None or entry.start >= 0.0:
                return False
            del self._entries[instruction.id]
            queue, first = entry.lane.queue, entry.lane.queue[0] is entry
            queue.remove(entry)
            if entry in entry.place.waiting:
                entry.place.waiting.remove(entry)
            entry.start = self._time.now  # whatever was to begin it finds it begun
            self._unblock(instruction)
            if first:
                self._next_of(entry)
            return True

    def help(self, waiting_for: Task | None = None) -> bool:
        """Let time go on to the next completion, or return False if nothing is under way."""
        if self._program_busy:
            if self._step(self.host):
                return True
            with self._lock:
                self._program_runs(0.0)
        return self._step(None)

    def left(self, *, idle: bool) -> None:
        """Note that the program goes on, at the time it has become."""
        del idle
        with self._lock:
            self.host = max(self.host, self._time.now)
        if self._call_helper is not None and self._time.next_time() is not None:
            self._call_helper()  # another thread waits, and nobody moves time any more

    def stop(self) -> None:
        """Finish what was issued."""
        while self._step(None):
            pass

    # What the program spends ------------------------------------------------------------------------------------------

    def charge(self, instructions: int) -> None:
        """Let the interpreter spend time on a batch of instructions that is submitted."""
        with self._lock:
            seconds = self._costs.submission + instructions * self._costs.instruction
            if self._stepping == threading.get_ident():
                self._interpreter += seconds
            elif seconds:
                self._interpreter = self.host = max(self.host, self._interpreter, self._time.now) + seconds
                self._program_runs(1.0)

    def spend(self, seconds: float) -> None:
        """Let the program itself take time, for something that is no kernel."""
        with self._lock:
            self.host = max(self.host, self._time.now) + seconds

    def keep_up(self) -> None:
        """Let devices do what they do until the program's own time."""
        while self._step(self.host):
            pass

    def _program_runs(self, threads: float) -> None:
        """Let the program's thread use a core from now on, or none."""
        self._program_busy = threads > 0.0
        due = self._time.next_time()
        if due is not None and due > self.host > self._time.now:
            self._time.now = self.host
        for crowd in self._host_cores:
            self._kernels.others(crowd, threads)

    # What came out ----------------------------------------------------------------------------------------------------

    def energy(self) -> Energy:
        """Return what the devices drew until now."""
        with self._lock:
            now = self._time.now
            return energy([(p.device, p.busy(now)) for n, p in self._places.items() if n != "host"], now)

    def sources(self) -> dict[str, dict[str, tuple[int, float]]]:
        """Return, by kernel, how its durations are known: source -> number of kernels and their seconds."""
        with self._lock:
            found: dict[str, dict[str, tuple[int, float]]] = {}
            for (kernel, source), figures in self._sources.items():
                found.setdefault(kernel, {})[source] = figures
            return found

    # Time -------------------------------------------------------------------------------------------------------------

    def _step(self, until: float | None) -> bool:
        """Let time go on to the next completion (not later than `until`) and report it; False if there is none."""
        if self._finished is None or not self._turn.acquire(blocking=False):
            return False  # or another thread is at it
        try:
            with self._lock:
                entry = self._next_completion(until)
                if entry is None:
                    return False
                self._stepping = threading.get_ident()
                self._interpreter = max(self._interpreter, self._time.now) + self._costs.completion
            try:
                self._report(entry, self._finished)
            finally:
                with self._lock:
                    self._stepping = 0
                    self._go_on(entry)
            return True
        finally:
            self._turn.release()

    def _next_completion(self, until: float | None) -> Entry | None:
        time = self._time
        while not self._over:
            due = time.next_time()
            if due is None:
                return None
            while self._to_come and self._to_come[0].at <= due and (until is None or self._to_come[0].at <= until):
                time.now = max(time.now, self._to_come[0].at)
                self._happen(self._to_come.pop(0))
                due = time.next_time()
                assert due is not None
            if until is not None and due > until:
                return None
            time.step()
        return self._over.pop()

    def _report(self, entry: Entry, finished: Finished) -> None:
        instruction = entry.instruction
        error = instruction.failure or entry.error
        stop = self._time.now
        if error is None:
            try:
                self._values.run(instruction)
            except BaseException as caught:  # noqa: BLE001 - reported, never lost
                error = caught
        finished(Ran(instruction, instruction.device, entry.lane.number, entry.start, stop, 0.0, error))

    def _go_on(self, entry: Entry) -> None:
        """Begin what waited for an instruction that is over: on its lane, on its device, on other lanes."""
        del self._entries[entry.instruction.id]
        entry.lane.queue.popleft()
        if entry.computes:
            place = entry.place
            if entry in place.running:
                place.ended(entry, self._time.now)
            if place.waiting and len(place.running) < place.concurrent:
                self._begin(place.waiting.popleft())
        self._unblock(entry.instruction)
        self._next_of(entry)

    def _unblock(self, instruction: Instruction) -> None:
        for other in self._behind.pop(instruction.id, ()):
            other.blockers -= 1
            if not other.blockers and other.lane.queue and other.lane.queue[0] is other:
                self._come(other)

    def _next_of(self, entry: Entry) -> None:
        queue = entry.lane.queue
        if queue and not queue[0].blockers and queue[0].start < 0.0:
            self._come(queue[0])

    # Instructions -----------------------------------------------------------------------------------------------------

    def _come(self, entry: Entry) -> None:
        """Let the first of a lane begin as soon as it may."""
        if entry.release > self._time.now:
            self._time.at(entry.release, self._may_begin, entry)
        else:
            self._may_begin(entry)

    def _may_begin(self, entry: Entry) -> None:
        if entry.start >= 0.0:
            return  # it was taken back
        place = entry.place
        if entry.computes and len(place.running) >= place.concurrent:
            place.waiting.append(entry)
        else:
            self._begin(entry)

    def _begin(self, entry: Entry) -> None:
        entry.start = now = self._time.now
        instruction, place = entry.instruction, entry.place
        if instruction.failure is not None:
            self._time.at(now, self._end, entry)
            return
        if entry.computes and place.lost is not None:
            entry.error = _lost(place)
            self._time.at(now, self._end, entry)
            return
        timed = self._law.timed(instruction)
        if entry.computes:
            self._compute(entry, place, timed)
        elif entry.moves and self._law.shares and timed.source == "link":
            self._network.begin(entry, self._end)
        else:
            self._time.at(now + timed.seconds, self._end, entry)

    def _compute(self, entry: Entry, place: Place, timed: Timed) -> None:
        place.began(entry, self._time.now)
        seconds = timed.seconds * place.jitter()
        self._note_source(entry.instruction, timed.source, seconds)
        crowds, asks = self._crowds[place.device.name].of(timed) if self._law.shares else ((), ())
        entry.job = Job(entry, seconds, self._computed, crowds)
        self._kernels.join(entry.job, asks)

    def _computed(self, entry: Entry) -> None:
        if entry.job is not None and entry.job.uses:
            self._kernels.leave(entry.job)
        self._over.append(entry)

    def _end(self, entry: Entry) -> None:
        self._over.append(entry)

    def _note_source(self, instruction: Any, source: str, seconds: float) -> None:
        instruction.source = source
        name = instruction.task.name if instruction.task is not None else instruction.kind
        number, total = self._sources.get((name, source), (0, 0.0))
        self._sources[name, source] = (number + 1, total + seconds)

    # Happenings -------------------------------------------------------------------------------------------------------

    def _happen(self, happening: Happening) -> None:
        if happening.what == "link":
            self._network.degrade(happening.name, happening.factor)
            return
        place = self._places[happening.name]
        if happening.what == "slow":
            place.factor /= happening.factor
            for entry in place.running:
                if entry.job is not None:
                    self._kernels.pace(entry.job)
            return
        place.lost = self._time.now
        for entry in place.running:
            job = entry.job
            if job is not None and job.speed:
                self._time.cancel(job)
                if job.uses:
                    self._kernels.leave(job)
                entry.error, entry.job = _lost(place), None
                self._time.at(self._time.now, self._end, entry)


def _lost(place: Place) -> DeviceLost:
    return DeviceLost(f"{place.device.name} was lost at {place.lost:g} s of virtual time, as the scenario says")


def _trivial(devices: Sequence[Device]) -> Platform:
    """Return a platform for devices that come without one: their memories, each joined with the host."""
    ids = sorted({device.memory for device in devices} - {USER, HOST})
    memories = [Memory("user"), Memory("host", paged=True)]
    memories += [Memory(f"memory {id}") for id in range(2, max([HOST, *ids]) + 1)]
    return Platform(tuple(devices), tuple(memories), host_links(ids))
