"""Which threads of the CPU backend are woken: none for what the thread that made it ready takes over itself, and none too few."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import coexec as cx
from coexec.backend.cpu import CpuBackend
from coexec.backend.cpu_worker import Worker
from coexec.graph.instruction import Instruction
from coexec.machine.platform import HOST, USER, Device
from coexec.program.call import Options
from tests.backend.test_cpu import allocation_of, cpu_kernel, narrow


def core(number: int) -> Device:
    """Return a device that is one core, whether or not this machine has it."""
    return Device(f"cpu:{number}", "cpu", HOST, (HOST, USER), "cpu", (number,))


class Woken:
    """A CPU backend of three cores whose threads sleep, but for that of core 0, which is this one and reports something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.backend = backend = CpuBackend([core(number) for number in range(3)])
        self.found: list[str] = []
        for name in ("cpu:0", "cpu:1", "cpu:2"):
            worker = backend._workers[name]
            worker.thread, worker.idle = threading.current_thread(), name != "cpu:0"
        backend._mine[threading.get_ident()] = backend._workers["cpu:0"]
        monkeypatch.setattr(backend, "_rouse", self._rouse)
        backend.start(lambda ran: None)

    def _rouse(self, worker: Worker) -> None:
        worker.idle = False
        self.found.append(worker.device.name)

    def issue(self, number: int, *, named: bool = False) -> list[str]:
        """Issue a kernel; return who was woken."""
        self.found.clear()
        x, y = allocation_of(4), allocation_of(4)
        device = self.backend._workers[f"cpu:{number}"].device
        kernel: Instruction = cpu_kernel(1, device, x, y, 2.0)
        kernel.task.options = Options(devices=device.name if named else None)
        self.backend.issue(kernel, 0)
        return list(self.found)


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> Woken:
    """Return a backend whose threads are only said to be woken."""
    return Woken(monkeypatch)


def test_nobody_is_woken_for_what_this_thread_does_next(woken: Woken) -> None:
    assert woken.issue(0) == []
    assert woken.issue(0) == ["cpu:1"]  # it does one of them
    assert woken.issue(0) == ["cpu:2"]
    assert woken.issue(0) == []  # everybody is up


def test_this_thread_takes_over_one_kernel_that_may_move(woken: Woken) -> None:
    assert woken.issue(1) == []
    assert woken.issue(2) == ["cpu:2"]
    assert woken.issue(1) == ["cpu:1"]


def test_what_was_left_is_called_for_as_soon_as_this_thread_has_work_of_its_own(woken: Woken) -> None:
    assert woken.issue(1) == []
    assert woken.issue(0) == ["cpu:1"]
    assert woken.issue(2) == ["cpu:2"]


def test_a_named_device_does_it_itself(woken: Woken) -> None:
    assert woken.issue(1, named=True) == ["cpu:1"]
    assert woken.issue(0, named=True) == []


def test_who_does_not_report_anything_wakes_a_thread(woken: Woken) -> None:
    woken.backend._mine.clear()
    assert woken.issue(1) == ["cpu:1"]
    assert woken.issue(1) == ["cpu:2"]


def test_what_is_taken_is_not_left_any_more(woken: Woken) -> None:
    assert woken.issue(1) == []
    mine = woken.backend._workers["cpu:0"]
    assert woken.backend._take(mine) is not None and woken.backend._take(mine) is None
    assert woken.issue(0) == []


def test_no_thread_is_known_once_a_backend_has_stopped() -> None:
    backend = CpuBackend([narrow(0), narrow(1)])
    over = threading.Event()
    backend.start(lambda ran: over.set())
    x, y = allocation_of(4), allocation_of(4)
    backend.allocate(x)
    backend.allocate(y)
    backend.issue(cpu_kernel(1, narrow(0), x, y, 2.0), 0)
    assert over.wait(30.0)
    assert len(backend._mine) == 1
    backend.stop()
    assert backend._mine == {}


@cx.kernel(x=cx.read, y=cx.update)
def add(x: Any, y: Any) -> None:
    y += x


@pytest.mark.parametrize("interval", [1e-5, 5e-3])
def test_graphs_that_fork_and_join_come_to_their_end_however_threads_switch(interval: float) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        with cx.Runtime("cpu:0,cpu:1", inline=False):
            arrays = [cx.zeros(64) for _ in range(6)]
            arrays[0][...] = 1.0
            for step in range(120):
                for other in range(1, 1 + step % 5):
                    add(arrays[0], arrays[other])
                    add.using(devices=f"cpu:{step % 2}")(arrays[0], arrays[5])
            cx.wait()
            calls = [len([s for s in range(120) if s % 5 >= other]) for other in range(1, 5)]
            assert [float(array[0]) for array in arrays] == [1.0, *map(float, calls), float(sum(calls))]
    finally:
        sys.setswitchinterval(before)
