"""Placement: which device an indivisible task goes to. The policies of the GrCUDA scheduler, and a predicted one.

Before: plan/candidate.py.  After: plan/planner.py.  Knows loads, bytes and links; never a thread or a clock.

Data is brought to a device that would be faster with it once staying has cost as much as the copies would. Nobody knows how
often a call will come again. Who moves as soon as the time lost so far equals the copies spends at most twice what the best
decision would have cost (ski rental). If the data comes back, moving did not pay: the next time it takes twice as much.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from ..errors import unknown_name
from ..graph.command import Chunk
from ..graph.instruction import Launch
from ..graph.task import Task
from ..machine.platform import HOST, USER, Platform
from ..predict.work import Work
from .candidate import Candidate, Share
from .designs import Designs
from .lessons import Outcomes, StartDelays


class Where(Protocol):
    """Where a task's inputs are: (bytes, memories as bits) per array."""

    def __call__(self) -> Sequence[tuple[int, int]]: ...


class PlacementPolicy(Protocol):
    """Chooses among candidates; says why."""

    pairs: bool
    """Whether it compares variants too; if not, it is given one candidate per device."""

    def choose(self, candidates: Sequence[Candidate], asked: Asked, where: Where) -> tuple[Candidate, str]:
        """Return the candidate and the reason."""


class Asked(NamedTuple):
    """What a task asks of a device."""

    work: Work
    ready: float = 0.0  # seconds from now until its inputs are predicted to be made
    op: str = ""  # that devices need a design for


KEPT = 256


class Regrets:
    """What was lost by staying, by call and place of its data."""

    def __init__(self) -> None:
        self._lost: dict[Hashable, float] = {}
        self._patience: dict[Hashable, float] = {}

    def copy(self) -> Regrets:
        """Return the same again, to be put back later."""
        same = Regrets()
        same._lost, same._patience = dict(self._lost), dict(self._patience)
        return same

    def moves(self, call: Hashable, gain: float, copies: float) -> bool:
        """Note that a call would take `gain` seconds less after `copies` seconds of copies; tell whether to make them."""
        if len(self._lost) > KEPT:
            self._lost.clear()
            self._patience.clear()
        patience = self._patience.get(call, 1.0)
        lost = self._lost[call] = self._lost.get(call, 0.0) + gain
        if lost < copies * patience:
            return False
        self._lost[call], self._patience[call] = 0.0, 2.0 * patience
        return True

    def due(self, call: Hashable, gain: float, copies: float) -> bool:
        """Tell whether `moves` would make the copies for one more call; if not, note what staying costs it."""
        lost = self._lost.get(call, 0.0) + gain
        if lost >= copies * self._patience.get(call, 1.0):
            return True
        self._lost[call] = lost
        return False


UNKNOWN_SECONDS = 50e-6  # what a kernel nobody measured is taken to cost, so that work spreads over equal devices

WIDE_GAIN = 0.75  # a wide device must be faster than the narrow one by this factor: it takes the cores of all
TRY_AGAIN = 1e-3  # seconds: a kernel that took longer the first time is measured once more before it counts
COLD = 0.25  # of a first run is left when the next ones find compiled code and warm memory, at best
LOOKS = 4  # measurements that a narrow device gets before a wide one may win for good
MOST_TRIED = 256  # sizes whose try on all cores is remembered
WORTH_ALL_CORES = 1e-3  # seconds: below, a kernel never takes all cores

Regret = tuple[Hashable, float, float]
"""A call and the place of its data, the seconds it loses by leaving it there, and those of the copies."""


class Loads:
    """Predicted seconds until each device is free, and the number of its unfinished tasks.

    Time passes here only when work finishes, so no clock is needed. The host itself, which runs what no device can, is
    no device to plan for: whatever is told of it is let pass, here and nowhere else.
    """

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.seconds: dict[str, float] = {d.name: 0.0 for d in platform.devices}
        self.tasks: dict[str, int] = {d.name: 0 for d in platform.devices}
        self._passed: dict[str, float] = {d.name: 0.0 for d in platform.devices}  # predicted seconds finished so far
        self.ends: dict[int, tuple[str, float]] = {}  # open tasks: device, and its predicted end in those seconds
        self.latest: dict[str, int] = {}  # the task that each device was given last
        self._sharing = {
            d.name: [o.name for o in platform.devices if o is not d and set(o.cores) & set(d.cores)]
            for d in platform.devices
        }
        self._overlapping = any(self._sharing.values())
        self.start_delays = StartDelays()
        self.outcomes = Outcomes()
        self.designs = Designs(platform)
        self._regrets: Regrets | None = None
        self.planned_as_steps = False  # then it is those plans that move data, and no call by itself
        self.stayed: Regret | None = None  # of the call planned last, if its data would be better off elsewhere

    @property
    def idle(self) -> bool:
        """Whether no device has anything to do."""
        return not any(self.tasks.values())

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Let plans be made that nobody will carry out: what they note is forgotten."""
        before = (dict(self.seconds), dict(self.tasks), dict(self.ends), dict(self.latest))
        regrets, stayed = self._regrets.copy() if self._regrets is not None else None, self.stayed
        try:
            yield
        finally:
            self.seconds, self.tasks, self.ends, self.latest = before
            self._regrets, self.stayed = regrets, stayed

    def ready(self, parents: Sequence[int]) -> float:
        """Return the predicted seconds until all of these tasks are over."""
        latest = 0.0
        if self.ends:
            for id in parents:
                end = self.ends.get(id)
                if end is not None:
                    latest = max(latest, end[1] - self._passed[end[0]])
        return latest

    def waits(self, parents: Sequence[int], devices: Sequence[str], op: str = "") -> list[float]:
        """Return how much later each device can begin with `op` than the first, none before these tasks are over.

        A device whose last work is part of one of them is free with it: its parts end about together, though at this
        moment one of them may have been reported and another not.
        """
        ready = self.ready(parents)
        begins = [ready if self.latest.get(d) in parents else max(ready, self.seconds[d]) for d in devices]
        if op:
            begins = [begin + self.designs.loading(d, op) for begin, d in zip(begins, devices, strict=True)]
        first = min(begins)
        return [begin - first for begin in begins]

    def delay(self, device: str, seconds: float, task: int) -> None:
        """Let a device be busy for longer before it ends with a task, or if that is over, below 0 seconds, no longer."""
        self.seconds[device] = max(0.0, self.seconds[device] + seconds)
        if seconds < 0.0:
            self._passed[device] -= seconds
        elif self.ends.get(task, ("",))[0] == device:
            self.ends[task] = (device, self.ends[task][1] + seconds)

    def add(self, device: str, seconds: float | None, ready: float = 0.0, task: int = 0) -> None:
        """Note work given to a device, and to those whose cores it occupies. It cannot begin before `ready`."""
        if device not in self.tasks:
            return
        seconds = UNKNOWN_SECONDS if seconds is None else seconds
        self.tasks[device] += 1
        self.latest[device] = task
        free = self.seconds[device]
        self.seconds[device] = end = (max(ready, free)) + seconds
        if task and (task not in self.ends or end >= self.ready((task,))):  # the last of its parts counts
            self.ends[task] = (device, self._passed[device] + end)
        if self._overlapping:
            for other in self._sharing[device]:
                self.seconds[other] += seconds

    def parts(self, chunks: Sequence[Chunk], shares: Sequence[Share]) -> Sequence[tuple[str, float]]:
        """Return what `again` takes: the devices of these parts, and the seconds that each is taken to cost."""
        seconds = [UNKNOWN_SECONDS if share.seconds is None else share.seconds for share in shares]
        return [(c.device, s) for c, s in zip(chunks, seconds, strict=True) if c.device in self.tasks]

    def again(self, loads: Sequence[tuple[str, float]], task: int) -> None:
        """Note the parts of a task of a step that repeats itself, whose inputs are being made."""
        if self._overlapping:
            for device, seconds in loads:
                self.add(device, seconds, 0.0, task)
            return
        tasks, free, latest = self.tasks, self.seconds, self.latest
        last, longest = "", -1.0
        for device, predicted in loads:
            tasks[device] += 1
            latest[device] = task
            free[device] = end = free[device] + predicted
            if end > longest:
                last, longest = device, end
        if last:
            self.ends[task] = (last, self._passed[last] + longest)

    def in_pieces(self, before: Sequence[str], now: Sequence[str]) -> None:
        """Note that work given to the devices `before`, part by part, was cut anew for those of `now`."""
        for device in set(now) & self.tasks.keys():
            self.tasks[device] += now.count(device) - before.count(device)

    def remove(self, device: str, seconds: float | None) -> None:
        """Note work finished."""
        if device not in self.tasks:
            return
        seconds = UNKNOWN_SECONDS if seconds is None else seconds
        self.tasks[device] -= 1
        self._passed[device] += seconds
        left = self.seconds[device] - seconds
        self.seconds[device] = left if left > 0.0 and (self.tasks[device] or self._overlapping) else 0.0
        if self._overlapping:
            for other in self._sharing[device]:
                self.seconds[other] = max(0.0, self.seconds[other] - seconds)

    def finished(self, task: Task, step: Launch) -> None:
        """Note a finished kernel."""
        device = step.device
        if step.more and device in self.tasks:
            self.tasks[device] += 1  # the last part of its chunk counts
        if self.designs.some:
            self.designs.over(self, task.id, device)
        self.remove(device, step.predicted)
        if task.finished:
            self.ends.pop(task.id, None)

    def transfer(self, memory: int, where: Sequence[tuple[int, int]], *, best: bool = True) -> float:
        """Return the seconds to bring the inputs to `memory`, over the best or the worst link to each."""
        total = 0.0
        for nbytes, mask in where:
            if not mask or mask >> memory & 1 or (mask >> USER & 1 and memory == 1):
                continue
            links = [
                link.seconds(nbytes)
                for source in range(len(self.platform.memories))
                if mask >> source & 1 and (link := self.platform.link(source, memory)) is not None
            ]
            total += (min(links) if best else max(links)) if links else 2 * nbytes / 8e9
        return total

    def moves(self, call: Hashable, gain: float, copies: float) -> bool:
        """Tell whether data is to be brought by now to where a call would take `gain` seconds less with it."""
        if self.planned_as_steps:
            return False
        if self._regrets is None:
            self._regrets = Regrets()
        moves = self._regrets.moves(call, gain, copies)
        self.stayed = None if moves else (call, gain, copies)
        return moves

    def stays(self, stayed: Regret) -> bool:
        """Tell whether a call that is planned as before still leaves its data where it is, and note what that costs."""
        return self._regrets is None or not self._regrets.due(*stayed)


class EarliestFinish:
    """The device predicted to finish first, transfers included; devices nobody measured are tried once."""

    pairs = True

    def __init__(self, loads: Loads, threshold: float) -> None:
        del threshold
        self._loads = loads
        self._trying: set[tuple[object, object]] = set()  # wide devices that were given a size to try, by model

    def choose(self, candidates: Sequence[Candidate], asked: Asked, where: Where) -> tuple[Candidate, str]:
        work, ready, op = asked
        loads, loading = self._loads.seconds, self._loads.designs.loading
        held = None
        best, best_finish, best_seconds = candidates[0], float("inf"), 0.0
        untried = tempting = None
        for candidate in candidates:
            if candidate.wide and best_seconds < WORTH_ALL_CORES and best_finish < float("inf"):
                continue
            seconds = candidate.model.seconds(work)
            if candidate.wide and (seconds is None or not candidate.model.measured(work)):
                untried = candidate
                continue
            known = seconds is not None
            if seconds is None or (seconds > TRY_AGAIN and candidate.model.measured(work) < 2):
                seconds = UNKNOWN_SECONDS if seconds is None else seconds * COLD
            free = loads[candidate.name]
            finish = max(ready, free) + seconds + (loading(candidate.name, op) if op else 0.0)
            if candidate.wide:  # it takes every core from the others, so it must be clearly faster, not just lucky
                finish += seconds * (1.0 / WIDE_GAIN - 1.0) + self._withheld(candidates, candidate, seconds, ready)
            if candidate.memory > HOST:
                held = where() if held is None else held
                copies = self._loads.transfer(candidate.memory, held)
                if copies and known and (tempting is None or finish < tempting[0]):
                    tempting = (finish, copies, candidate)
                finish += copies
            if finish < best_finish:
                best, best_finish, best_seconds = candidate, finish, seconds
        if tempting is not None and held is not None and tempting[0] < best_finish < tempting[0] + tempting[1]:
            call = (best.model, work.key, tuple(held))
            if self._loads.moves(call, best_finish - tempting[0], tempting[1]):
                return tempting[2], f"its inputs are worth bringing to {tempting[2].name} by now"
        if untried is not None and (
            best_finish == float("inf") or self._worth_a_try(untried, best, best_seconds, work)
        ):
            return untried, f"first try of {untried.name} for this size"
        if best.wide and (narrow := self._second_look(candidates, best, work)) is not None:
            return narrow, f"second look at {narrow.name}, whose first runs of this size were cold"
        return best, ""

    def _withheld(self, candidates: Sequence[Candidate], wide: Candidate, seconds: float, ready: float) -> float:
        """Return what the other cores could do meanwhile: nothing, unless tasks queue up that could begin already."""
        waiting = min([self._loads.seconds[c.name] for c in candidates if not c.wide], default=0.0)
        return seconds * (len(wide.device.cores) - 1) if waiting > ready else 0.0

    def _worth_a_try(self, untried: Candidate, best: Candidate, seconds: float, work: Work) -> bool:
        """Tell whether a wide device might pay: the best narrow one is known, and not quick. It is tried once."""
        if seconds <= WORTH_ALL_CORES or best.model.measured(work) < 2 or (untried.model, work.key) in self._trying:
            return False
        if len(self._trying) > MOST_TRIED:
            self._trying.clear()
        self._trying.add((untried.model, work.key))
        return True

    def _second_look(self, candidates: Sequence[Candidate], wide: Candidate, work: Work) -> Candidate | None:
        """Return a core to measure again before all cores are taken for good: first runs touch fresh memory."""
        measured = wide.model.measured(work)
        doubtful = [
            c
            for c in candidates
            if not c.wide and c.device.kind == wide.device.kind and c.model.measured(work) < min(LOOKS, measured + 1)
        ]
        return min(doubtful, key=lambda c: self._loads.seconds[c.name], default=None)


class RoundRobin:
    """One device after the other."""

    pairs = False

    def __init__(self, loads: Loads, threshold: float) -> None:
        del loads, threshold
        self._next = 0

    def choose(self, candidates: Sequence[Candidate], asked: Asked, where: Where) -> tuple[Candidate, str]:
        del asked, where
        chosen = candidates[self._next % len(candidates)]
        self._next += 1
        return chosen, "round-robin"


class LeastBusy:
    """The device with the fewest unfinished tasks."""

    pairs = False

    def __init__(self, loads: Loads, threshold: float) -> None:
        del threshold
        self._loads = loads

    def choose(self, candidates: Sequence[Candidate], asked: Asked, where: Where) -> tuple[Candidate, str]:
        del asked, where
        tasks = self._loads.tasks
        chosen = min(candidates, key=lambda c: tasks[c.name])
        return chosen, f"least busy: {tasks[chosen.name]} tasks"


class DataAware:
    """Among devices that hold more than `threshold` of the input bytes, the one with the least cost; else in turn."""

    pairs = False

    def __init__(self, loads: Loads, threshold: float, name: str, cost: Callable[..., float]) -> None:
        self._loads = loads
        self._threshold = threshold
        self._name = name
        self._cost = cost
        self._turn = RoundRobin(loads, threshold)

    def choose(self, candidates: Sequence[Candidate], asked: Asked, where: Where) -> tuple[Candidate, str]:
        held = where()
        total = sum(nbytes for nbytes, _ in held)
        near = [c for c in candidates if total and _present(c.memory, held) > self._threshold * total]
        if not near:
            chosen, _ = self._turn.choose(candidates, asked, where)
            return chosen, f"{self._name}: no device holds {self._threshold:.0%} of the inputs, in turn"
        chosen = min(near, key=lambda c: self._cost(self._loads, c.memory, held))
        return chosen, f"{self._name}: {_present(chosen.memory, held)} of {total} bytes are there"


def _present(memory: int, where: Sequence[tuple[int, int]]) -> int:
    return sum(nbytes for nbytes, mask in where if mask >> memory & 1)


def _min_size(loads: Loads, threshold: float) -> PlacementPolicy:
    """The device that needs the fewest bytes moved."""
    return DataAware(
        loads, threshold, "minimal transfer size", lambda _, memory, where: -float(_present(memory, where))
    )


def _min_min(loads: Loads, threshold: float) -> PlacementPolicy:
    """The device whose inputs arrive soonest, each over its best link."""
    name = "minimal transfer time over the best links"
    return DataAware(loads, threshold, name, lambda loads, memory, where: loads.transfer(memory, where, best=True))


def _min_max(loads: Loads, threshold: float) -> PlacementPolicy:
    """The device whose inputs arrive soonest, each over its worst link."""
    name = "minimal transfer time over the worst links"
    return DataAware(loads, threshold, name, lambda loads, memory, where: loads.transfer(memory, where, best=False))


PLACEMENTS: dict[str, Callable[[Loads, float], PlacementPolicy]] = {
    "earliest-finish": EarliestFinish,
    "round-robin": RoundRobin,
    "least-busy": LeastBusy,
    "min-transfer-size": _min_size,
    "minmin-transfer-time": _min_min,
    "minmax-transfer-time": _min_max,
}


def load_placement(name: str, loads: Loads, threshold: float) -> PlacementPolicy:
    """Return the placement policy called `name`, from the table or from an installed package."""
    if name in PLACEMENTS:
        return PLACEMENTS[name](loads, threshold)
    from importlib.metadata import entry_points  # slow to import

    found = {entry.name: entry for entry in entry_points(group="coexec.placements")}
    if name in found:
        placement: PlacementPolicy = found[name].load()(loads, threshold)
        return placement
    raise unknown_name("placement", name, [*PLACEMENTS, *found])
