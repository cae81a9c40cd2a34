"""What a step is: its calls, the arrays that flow between them, and the values that the program waits for.

Before: graph/, plan/candidate.py.  After: cuts.py, estimate.py, planner.py.  Holds no array of the program: those come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from ...geometry import Box
from ...graph.call import without_arrays
from ...graph.mapped import Mapped, mapped, placed
from ...graph.task import Task
from ...predict.features import part_of, work_of, work_of_part
from ...predict.work import Work
from ...program.array import Array
from ..candidate import Candidate, known_ones
from ..conflicts import however_cut
from ..host_only import Who
from ..prescribed import is_cut
from ..split import blocks_of

KEPT = 64  # cuts of one call whose parts are remembered


class ArgumentProfile(NamedTuple):
    """What a call does with one of its arrays."""

    extent: Box  # of the array
    box: Box  # of the view
    itemsize: int
    reads: bool
    writes: bool
    reduces: bool


class Touched(NamedTuple):
    """What a part of a call needs of a device: boxes by argument, and its work."""

    boxes: tuple[Box, ...]
    work: Work


class CallProfile:
    """A call as far as plans depend on it: all calls of one shape have the same. Made once per shape."""

    __slots__ = (
        "_beyond",
        "_candidates",
        "_parts",
        "arguments",
        "axis",
        "blocks",
        "box",
        "by_peaks",
        "devices",
        "granule",
        "host",
        "name",
        "reduces",
        "rows",
        "task",
        "text",
        "variants",
        "whole",
    )

    def __init__(self, task: Task, candidates: Sequence[Candidate], *, divisible: bool) -> None:
        """Look at a task that is about to be planned; `candidates` are who can run it, and none: the host does."""
        kernel = task.kernel
        assert kernel is not None
        self.name = task.name
        self.task = without_arrays(task)
        self.text = repr(task.key)  # by which plans name such calls
        self.host = not candidates
        self.by_peaks = False  # devices are what their peak rates say: what was measured beside others tells less
        self.reduces = bool(kernel.reduces)
        self.box = task.domain
        works = work_of(task) if candidates else None
        self._candidates = [c for c in candidates if not c.blocked]
        self.variants = len(kernel.variants)  # that there were: another one may have been compiled since
        axes = [axis for axis in task.axes if task.domain.hi[axis] - task.domain.lo[axis] > 1] if divisible else []
        self.axis: int | None = axes[0] if axes else None
        self.rows = task.domain.hi[axes[0]] - task.domain.lo[axes[0]] if axes else 1
        self.granule = task.granule
        self.arguments = tuple(
            [
                ArgumentProfile(
                    array._storage.box,
                    array._box,
                    array.dtype.itemsize,
                    param.access.reads,
                    param.access.writes,
                    param.access.mode == "reduce",
                )
                for param, array in zip(task.accesses, task.arrays, strict=True)
            ]
        )
        self.blocks = len(blocks_of(task, task.domain, self.axis or 0)) if self.reduces else 0
        self._parts: dict[Box, Touched] = {}
        self._beyond: tuple[float, ...] | None = None
        self.whole = Touched(tuple([a.box for a in self.arguments]), works) if works is not None else None
        self.devices: dict[str, Candidate] = {}
        self.look_again()

    @property
    def size(self) -> int:
        """The bytes of all its views."""
        return sum([argument.box.volume * argument.itemsize for argument in self.arguments])

    def look_again(self) -> None:
        """Choose each device's variant by what is known of them now; what nobody has measured is no ground to plan on."""
        work = self.whole.work if self.whole is not None else None
        self.devices = {c.name: c for c in known_ones(self._candidates, work)}

    def part(self, box: Box) -> Touched:
        """Return what a part of the index space touches and asks for."""
        found = self._parts.get(box)
        if found is None:
            if len(self._parts) >= KEPT:
                self._parts.clear()
            task = self.task
            boxes = [
                a.box if m is None else _one_box(m, array)
                for a, m, array in zip(self.arguments, mapped(task, box), task.arrays, strict=True)
            ]
            found = self._parts[box] = Touched(tuple(boxes), work_of_part(task, box))
        return found

    def beyond(self) -> tuple[float, ...]:
        """Return, by argument, which part of it the first half of a call reads beyond its half: 0, little of a halo, or the rest."""
        if self._beyond is None:
            self._beyond = ()
            if self.axis is not None:
                half = part_of(self.box, self.axis, 0, max(1, self.rows // 2))
                share, touched = half.volume / (self.box.volume or 1), self.part(half).boxes
                self._beyond = tuple(
                    [
                        max(0.0, box.volume / (a.box.volume or 1) - share) if a.reads and not a.reduces else 0.0
                        for a, box in zip(self.arguments, touched, strict=True)
                    ]
                )
        return self._beyond

    def launches(self, device: str, box: Box) -> int:
        """Return how many kernels compute a part: the fixed blocks of a reduction are one each, unless a device loops over them."""
        candidate = self.devices.get(device)
        if not self.blocks or candidate is None or candidate.device.loops:
            return 1
        return max(1, round(self.blocks * box.volume / (self.box.volume or 1)))

    def was_measured(self, device: str, touched: Touched) -> bool:
        """Tell whether just this part was seen to run on a device."""
        candidate = self.devices.get(device)
        estimate = candidate.model.estimate(touched.work, together=False) if candidate is not None else None
        return estimate is not None and estimate.source == "history"

    def seconds(self, device: str, touched: Touched, *, together: bool) -> float | None:
        """Return the predicted seconds of a part on a device; None if nothing is known."""
        candidate = self.devices.get(device)
        if candidate is None:
            return None
        if self.by_peaks and (stated := candidate.model.stated(touched.work)) is not None:
            return stated
        estimate = candidate.model.estimate(touched.work, together=together)
        if estimate is None or not 0.0 <= estimate.seconds < inf:
            return None  # what is no time is nothing to plan by
        return estimate.seconds


def _one_box(part: Mapped, array: Array) -> Box:
    """Return what a part touches of an array as one box; beyond a border that wraps lies little, which does not count."""
    if part.spans:
        return placed(array, max(part.spans, key=lambda span: span.volume))
    return part.of(array)[0]


def profile_of(task: Task, policy: str, who: Callable[[], Who]) -> CallProfile | None:
    """Return the profile of a call; None if it is planned by itself alone: in pieces on demand, as the program says, or with other ranks."""
    kernel, options = task.kernel, task.options
    if kernel is None or options is None or task.deal is not None:
        return None
    if kernel.host:
        return CallProfile(task, (), divisible=False)
    if (options.policy or policy) != "static" or options.oversubscribe > 1 or is_cut(options):
        return None
    found = who()
    if found.host or found.kept_out or not found.able:
        return None
    return CallProfile(task, found.able, divisible=bool(kernel.split) and options.split and however_cut(task))


class StepCall(NamedTuple):
    """A call of a step, on arrays by number."""

    profile: CallProfile
    arrays: tuple[int, ...]
    renewed: tuple[int, ...]  # by how much each number grows from turn to turn: 0 for arrays that stay


class Awaited(NamedTuple):
    """A value that the program waits for."""

    after: int  # calls of the step
    array: int
    renewed: int
    nbytes: int


class StepProfile(NamedTuple):
    """What is planned: calls in order, as they come turn by turn, and what the program reads between them."""

    calls: tuple[StepCall, ...]
    reads: tuple[Awaited, ...] = ()
    exact: bool = True  # it comes again as it is; else it is a sample of what comes
    swapped: tuple[tuple[int, int], ...] = ()  # arrays that take each other's place from turn to turn
