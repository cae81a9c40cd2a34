"""How long kernels wait is no part of how long they take: a short one that was unlucky comes back to its caller."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend import cpu

US = 1e-6
COMPUTES = 3 * US  # the kernel, by its processor time
WAITS = 37 * US  # for the interpreter lock, on any thread but the caller's
IN_CALLER = "runs in the caller"
SOON = 20  # calls


class Clock:
    """A clock that kernels move, and nobody else."""

    def __init__(self) -> None:
        self.now = self.computed = 0.0  # seconds

    def pass_by(self) -> None:
        """Let a kernel take its time on the calling thread."""
        self.computed += COMPUTES
        self.now += COMPUTES + (0.0 if threading.current_thread() is threading.main_thread() else WAITS)


_clock = Clock()


def take_time() -> None:
    """Be a kernel."""
    _clock.pass_by()


@cx.kernel(x=cx.update)
def short(x: Any) -> None:
    take_time()


class Records:
    """Keeps what kernels were predicted to take, how long they took and waited, and the last launch."""

    def __init__(self) -> None:
        self.found: list[tuple[float | None, float, float]] = []
        self.step: Any = None

    def ran(self, records: Any) -> None:
        """Take what ran."""
        for record in records:
            if record.instruction.kind == "kernel":
                self.step = record.instruction.step
                self.found.append((self.step.predicted, record.stop - record.start, record.waited))


@pytest.fixture(autouse=True)
def _invented_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU's kernels take invented time."""
    invented = SimpleNamespace(perf_counter=lambda: _clock.now, thread_time=lambda: _clock.computed)
    monkeypatch.setattr(cpu, "time", invented)


def runtime(**options: Any) -> cx.Runtime:
    return cx.Runtime("cpu:0", store="off", replay=False, compile_bodies="off", diagnostics="off", **options)


def seen(rt: cx.Runtime) -> None:
    """Let observers see everything that ran."""
    cx.wait()
    rt._driver.pump.drain()


@pytest.mark.parametrize("predicted", [21 * US, 40 * US, 60 * US], ids=["21us", "40us", "60us"])
def test_a_short_kernel_that_was_measured_while_it_waited_is_measured_again_and_comes_back(
    predicted: float,
) -> None:
    with runtime() as rt:
        records, x = Records(), cx.array(np.zeros(8))
        rt._driver.pump.observe(records)
        short(x).result()
        seen(rt)
        for _ in range(40):  # until it is settled
            records.step.model.learn(records.step.work, predicted)
        whys: list[str] = []
        while IN_CALLER not in whys and len(whys) < SOON:
            task = short(x)
            task.result()
            cx.wait()
            whys.append(task.why)
    assert whys[0] != IN_CALLER
    assert whys[-1] == IN_CALLER


def test_waiting_is_measured_from_where_a_kernel_does_not_run_in_its_caller() -> None:
    with runtime(inline=False) as rt:
        records, x = Records(), cx.array(np.zeros(8))
        rt._driver.pump.observe(records)
        for _ in range(2):
            short(x).result()
        seen(rt)
        for predicted in (5 * US, 16 * US, 40 * US, 60 * US):
            for _ in range(40):
                records.step.model.learn(records.step.work, predicted)
            short(x).result()
    first, _, *others = records.found
    assert first[0] is None and first[2] == pytest.approx(WAITS)  # of the first run nothing is known
    assert [round(waited / US) for _, _, waited in others] == [0, 37, 37, 37]
    assert all(took == pytest.approx(COMPUTES + WAITS) for _, took, _ in others)
