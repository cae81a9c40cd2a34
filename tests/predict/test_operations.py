"""Predictions of kernels that never ran: bytes, and the operations that their bodies tell."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import NOTHING, simulate
from coexec.predict.features import flops_at, work_of
from coexec.predict.operations import Operations
from coexec.predict.work import Work
from tests.backend.simulated_parts import CORES, backend_of, platform


def test_operations_are_alike_where_work_is_compared_and_travel_without_their_task() -> None:
    first, second = Work((1.0,), "", None, Operations()), Work((1.0,), "", None, Operations())
    assert first == second and hash(first) == hash(second)
    assert pickle.loads(pickle.dumps(first)) == first
    assert first.flops(None) is None and Work((1.0, 7.0)).flops(1) == 7.0


@pytest.mark.parametrize("declared", [None, 1.0])
def test_what_is_declared_counts_before_what_is_counted(declared: float | None) -> None:
    @cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), out=cx.write, flops=declared)
    def step(x, out):
        out[...] = np.exp(x[1:-1]) + x[2:]

    with cx.Runtime("cpu:0", store="off"):
        task = step(cx.zeros(1000), cx.zeros(1000))
        cx.wait()
        work = work_of(task)
    assert work.flops(flops_at(step)) == (1000.0 if declared else 1000 * 11)


def simulated_seconds(flops: Any) -> float:
    """Return what a kernel takes on a simulated device that moves data in no time."""

    @cx.kernel(split=0, x=cx.read, out=cx.write, flops=flops)
    def cubed(x, out):
        t = x * 2
        for _ in range(9):
            t = t * x
        out[...] = t

    quick = platform(CORES.replace("= 2e6", "= 1e15").replace("= 3e6", "= 1e15"))
    with cx.Runtime(machine=simulate(quick, devices="cpu:0", store="off", costs=NOTHING), store="off") as rt:
        x, out = cx.asarray(np.ones(100_000)), cx.empty(100_000)
        cubed(x, out)
        cx.wait()
        return backend_of(rt).now


def test_a_kernel_that_declares_nothing_is_simulated_as_if_it_had_declared_its_operations() -> None:
    assert simulated_seconds(None) == simulated_seconds(10.0) == pytest.approx(1e-3)  # of 1e9 per second
