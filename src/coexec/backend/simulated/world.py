"""The world of a simulation: one clock, all devices and links of a platform, and what runs on them now.

Before: timeline.py, devices.py, network.py, contention.py.  After: backend.py: the processes, which share it. Knows neither
programs nor values. One lock guards all of it.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

from ...errors import BackendError, DeviceLost
from ...graph.configure import Configure, configuring
from ...graph.message import Message, MessageKey, Send
from ...machine.platform import Platform
from . import admission
from .contention import crowds_of
from .devices import IssuedEntry, Place, SimulatedLane
from .durations import Timed
from .energy import Energy, energy
from .network import SimulatedNetwork
from .scenario import Happening, Scenario
from .sharing import Crowding
from .timeline import Job, Timeline

if TYPE_CHECKING:
    from .backend import SimulatedBackend


class World:
    """Devices, links and what happens to them, on one clock, for one process or for one per rank."""

    def __init__(self, platform: Platform, scenario: Scenario | None = None, concurrent: int | None = None) -> None:
        self.platform = platform
        self.scenario = scenario or Scenario()
        self.scenario.check(platform)
        self.time = Timeline()
        self.network = SimulatedNetwork(platform, self.time, self.scenario)
        self.kernels = Crowding(self.time, lambda job: job.owner.place.factor)
        seed = self.scenario.seed
        self.places = {
            d.name: Place(d, concurrent or d.concurrent, self.scenario.spread(d), seed) for d in platform.devices
        }
        admission.relate(self.places)
        self.crowds, self.cores = crowds_of(platform)
        self.processes: list[SimulatedBackend] = []
        self.sources: dict[tuple[str, str], tuple[int, float]] = {}
        self.lock = threading.RLock()  # of everything here and in the processes; never held while others are told
        self.turn = threading.Lock()  # one thread moves time
        self._to_come = self.scenario.in_order()
        self._over: deque[IssuedEntry] = deque()  # what the last event completed: one, or both sides of a message
        self.looking = 0  # whoever looks what calls take, and loads no design for it
        self._configured = count()  # designs that devices were given
        self._posted: dict[tuple[int, MessageKey], IssuedEntry] = {}  # messages whose other side is not there yet

    # Time -------------------------------------------------------------------------------------------------------------

    def behind(self) -> float:
        """Return the time of the program that is least far: nobody may be taken further without being asked."""
        processes = self.processes
        return processes[0].host if len(processes) == 1 else min([process.host for process in processes])

    def busiest(self) -> SimulatedBackend | None:
        """Return the process whose program runs and is least far, or None if every program waits."""
        busy = [process for process in self.processes if process.busy]
        return min(busy, key=lambda process: process.host) if busy else None

    def step(self, until: float | None) -> bool:
        """Let time go on to the next completion (not later than `until`) and report it; False if there is none."""
        if not self.turn.acquire(blocking=False):
            return False  # another thread is at it
        try:
            with self.lock:
                entry = self._next_completion(until)
                if entry is None:
                    return False
                entry.process.completes(entry)
            try:
                entry.process.report(entry, self.time.now)
            finally:
                with self.lock:
                    entry.process.reported()
                    self._go_on(entry)
            return True
        finally:
            self.turn.release()

    def _next_completion(self, until: float | None) -> IssuedEntry | None:
        time = self.time
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
            time.happen()
        return self._over.popleft()

    def _go_on(self, entry: IssuedEntry) -> None:
        """Begin what waited for an instruction that is over: on its lane, on its device, on other lanes."""
        entry.lane.queue.popleft()
        if entry.loads:
            entry.place.loading -= 1
        if entry in entry.place.running:
            entry.place.ended(entry, self.time.now)
        admission.ended(entry)
        if entry.place.threads:  # which reports a completion before it looks for more
            self.time.at(entry.process.interpreter, self._look, entry.place)
        self.admit(entry)
        entry.process.unblock(entry.instruction)
        self.next_of(entry)
        entry.job = entry.mate = None  # or all of them would wait for the garbage collector

    def admit(self, entry: IssuedEntry) -> None:
        """Begin what waited for an instruction that does not run, or not any more."""
        for other in admission.following(entry):
            self._begin(other)

    def next_of(self, entry: IssuedEntry) -> None:
        """Let the next one on the lane of an instruction begin."""
        queue = entry.lane.queue
        if queue and not queue[0].blockers and queue[0].start < 0.0:
            self.come(queue[0])

    # Instructions -----------------------------------------------------------------------------------------------------

    def come(self, entry: IssuedEntry) -> None:
        """Let the first of a lane begin as soon as it may."""
        release = entry.release
        if release > self.time.now:
            self.time.at(release, self._may_begin, entry)
        else:
            self._may_begin(entry)

    def _may_begin(self, entry: IssuedEntry) -> None:
        if entry.start >= 0.0:
            return  # it was taken back
        if entry.computes and entry.place.threads:
            admission.wait(entry)
            self._look(entry.place)
            if entry.start < 0.0 and (other := admission.idle_sibling(entry)) is not None:
                self.time.at(self.time.now + entry.process.costs.wake, self._look, other)
        elif admission.may_begin(entry):
            self._begin(entry)
        else:
            admission.wait(entry)

    def _look(self, place: Place) -> None:
        """Let the thread of a device look for work."""
        for entry in admission.found_by(place):
            self._begin(entry)

    def _begin(self, entry: IssuedEntry) -> None:
        if entry.computes and entry.place.device.configurations and self._loads_first(entry):
            return
        entry.start = now = self.time.now
        admission.began(entry)
        if entry.meets:
            self._meet(entry)
            return
        instruction, place, law = entry.instruction, entry.place, entry.process.law
        if instruction.failure is not None:
            self.time.at(now, self._end, entry)
            return
        if entry.computes and place.lost is not None:
            entry.error = _lost(place)
            self.time.at(now, self._end, entry)
            return
        if entry.computes:
            self._compute(entry, place, law.timed(instruction))
        elif not (entry.moves and law.shares and self.network.begin(entry, self._end)):
            further = entry.process.costs.carrying_out(instruction) if place.ours else 0.0
            self.time.at(now + law.timed(instruction).seconds + further, self._end, entry)

    def _compute(self, entry: IssuedEntry, place: Place, timed: Timed) -> None:
        place.began(entry, self.time.now)
        seconds = timed.seconds * place.jitter()
        waits = timed.waits
        if timed.spread:
            seconds *= place.varied(timed.spread)
            waits *= place.waited()
        self._note_source(entry.instruction, timed.source, seconds)
        seconds *= 1.0 + waits
        entry.waits = waits / (1.0 + waits)
        crowds, asks = self.crowds[place.device.name].of(timed) if entry.process.law.shares else ((), ())
        entry.job = Job(entry, seconds, self._computed, crowds)
        self.kernels.join(entry.job, asks)

    def _computed(self, entry: IssuedEntry) -> None:
        if entry.job is not None and entry.job.uses:
            self.kernels.leave(entry.job)
        self._over.append(entry)

    def _end(self, entry: IssuedEntry) -> None:
        self._over.append(entry)

    # Messages ---------------------------------------------------------------------------------------------------------

    def _meet(self, entry: IssuedEntry) -> None:
        """Let a message begin as soon as both sides are there."""
        message = entry.instruction.step
        assert isinstance(message, Message)
        key = message.key(entry.instruction.task)
        other = self._posted.pop(key, None)
        if other is None:
            self._posted[key] = entry
            return
        send, receive = (entry, other) if isinstance(message, Send) else (other, entry)
        now = send.start = receive.start = self.time.now
        send.mate, receive.mate = receive, send
        law = send.process.law
        if send.instruction.failure is None and law.shares:
            ranks = (send.process.rank, receive.process.rank)
            self.network.send(send, send.instruction.step.nbytes, ranks, self._arrived)
        else:
            self.time.at(now + law.timed(send.instruction).seconds, self._arrived, send)

    def _arrived(self, send: IssuedEntry) -> None:
        assert send.mate is not None
        self._over += (send, send.mate)

    def strand(self) -> bool:
        """Give messages up whose other side will never come, as nothing is under way; False if there are none."""
        with self.lock:
            for (number, route), entry in list(self._posted.items()):
                what = f"message {route} of task {number}"
                entry.error = BackendError(f"{what} has no other side: one rank did not come that far, or failed")
                self._over.append(entry)
            self._posted.clear()
            return bool(self._over)

    def _note_source(self, instruction: Any, source: str, seconds: float) -> None:
        instruction.source = source
        name = instruction.task.name if instruction.task is not None else instruction.kind
        number, total = self.sources.get((name, source), (0, 0.0))
        self.sources[name, source] = (number + 1, total + seconds)

    # What came out ----------------------------------------------------------------------------------------------------

    def energy(self) -> Energy:
        """Return what the devices drew until now."""
        now = self.time.now
        return energy([(place.device, place.busy(now), place.drew(now)) for place in self.places.values()], now)

    # Designs ----------------------------------------------------------------------------------------------------------

    def configure(self, process: SimulatedBackend, name: str, design: str, now: float, task: Any = None) -> None:
        """Give a device a design, for a task or for all that follow. It begins no kernel until the design is loaded."""
        place = self.places[name]
        if place.design == design:
            return
        place.design, place.device = design, self.platform.device(name).under(design)
        process.law.configure(place.device)
        step = Configure(name, design, place.device)
        entry = IssuedEntry(configuring(next(self._configured), step, task), SimulatedLane(place, 0), now, process)
        entry.lane.queue.append(entry)
        entry.start = max(now, place.ready)
        place.ready = entry.start + place.device.design(design).load
        place.loading += 1
        self.time.at(place.ready, self._end, entry)

    def _loads_first(self, entry: IssuedEntry) -> bool:
        """Let the device of a kernel load the design that it lacks, if it does; the kernel is the next to begin then."""
        place, design = entry.place, admission.design_lacking(entry)
        if not design or self.looking or place.lost is not None or entry.instruction.failure is not None:
            return False
        self.configure(entry.process, place.device.name, design, self.time.now, entry.instruction.task)
        place.waiting.appendleft(entry)
        return True

    # Happenings -------------------------------------------------------------------------------------------------------

    def _happen(self, happening: Happening) -> None:
        if happening.what == "link":
            self.network.degrade(happening.name, happening.factor)
            return
        place = self.places[happening.name]
        if happening.what == "slow":
            place.factor /= happening.factor
            for entry in place.running:
                if entry.job is not None:
                    self.kernels.pace(entry.job)
            return
        place.lost = self.time.now
        for entry in place.running:
            job = entry.job
            if job is not None and job.speed:
                self.time.cancel(job)
                if job.uses:
                    self.kernels.leave(job)
                entry.error, entry.job = _lost(place), None
                self.time.at(self.time.now, self._end, entry)


def _lost(place: Place) -> DeviceLost:
    return DeviceLost(f"{place.device.name} was lost at {place.lost:g} s of virtual time, as the scenario says")
