"""Code inside a steered block runs where it is told to; code inside an asking block does not run at all."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import coexec as cx
from coexec.calibrate.steering import asking, steered
from coexec.ops import matmul
from tests.devices import MIXED, TWO


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def doubled(x):
    return x * 2


def devices_of(path: str, name: str) -> list[str]:
    ran = [row for row in cx.Trace.load(path).rows if row["row"] == "ran" and row["name"] == name]
    return [row["device"] for row in ran]


def test_options_reach_kernels_that_operations_and_ufuncs_call(tmp_path: Path) -> None:
    trace = str(tmp_path / "run.json")
    last = TWO.split(",")[-1]
    with cx.Runtime(devices=TWO, trace=trace) as runtime, steered(runtime, devices=last, split=False) as steering:
        a = cx.array(np.ones((64, 64)))
        assert np.asarray(matmul(a, a) + np.exp(a))[0, 0] == pytest.approx(64 + math.e)
        assert steering.obeyed == 3
    assert {*devices_of(trace, "matmul_float64"), *devices_of(trace, "exp"), *devices_of(trace, "add")} == {last}


def test_a_kernel_that_no_named_device_runs_goes_elsewhere_and_is_noted() -> None:
    with cx.Runtime(devices=MIXED) as runtime:
        x = cx.array(np.arange(8.0))
        with steered(runtime, devices="opencl:0") as steering:
            assert np.asarray(doubled(x))[-1] == 14
            assert np.asarray(doubled(x))[1] == 2
        assert steering.obeyed == 0
        assert list(steering.refused) == [doubled]


def test_steering_ends_with_its_block_and_arrays_outlive_it() -> None:
    with cx.Runtime(devices="cpu:0") as runtime:
        with steered(runtime, split=False):
            x = cx.zeros(4)
        assert np.asarray(doubled(x)).tolist() == [0.0] * 4


def test_asking_collects_plans_and_computes_nothing() -> None:
    with cx.Runtime(devices=TWO) as runtime:
        x = cx.asarray(np.broadcast_to(np.float32(1), (1 << 20, 1 << 12)))  # would be 16 GB
        with asking(runtime) as session:
            result = np.sqrt(doubled(x))
        assert [plan.name for plan in session.plans] == ["doubled", "sqrt"]
        assert (result.shape, result.dtype) == (x.shape, np.float32)
        assert session.plans[0].space == x.shape
