"""The backend contract as a test: `check_backend` for any backend, inside this repository or outside.

Before: backend/base.py.  After: the tests of whoever writes a backend.  Knows no backend and no way to write kernels.

    def test_my_backend_keeps_the_contract():
        check_backend(MyBackend, kernel=my_kernel)

`kernel(id, device, x, y, a)` returns the instruction `id` that sets `y = a * y + x` for two one-dimensional int64
allocations of the same box, with the Python int `a` as a scalar: the suite's only kernel. It does not commute with
itself for different `a`, so its results tell in which order it ran.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from ..backend.base import Backend, Ran
from ..geometry import Box, whole
from ..graph.command import Chunk
from ..graph.instruction import Allocation, Copy, Fill, Instruction, Launch
from ..machine.platform import HOST, USER, Device
from ..plan.candidate import Share
from ..program.variant import Variant

MakeKernel = Callable[[int, Device, Allocation, Allocation, int], Instruction]
SIZE = 1000
"""Elements of the suite's arrays: more than a work-group, and no power of two."""

NO_SHARE = Share(Variant("nothing", "none"), None, None, None)


def check_backend(
    make: Callable[[], Backend],
    *,
    kernel: MakeKernel | None = None,
    allocate: Callable[[Allocation], None] | None = None,
    executes: bool = True,
    timeout: float = 60.0,
) -> None:
    """Raise AssertionError, naming the broken promise, unless each backend that `make` returns keeps the contract.

    `allocate` backs allocations in the device's memory where that is another backend's business. `executes=False` is
    for backends that compute nothing: values are not looked at, and `kernel` is not needed. `timeout` in seconds is
    how long an issued instruction may take.
    """
    _require(kernel is not None or not executes, "check_backend needs kernel= for a backend that executes")
    setting = Setting(make, kernel or _no_kernel, allocate, executes, timeout)
    for check in CHECKS:
        check(setting)


def _require(promise: bool, words: str) -> None:
    if not promise:
        raise AssertionError(words)


def _no_kernel(id: int, device: Device, x: Allocation, y: Allocation, a: int) -> Instruction:
    del x, a
    return Instruction(id, Launch(device.name, Chunk(device.name, y.box), NO_SHARE, ()), None)


@dataclass(frozen=True)
class Setting:
    """How to make what is checked."""

    make: Callable[[], Backend]
    kernel: MakeKernel
    allocate: Callable[[Allocation], None] | None
    executes: bool
    timeout: float

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        """Start a backend, and stop it when done."""
        stage = Stage(self)
        try:
            yield stage
        finally:
            stage.backend.stop()

    def stages(self) -> Iterator[tuple[Stage, Device]]:
        """Yield each device of a backend with a stage of its own."""
        for position in range(len(self.make().devices)):
            with self.stage() as stage:
                yield stage, stage.backend.devices[position]


class Stage:
    """A started backend, with an executor's patience."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.backend = setting.make()
        self.reports: list[Ran] = []
        self.on_report: Callable[[Ran], None] | None = None
        self.ids = count()
        self._told = threading.Condition()
        self.backend.start(self._finished)

    def _finished(self, ran: Ran) -> None:
        if self.on_report is not None:
            self.on_report(ran)
        with self._told:
            self.reports.append(ran)
            self._told.notify_all()

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> None:
        """Hand an instruction over; one that is over at once counts as reported."""
        ran = self.backend.issue(instruction, lane, waits)
        if ran is not None:
            _require(ran.instruction is instruction, "issue returned what became of another instruction")
            self._finished(ran)

    def wait(self, number: int) -> list[Ran]:
        """Help and wait until that many instructions were reported, and return them."""
        deadline = time.monotonic() + self.setting.timeout
        while len(self.reports) < number and time.monotonic() < deadline:
            if not (self.backend.helps and self.backend.help()):
                with self._told:
                    self._told.wait_for(lambda: len(self.reports) >= number, timeout=0.1)
        _require(len(self.reports) >= number, f"{len(self.reports)} of {number} issued instructions were reported")
        return self.reports

    def run(self, *instructions: Instruction, lane: int = 0) -> list[Ran]:
        """Issue instructions on a lane and wait for all that was ever issued here."""
        expected = len(self.reports) + len(instructions)
        for instruction in instructions:
            self.issue(instruction, lane)
        return self.wait(expected)[-len(instructions) :]

    def succeed(self, *instructions: Instruction) -> None:
        """Run instructions and raise the first error."""
        for ran in self.run(*instructions):
            if ran.error is not None:
                raise AssertionError(f"{ran.instruction} failed: {ran.error}") from ran.error

    def back(self, memory: int, box: Box, dtype: Any = np.int64) -> Allocation:
        """Return an allocation in the device's memory."""
        allocation = Allocation(next(self.ids), memory, 0, box, np.dtype(dtype))
        (self.setting.allocate or self.backend.allocate)(allocation)
        return allocation

    def host(self, data: Any, lo: tuple[int, ...] | None = None, memory: int = HOST) -> Allocation:
        """Return an allocation of the host that is `data`."""
        box = whole(data.shape).translate(lo or (0,) * data.ndim)
        allocation = Allocation(next(self.ids), memory, 0, box, data.dtype)
        allocation.data, allocation.frozen = data, data
        return allocation

    def copy(self, device: Device, source: Allocation, target: Allocation, *boxes: Box) -> Instruction:
        """Return a copy instruction."""
        return Instruction(next(self.ids), Copy(device.name, source, target, boxes, "coherence"), None)

    def fill(self, device: Device, allocation: Allocation, value: int, *boxes: Box) -> Instruction:
        """Return a fill instruction."""
        step = Fill(device.name, allocation, boxes, allocation.dtype.type(value))
        return Instruction(next(self.ids), step, None)

    def step(self, device: Device, x: Allocation, y: Allocation, a: int) -> Instruction:
        """Return the suite's kernel: y = a * y + x."""
        return self.setting.kernel(next(self.ids), device, x, y, a)

    def pair(self, device: Device) -> tuple[Allocation, Allocation]:
        """Return x = 1 and y = 0 in the device's memory."""
        x, y = (self.back(device.memory, whole((SIZE,))) for _ in range(2))
        self.succeed(self.fill(device, x, 1, x.box), self.fill(device, y, 0, y.box))
        return x, y

    def contents(self, device: Device, allocation: Allocation) -> Any:
        """Return what an allocation of the device's memory holds."""
        target = self.host(np.zeros(allocation.box.shape, allocation.dtype), allocation.box.lo)
        self.succeed(self.copy(device, allocation, target, allocation.box))
        return target.data

    def expect(self, device: Device, allocation: Allocation, values: Any, promise: str) -> None:
        """Raise unless the allocation holds `values`, where the backend computes any."""
        if self.setting.executes:
            found = self.contents(device, allocation)
            _require(np.array_equal(found, values), f"{promise}; {device.name} gave {found!r}, not {values!r}")

    def broken(self, device: Device) -> Instruction:
        """Return an instruction that cannot succeed: a copy between allocations without memory."""
        source, target = (Allocation(next(self.ids), device.memory, 0, whole((4,)), np.dtype(int)) for _ in range(2))
        return self.copy(device, source, target, source.box)


def _describes_itself(setting: Setting) -> None:
    backend = setting.make()
    names = [device.name for device in backend.devices]
    _require(bool(names) and len(set(names)) == len(names), f"devices have names of their own: {names}")
    for device in backend.devices:
        _require(device.kind == backend.kind, f"{device.name} is of the backend's kind {backend.kind!r}")
        _require(device.lanes >= 1, f"{device.name} has at least one lane")
    _require({backend.runs_python, backend.helps} <= {True, False}, "capabilities are declared")
    backend.stop()  # never started: nothing to do, and no error


def _allocates(setting: Setting) -> None:
    if not setting.executes or setting.allocate is not None:
        return
    for stage, device in setting.stages():
        for shape in ((SIZE,), (3, 4), (), (0, 5)):
            allocation = stage.back(device.memory, whole(shape), np.float64)
            _require(allocation.data is not None, f"allocate sets data, also for shape {shape}")
            stage.backend.release(allocation)
            _require(allocation.data is None, f"release clears data, also for shape {shape}")


def _fills_and_copies_boxes(setting: Setting) -> None:
    cases: Sequence[tuple[tuple[int, ...], tuple[Box, ...]]] = (
        ((), (whole(()),)),
        ((9,), (Box((2,), (5,)), Box((7,), (9,)))),
        ((5, 6), (Box((1, 2), (4, 5)), Box((0, 0), (1, 6)))),
        ((4, 3, 5), (Box((1, 1, 1), (3, 3, 4)),)),
        ((2, 3, 3, 4), (Box((0, 1, 0, 1), (2, 3, 2, 3)), Box((0, 0, 2, 0), (0, 1, 2, 1)))),
    )
    for stage, device in setting.stages():
        for shape, parts in cases:
            origin = tuple(range(3, 3 + len(shape)))  # boxes are in the array's coordinates, not the allocation's
            boxes = tuple(box.translate(origin) for box in parts)
            data = np.arange(1, 1 + whole(shape).volume, dtype=np.int64).reshape(shape)
            source = stage.host(data, origin, USER)
            target = stage.back(device.memory, source.box)
            stage.succeed(stage.fill(device, target, -7, source.box), stage.copy(device, source, target, *boxes))
            expected = np.full(shape, -7)
            for box in boxes:
                expected[box.slices(origin)] = data[box.slices(origin)]
            stage.expect(device, target, expected, f"a copy moves its boxes and nothing else ({shape}, {boxes})")
            stage.succeed(stage.fill(device, target, 5, *boxes))
            for box in boxes:
                expected[box.slices(origin)] = 5
            stage.expect(device, target, expected, f"a fill sets its boxes and nothing else ({shape}, {boxes})")


def _keeps_the_order_of_a_lane(setting: Setting) -> None:
    for stage, device in setting.stages():
        x, y = stage.pair(device)
        steps = [stage.step(device, x, y, a) for a in (2, 3, 5, 7, 1, 2, 3, 1)]
        ran = stage.run(*steps)
        _require([r.instruction for r in ran] == steps, "a lane reports its instructions in the order of issue")
        _no_errors(ran)
        value = 0
        for a in (2, 3, 5, 7, 1, 2, 3, 1):
            value = a * value + 1
        stage.expect(device, y, np.full(SIZE, value), "a lane runs its instructions in the order of issue")


def _reports_each_once(setting: Setting) -> None:
    for stage, device in setting.stages():
        lanes = min(3, device.lanes)
        pairs = [stage.pair(device) for _ in range(lanes)]
        before = len(stage.reports)
        begin = stage.backend.clock()
        steps = [(lane, stage.step(device, *pairs[lane], 1)) for _ in range(20) for lane in range(lanes)]
        for lane, step in steps:
            stage.issue(step, lane)
        ran = stage.wait(before + len(steps))[before:]
        _no_errors(ran)
        for lane in range(lanes):
            order = [r.instruction.id for r in ran if r.instruction.id in {s.id for n, s in steps if n == lane}]
            _require(order == [s.id for n, s in steps if n == lane], "each lane keeps its order beside the others")
            stage.expect(device, pairs[lane][1], np.full(SIZE, 20), "lanes do not disturb each other")
        stage.backend.stop()
        ids = [r.instruction.id for r in stage.reports]
        _require(len(set(ids)) == len(ids), "each instruction is reported exactly once")
        end = stage.backend.clock()
        _require(all(begin <= r.start <= r.stop <= end for r in ran), "times lie on the backend's clock, start first")


def _waits_across_lanes(setting: Setting) -> None:
    for stage, device in setting.stages():
        if not device.waits_across_lanes or device.lanes < 2:
            continue
        x, y = stage.pair(device)
        before = len(stage.reports)
        steps = [stage.step(device, x, y, a) for a in (3, 2, 5, 1, 4)]
        for position, step in enumerate(steps):
            stage.issue(step, position % 2, steps[position - 1 : position])
        _no_errors(stage.wait(before + len(steps))[before:])
        value = 0
        for a in (3, 2, 5, 1, 4):
            value = a * value + 1
        stage.expect(device, y, np.full(SIZE, value), "an instruction runs after those it waits for on other lanes")


def _reports_errors(setting: Setting) -> None:
    for stage, device in setting.stages():
        x, y = stage.pair(device)
        doomed, last = stage.step(device, x, y, 1), stage.step(device, x, y, 1)
        doomed.failure = ValueError("a predecessor failed")
        ran = stage.run(stage.step(device, x, y, 1), doomed, last)
        _require([r.error for r in ran] == [None, doomed.failure, None], "what has a failure is reported with it")
        stage.expect(device, y, np.full(SIZE, 2), "what has a failure is not run")
        if setting.executes:
            ran = stage.run(stage.broken(device), stage.step(device, x, y, 1))
            _require(ran[0].error is not None, "what cannot run is reported with an error, not raised")
            _require(ran[1].error is None, "a lane goes on after an error")
            stage.expect(device, y, np.full(SIZE, 3), "a lane goes on after an error")


def _lets_reports_issue(setting: Setting) -> None:
    for stage, device in setting.stages():
        x, y = stage.pair(device)
        more = [stage.step(device, x, y, 1) for _ in range(5)]
        before = len(stage.reports)

        def issue_next(ran: Ran, stage: Stage = stage, more: list[Instruction] = more) -> None:
            if more and ran.instruction.kind == more[0].kind:
                stage.issue(more.pop(), 0)

        stage.on_report = issue_next
        stage.issue(stage.step(device, x, y, 1), 0)
        _no_errors(stage.wait(before + 6)[before:])
        stage.expect(device, y, np.full(SIZE, 6), "finished is called without a lock held: it may issue more")


def _helps_as_it_says(setting: Setting) -> None:
    with setting.stage() as stage:
        _require(stage.backend.help() is False, "help() with nothing issued returns False at once")
        if not stage.backend.helps:
            device = stage.backend.devices[0]
            x, y = stage.pair(device)
            stage.issue(stage.step(device, x, y, 1), 0)
            _require(stage.backend.help() is False, "help() of a backend that does not help returns False")


def _takes_back(setting: Setting) -> None:
    for stage, device in setting.stages():
        x, y = stage.pair(device)
        before = len(stage.reports)
        steps = [stage.step(device, x, y, 1) for _ in range(10)]
        for step in steps:
            stage.issue(step, 0)
        taken = [step for step in steps if stage.backend.withdraw(step)]
        stage.wait(before + len(steps) - len(taken))
        _require(not stage.backend.withdraw(steps[0]), "what is over, or was taken back, cannot be taken back")
        stage.expect(device, y, np.full(SIZE, len(steps) - len(taken)), "what was taken back is not run")
        stage.backend.stop()
        reported = {r.instruction.id for r in stage.reports}
        _require(reported.isdisjoint(s.id for s in taken), "what was taken back is not reported")


def _stops(setting: Setting) -> None:
    threads = set(threading.enumerate())
    for stage, device in setting.stages():
        x, y = stage.pair(device)
        before = len(stage.reports)
        for lane in range(min(3, device.lanes)):
            stage.issue(stage.step(device, x, y, 1), lane)
        stage.backend.stop()
        _require(len(stage.reports) == before + min(3, device.lanes), "stop() finishes what was issued")
        stage.backend.stop()
    left = [thread.name for thread in threading.enumerate() if thread not in threads]
    _require(not left, f"stop() ends every thread; still there: {left}")


def _no_errors(ran: Sequence[Ran]) -> None:
    for report in ran:
        if report.error is not None:
            raise AssertionError(f"{report.instruction} failed: {report.error}") from report.error


CHECKS: tuple[Callable[[Setting], None], ...] = (
    _describes_itself,
    _allocates,
    _fills_and_copies_boxes,
    _keeps_the_order_of_a_lane,
    _reports_each_once,
    _waits_across_lanes,
    _reports_errors,
    _lets_reports_issue,
    _helps_as_it_says,
    _takes_back,
    _stops,
)
"""Every promise of the contract, simplest first."""
