"""What the simulated backend knows of each device: its lanes, what runs on it, what waits for it.

Before: timeline.py, machine/.  After: world.py.  Plain state; decides nothing.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from ...graph.configure import Configure
from ...graph.instruction import Copy, Instruction, Launch
from ...graph.message import Message
from ...machine.platform import Device
from .timeline import Job

if TYPE_CHECKING:
    from .backend import SimulatedBackend

QUARTILE = 0.6745
"""Half of all normal numbers lie within so many deviations."""
WIDEST = 0.3
"""Times that are spread further were of something else, such as a busy machine."""


class IssuedEntry:
    """An issued instruction that is not over."""

    __slots__ = (
        "blockers",
        "computes",
        "error",
        "instruction",
        "job",
        "lane",
        "loads",
        "mate",
        "meets",
        "moves",
        "payload",
        "place",
        "process",
        "release",
        "start",
        "waits",
    )

    def __init__(
        self, instruction: Instruction, lane: SimulatedLane, release: float, process: SimulatedBackend
    ) -> None:
        self.instruction = instruction
        self.process = process  # that issued it
        self.lane = lane
        self.place = lane.place
        step = instruction.step
        self.computes = isinstance(step, Launch)
        self.moves = isinstance(step, Copy)
        self.meets = isinstance(step, Message)
        self.loads = isinstance(step, Configure)
        self.mate: IssuedEntry | None = None  # the other side of a message
        self.payload: object = None  # what a message brings
        launch = lane.place.launch if self.computes else 0.0
        self.release = release + launch  # virtual seconds before which it does not begin
        self.blockers = 0  # instructions on other lanes that it waits for
        self.start = -1.0  # not begun
        self.waits = 0.0  # the part of its time that it waits for the interpreter lock
        self.job: Job | None = None
        self.error: BaseException | None = None


class SimulatedLane:
    """One in-order queue; the first entry runs, or is the next to."""

    __slots__ = ("number", "place", "queue")

    def __init__(self, place: Place, number: int) -> None:
        self.place = place
        self.number = number
        self.queue: deque[IssuedEntry] = deque()


class Place:
    """A device, or the host."""

    def __init__(self, device: Device, concurrent: int, spread: float, seed: int) -> None:
        self.device = device
        self.concurrent = concurrent  # kernels at once
        self.launch = device.launch or 0.0
        self.lanes: dict[int, SimulatedLane] = {}
        self.threads = (
            device.abilities.on_numpy and not device.eager
        )  # a thread of ours runs what is issued, in any order
        self.ours = self.threads or device.name == "host"
        self.siblings: tuple[Place, ...] = ()  # whose threads take over each other's work
        self.running: dict[IssuedEntry, None] = {}  # kernels
        self.waiting: deque[IssuedEntry] = deque()  # kernels that could begin but for the device
        self.rivals: tuple[Place, ...] = ()  # that may not compute at the same time
        self.copying = [0, 0]  # copies under way, out of its memory and into it
        self.queued: tuple[deque[IssuedEntry], deque[IssuedEntry]] = (
            deque(),
            deque(),
        )  # copies that wait for an engine
        self.factor = 1.0  # of full speed
        self.lost: float | None = None  # when it was lost
        self.design = ""  # that it is configured with; "" = none yet
        self.loading = 0  # designs that it is being given: it computes nothing meanwhile
        self.ready = 0.0  # when the last of them is loaded
        self.active = 0.0  # seconds that it computed
        self.joules = 0.0  # that it drew meanwhile
        self._changed = 0.0  # when something last began or ended on it
        self.since = 0.0  # when it began to
        self._spread = spread
        self._random = Random(f"{seed} {device.name}")

    def lane(self, number: int) -> SimulatedLane:
        """Return a lane, opening it if need be. What threads of ours run has no order, so each is on a lane of its own."""
        if self.threads:
            return SimulatedLane(self, number)
        found = self.lanes.get(number)
        if found is None:
            found = self.lanes[number] = SimulatedLane(self, number)
        return found

    def varied(self, spread: float) -> float:
        """Return how many times as long as its median the next kernel takes, if half of them lie within `spread`."""
        return self._random.lognormvariate(0.0, min(spread, WIDEST) / QUARTILE)

    def waited(self) -> float:
        """Return how many times as long as on average the next kernel waits: most wait little, some long."""
        return self._random.expovariate(1.0)

    def jitter(self) -> float:
        """Return how many times as long as expected the next kernel takes; 1 on average."""
        if not self._spread:
            return 1.0
        return self._random.lognormvariate(-0.5 * self._spread**2, self._spread)

    def began(self, entry: IssuedEntry, now: float) -> None:
        """Note that a kernel runs."""
        self._draw(now)
        if not self.running:
            self.since = now
        self.running[entry] = None

    def ended(self, entry: IssuedEntry, now: float) -> None:
        """Note that a kernel runs no more."""
        self._draw(now)
        del self.running[entry]
        if not self.running:
            self.active += now - self.since

    def _draw(self, now: float) -> None:
        """Count the joules since something last changed; of kernels that run at once, those of the hungriest."""
        if self.running and self.device.watts is not None:
            self.joules += max(map(self._watts, self.running)) * (now - self._changed)
        self._changed = now

    def _watts(self, entry: IssuedEntry) -> float:
        task = entry.instruction.task
        kernel = None if task is None else task.kernel
        watts = self.device.watts_for("" if kernel is None else kernel.op or kernel.name)
        return watts or 0.0

    def drew(self, now: float) -> float:
        """Return the joules of a device that states watts, while it computed."""
        self._draw(now)
        return self.joules

    def busy(self, now: float) -> float:
        """Return the seconds that the device computed so far."""
        return self.active + (now - self.since if self.running else 0.0)
