"""What a program does: its last calls, how they were planned, what it reads, and the step that these make up.

Before: profile.py, plan/repeats.py.  After: planner.py.  Knows no plan and no time.

A step that a program repeats comes again as it is. Of a program that does not repeat itself, its last calls stand for what it
will do: what comes often is often among them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from math import inf, log2
from typing import Any, NamedTuple

from ...geometry import Box, bounding
from ...graph.command import Chunk
from ...graph.shape import CallShape
from ...graph.task import Task
from ..repeats import LONGEST, Event, Repeats
from .cuts import StepPart, StepParts
from .profile import Awaited, CallProfile, StepCall, StepProfile

ALONE = "a call is planned by itself alone"
MOST = 4 * LONGEST  # shapes of calls that are remembered
_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor
LITTLE = (
    1 << 16
)  # bytes: bringing less costs next to nothing, so calls on it go wherever they are done first, or are no tasks
HALO = 0.25  # of an array: half of a call that reads more than this beyond its half reads more than what is around it
PER_DOUBLING = 1  # sizes that are told apart while a call doubles


class SeenCall(NamedTuple):
    """A call that was planned."""

    shape: CallShape
    chunks: Sequence[Chunk]
    arrays: tuple[int, ...]
    births: int  # arrays that there were before


class ProgramWatch:
    """Takes calls and reads in program order."""

    def __init__(self, profile: Callable[[Task], CallProfile | None]) -> None:
        """Begin; `profile` makes the profile of a call, or None for one that is planned by itself alone."""
        self._profile = profile
        self._profiles: dict[CallShape, CallProfile | None] = {}
        self._counts: dict[CallShape, int] = {}
        self._recent: deque[SeenCall] = deque(maxlen=LONGEST)
        self._reads: deque[tuple[int, int, int]] = deque(maxlen=LONGEST)  # calls before it, array, bytes
        self.calls = 0
        self._settled: dict[tuple[CallShape, ...], frozenset[str]] = {}  # steps that were planned, and on which devices
        self.why = ""  # the last step could not be made up

    def called(self, task: Task, chunks: Sequence[Chunk], births: int) -> bool:
        """Take a call, before which so many arrays were born; tell whether calls like it can be told apart from others."""
        self.calls += 1
        shape = task.shape
        if shape is None:
            self._recent.clear()
            return False
        same = task.same
        arrays = same.ids if same is not None else task.array_ids()
        self._recent.append(_new(SeenCall, (shape, chunks, arrays, births)))
        self._counts[shape] = self._counts.get(shape, 0) + 1
        return True

    def profile(self, task: Task) -> CallProfile | None:
        """Return the profile of a call, which is made once for all calls of its shape."""
        shape = task.shape
        if shape is None:
            return None
        known = self._profiles.get(shape, self)
        kernel = task.kernel
        if type(known) is CallProfile and kernel is not None and known.variants == len(kernel.variants):
            return known
        if isinstance(known, CallProfile) and kernel is not None and known.variants != len(kernel.variants):
            known = self  # the kernel has another variant since
        if known is self:
            if len(self._profiles) >= MOST:
                self._profiles.clear()
                self._counts.clear()
            known = self._profiles[shape] = self._profile(task)
        assert not isinstance(known, ProgramWatch)
        return known

    def read(self, array: int, nbytes: int) -> None:
        """Take a read that the program waits for."""
        self._reads.append((self.calls, array, nbytes))

    def forget(self) -> None:
        """Look at every call anew: devices have come or gone."""
        self._profiles.clear()
        self._settled.clear()

    def is_settled(self, count: int, devices: frozenset[str]) -> bool:
        """Tell whether the last calls were planned as a step before, when these devices were in force."""
        return self._settled.get(tuple([seen.shape for seen in self.last(count)])) == devices

    def settle(self, count: int, devices: frozenset[str]) -> None:
        """Remember that all plans of the last calls were looked at, when these devices were in force."""
        if len(self._settled) >= LONGEST:
            self._settled.clear()
        self._settled[tuple([seen.shape for seen in self.last(count)])] = devices

    def crews(self, count: int, memories: Mapping[str, int]) -> float:
        """Return in how many memories each of the last calls works, on average."""
        recent = self.last(count)
        return sum([len({memories.get(c.device) for c in seen.chunks}) for seen in recent]) / (len(recent) or 1)

    def last(self, count: int) -> list[SeenCall]:
        """Return the last calls."""
        return list(self._recent)[-count:]

    def times(self, step: StepProfile) -> int:
        """Return how often the calls of a step have come so far, wherever."""
        shapes = [seen.shape for seen in self.last(len(step.calls))]
        return min([self._counts.get(shape, 1) // shapes.count(shape) for shape in set(shapes)], default=1)

    def does(self, step: StepProfile) -> object:
        """Return what a step does, equal for steps that differ in small calls alone."""
        calls = list(zip(step.calls, self.last(len(step.calls)), strict=False))
        large = [seen.shape for call, seen in calls if call.profile.size >= LITTLE]
        return frozenset(Counter(large or [seen.shape for _, seen in calls]).items())

    def alike(self, step: StepProfile) -> bool:
        """Tell whether the last calls are such as a step has, though on other views and arrays."""
        kinds = {_kind(call.profile) for call in step.calls}
        recent = [self._profiles.get(seen.shape) for seen in self.last(len(step.calls))]
        return all(profile is not None and _kind(profile) in kinds for profile in recent)

    # Steps ------------------------------------------------------------------------------------------------------------

    def repeated(self, repeats: Repeats) -> StepProfile | None:
        """Return the step that the program repeats; None if some call of it is planned by itself alone, or none has a choice.

        Every call of the step runs now on devices that its profile lists.
        """
        if self._recent and self._profiles.get(self._recent[-1].shape, self) is None:
            self.why = ALONE  # said at once: this is asked at the end of every turn
            return None
        period = repeats.period
        events = repeats.last(2 * period)
        recent = self.last(period)
        if len(events) < 2 * period or len(recent) < period:
            return None
        before, now = events[:period], events[period:]
        if any(seen.shape is not event.what for seen, event in zip(recent, now, strict=True)):
            self.why = "some of its calls were planned where nobody saw them"
            return None
        profiles = self._known(recent)
        if profiles is None:
            return None
        calls = []
        for then, event, profile in zip(before, now, profiles, strict=True):
            renewed = tuple([b - a for a, b in zip(then.arrays, event.arrays, strict=True)])
            arrays = tuple([b + new for b, new in zip(event.arrays, renewed, strict=True)])
            calls.append(StepCall(profile, arrays, renewed))
        return StepProfile(tuple(calls), self._awaited(period, before[0].births, _births(before, now)))

    def window(self, count: int) -> StepProfile | None:
        """Return the last calls as a step that stands for what will come; None if they leave no choice.

        Arrays that were made meanwhile are made anew in each turn.
        """
        recent = self.last(count)
        if len(recent) < count:
            return None
        profiles = self._known(recent)
        if profiles is None:
            return None
        before = self.last(count + 1)[0].births  # what was made since is for these calls
        newest = max([id for seen in recent for id in seen.arrays], default=0)
        made = max(0, newest - before)
        calls = []
        for seen, profile in zip(recent, profiles, strict=True):
            renewed = tuple([made if id > before else 0 for id in seen.arrays])
            arrays = tuple([id + new for id, new in zip(seen.arrays, renewed, strict=True)])
            calls.append(StepCall(profile, arrays, renewed))
        return StepProfile(tuple(calls), self._awaited(count, before, made), exact=False)

    def told(self, tasks: Sequence[Task], births: int, reads: Sequence[tuple[int, int, int]]) -> StepProfile | None:
        """Return calls that wait to be planned as a step, with reads after so many of them; None if they leave no choice.

        Arrays that were made since the first of them, before which there were so many `births`, are made anew in each turn.
        """
        profiles = [self.profile(task) for task in tasks]
        known = [profile for profile in profiles if profile is not None]
        if len(known) < len(profiles):
            self.why = "a call is planned by itself alone"
            return None
        if not any(len(profile.devices) > 1 for profile in known):
            return None
        before = births - len([a for a in tasks[0].arrays if a._storage.id > births])
        made = max([array._storage.id for task in tasks for array in task.arrays]) - before
        calls = []
        for task, profile in zip(tasks, known, strict=True):
            arrays = tuple([array._storage.id for array in task.arrays])
            calls.append(StepCall(profile, arrays, tuple([made if id > before else 0 for id in arrays])))
        awaited = [Awaited(at, array, made if array > before else 0, nbytes) for at, array, nbytes in reads]
        return StepProfile(tuple(calls), tuple(awaited), swapped=_swapped(calls))

    def passed(self, count: int) -> StepProfile | None:
        """Return the last calls as a step that comes again as it is, with what was read since the first of them."""
        found = self.window(count) if 0 < count <= LONGEST else None
        if found is None:
            return None
        first, made = self.calls - count, max([0, *[new for call in found.calls for new in call.renewed]])
        before = min(
            [id - new for call in found.calls for id, new in zip(call.arrays, call.renewed, strict=True) if new],
            default=inf,
        )
        awaited = [
            Awaited(at - first, array + (made if array >= before else 0), made if array >= before else 0, nbytes)
            for at, array, nbytes in self._reads
            if first < at <= self.calls
        ]
        return found._replace(reads=tuple(awaited), exact=True)

    def _known(self, recent: Sequence[SeenCall]) -> list[CallProfile] | None:
        """Return the profiles of calls, if all of them have one, and if there is a choice."""
        found = []
        for shape, chunks, _, _ in recent:
            profile = self._profiles.get(shape)
            if profile is None:
                self.why = ALONE
                return None
            if not profile.host and any(chunk.device not in profile.devices for chunk in chunks):
                self.why = f"{profile.name} runs on a device that was not there when it was looked at"
                del self._profiles[shape]  # it is looked at again with the next such call
                return None
            found.append(profile)
        return found if any(len(profile.devices) > 1 for profile in found) else None  # else there is one plan

    def _awaited(self, count: int, before: int, made: int) -> tuple[Awaited, ...]:
        """Return what the program read between its last calls; of arrays that were born since then, as many are made in a turn."""
        first = self.calls - count
        found = []
        for at, array, nbytes in self._reads:
            if first <= at < self.calls:
                new = made if array > before else 0
                found.append(Awaited(at - first, array + new, new, nbytes))
        return tuple(found)


def by_device(chunks: Sequence[Chunk]) -> StepParts:
    """Return the chunks of a call, those of a device as one part."""
    boxes: dict[str, list[Box]] = {}
    for chunk in chunks:
        boxes.setdefault(chunk.device, []).append(chunk.box)
    return tuple([StepPart(device, bounding(mine)) for device, mine in boxes.items()])


def _swapped(calls: Sequence[StepCall]) -> tuple[tuple[int, int], ...]:
    """Return arrays that most likely take each other's place in the next turn: a stencil reads one and writes the other.

    One turn does not tell. If they stay where they are, parts exchange less than is counted.
    """
    written = {
        array for c in calls for a, array in zip(c.profile.arguments, c.arrays, strict=True) if a.writes or a.reduces
    }
    found: dict[int, int] = {}
    for call in calls:
        arguments = list(zip(call.profile.arguments, call.arrays, call.renewed, strict=True))
        for (argument, array, _), further in zip(arguments, call.profile.beyond(), strict=False):
            if 0.0 < further < HALO and array not in written and array not in found:
                for other, target, new in arguments:
                    alike = (other.extent, other.itemsize) == (argument.extent, argument.itemsize)
                    if alike and other.writes and not other.reduces and not new and target not in found.values():
                        found[array] = target
                        break
    return tuple(found.items())


def _births(before: Sequence[Event], now: Sequence[Event]) -> int:
    return now[0].births - before[0].births


def _kind(call: CallProfile) -> tuple[object, int]:
    """Return what calls have in common that take about as long."""
    return call.task.kernel, round(PER_DOUBLING * log2(call.box.volume or 1))
