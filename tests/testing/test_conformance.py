from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

from coexec.backend.base import Ran
from coexec.backend.null import NullBackend
from coexec.backend.opencl import OpenCLBackend
from coexec.backend.simulated import SimulatedBackend
from coexec.graph.command import Chunk
from coexec.graph.instruction import Binding, Copy, Fill, Instruction, Launch
from coexec.machine.platform import HOST, Device
from coexec.plan.candidate import Share
from coexec.testing.conformance import check_backend
from tests.backend.opencl_parts import OWN, Call, Source, aligned, needs_opencl


def opencl_kernel(id, device, x, y, a):
    task: Any = Call(("x", "y", "a"), {"a": a})
    bindings = (Binding("x", x, x.box, None, writes=False), Binding("y", y, y.box, None, writes=True))
    share = Share(Source("y(i) = a * y(i) + x(i)"), None, None, None)
    return Instruction(id, Launch(device.name, Chunk(device.name, y.box), share, bindings), task)


def allocate_on_host(allocation):
    allocation.data = aligned(np.empty(allocation.box.shape, allocation.dtype))


@needs_opencl
def test_opencl_with_its_own_memory_keeps_the_contract():
    check_backend(lambda: OpenCLBackend(0, memory_id=OWN), kernel=opencl_kernel)


@needs_opencl
def test_opencl_keeps_the_contract_when_threads_switch_all_the_time():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(3):
            check_backend(lambda: OpenCLBackend(0, memory_id=OWN), kernel=opencl_kernel)
    finally:
        sys.setswitchinterval(before)


@needs_opencl
def test_opencl_on_the_hosts_memory_keeps_the_contract():
    check_backend(lambda: OpenCLBackend(0, memory="shared"), kernel=opencl_kernel, allocate=allocate_on_host)


def null():
    return NullBackend([Device("null:0", "null", HOST), Device("null:1", "null", 2)])


def simulated():
    return SimulatedBackend([Device("sim:0", "simulated", 2)])


@pytest.mark.parametrize("make", [null, simulated])
def test_backends_that_compute_nothing_keep_the_contract(make):
    check_backend(make, executes=False)


def test_an_executing_backend_needs_a_kernel_to_be_checked():
    with pytest.raises(AssertionError, match="needs kernel="):
        check_backend(small)


class Small:
    """The smallest backend that executes: one thread, one device on the host's memory, the suite's kernel only."""

    kind = "small"
    runs_python = True
    helps = False

    def __init__(self):
        self.devices = [Device("small:0", "small", HOST, lanes=4)]
        self.inbox: list[Any] = []
        self.ready = threading.Condition()
        self.thread: threading.Thread | None = None
        self.now = 0.0

    def start(self, finished):
        self.finished = finished
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def clock(self):
        self.now += 1
        return self.now

    def allocate(self, allocation):
        allocation.data = np.empty(allocation.box.shape, allocation.dtype)

    def release(self, allocation):
        allocation.data = None

    def issue(self, instruction, lane, waits=()):
        with self.ready:
            self.inbox.append((instruction, lane))
            self.ready.notify()

    def withdraw(self, instruction):
        with self.ready:
            kept = [item for item in self.inbox if item is None or item[0] is not instruction]
            taken = len(kept) < len(self.inbox)
            self.inbox[:] = kept
            return taken

    def help(self):
        return False

    def stop(self):
        thread, self.thread = self.thread, None
        if thread is not None:
            with self.ready:
                self.inbox.append(None)
                self.ready.notify()
            thread.join()

    def take(self):
        with self.ready:
            self.ready.wait_for(lambda: self.inbox)
            return self.inbox.pop(0)

    def work(self):
        while (item := self.take()) is not None:
            start, error = self.clock(), item[0].failure
            try:
                if error is None:
                    self.run(item[0])
            except Exception as caught:
                error = caught
            self.finished(Ran(item[0], "small:0", item[1], start, self.clock(), error=error))

    def run(self, instruction):
        match instruction.step:
            case Launch(bindings=bindings, body=a):
                x, y = (binding.allocation.data for binding in bindings if binding.allocation)
                y[...] = a * y + x
            case Fill(allocation=allocation, boxes=boxes, value=value):
                for box in boxes:
                    allocation.data[box.slices(allocation.box.lo)] = value
            case Copy(source=source, target=target, boxes=boxes):
                for box in boxes:
                    target.data[box.slices(target.box.lo)] = source.data[box.slices(source.box.lo)]


def small():
    return Small()


def small_kernel(id, device, x, y, a):
    bindings = (Binding("x", x, x.box, None, writes=False), Binding("y", y, y.box, None, writes=True))
    step = Launch(device.name, Chunk(device.name, y.box), Share(a, None, None, None), bindings)
    return Instruction(id, step, None)


def test_the_smallest_executing_backend_keeps_the_contract():
    check_backend(small, kernel=small_kernel)


class Gated(Small):
    """Waits for a burst of kernels and begins with the last of them."""

    def take(self):
        with self.ready:
            self.ready.wait_for(lambda: self.inbox and (len(self.inbox) >= 8 or not self.is_kernel()))
            if self.is_kernel():
                self.inbox.reverse()
                self.__class__ = Small  # type: ignore[assignment]  # the damage is done
            return self.inbox.pop(0)

    def is_kernel(self):
        return self.inbox[0] is not None and isinstance(self.inbox[0][0].step, Launch)


class Twice(Small):
    def start(self, finished):
        super().start(lambda ran: (finished(ran), finished(ran)))


class Whole(Small):
    def run(self, instruction):
        if isinstance(instruction.step, Copy):
            instruction.step.boxes = (instruction.step.source.box,)
        super().run(instruction)


class Raises(Small):
    def issue(self, instruction, lane, waits=()):
        if isinstance(instruction.step, Copy) and instruction.step.source.data is None:
            raise ValueError("no memory")
        super().issue(instruction, lane, waits)


class Ignores(Small):
    def work(self):
        while (item := self.take()) is not None:
            error, item[0].failure = item[0].failure, None
            start = self.clock()
            try:
                self.run(item[0])
            except Exception as caught:
                error = caught
            item[0].failure = item[0].failure or error
            self.finished(Ran(item[0], "small:0", item[1], start, self.clock(), error=error))


class Lingers(Small):
    def stop(self):
        super().stop()
        if not hasattr(self, "extra"):
            self.gate = threading.Event()
            self.extra = threading.Thread(target=self.gate.wait, args=(20,), name="lingering", daemon=True)
            self.extra.start()
            LEFT.append(self.gate)


LEFT: list[threading.Event] = []


class Pretends(Small):
    def help(self):
        return True


class Nameless(Small):
    def __init__(self):
        super().__init__()
        self.devices = [Device("a", "small", HOST), Device("a", "small", HOST)]


class Foreign(Small):
    kind = "other"


class Keeps(Small):
    def release(self, allocation):
        pass


class Claims(Small):
    def withdraw(self, instruction):
        return True


@pytest.mark.parametrize(
    ("backend", "promise"),
    [
        (Gated, "a lane reports its instructions in the order of issue"),
        (Twice, "reported|order"),
        (Whole, "a copy moves its boxes and nothing else"),
        (Raises, "no memory"),
        (Ignores, "what has a failure is not run"),
        (Lingers, "stop\\(\\) ends every thread; still there: \\['lingering'"),
        (Pretends, "help\\(\\) with nothing issued returns False"),
        (Nameless, "names of their own"),
        (Foreign, "of the backend's kind"),
        (Keeps, "release clears data"),
        (Claims, "taken back"),
    ],
)
def test_a_broken_promise_is_named(backend, promise):
    try:
        with pytest.raises((AssertionError, ValueError), match=promise):
            check_backend(backend, kernel=small_kernel, timeout=5.0)
    finally:
        for gate in LEFT:
            gate.set()
