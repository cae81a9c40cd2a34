"""A halo that wraps on devices with memories of their own, of which each holds its part and both ends: NumPy's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.machine.cores import available_cores

NEEDED = {"opencl:0": "pyopencl", "torch:cpu": "torch"}
CORE = available_cores()[-1]
STEPS = 5


@cx.kernel(split=0, u=cx.read(cx.halo([(2, 1), 1], border=("wrap", 0.5))), out=cx.write)
def drift(u: Any, out: Any) -> None:
    out[...] = 0.5 * u[:-3, 1:-1] + 0.25 * u[3:, :-2] + 0.125 * u[2:-1, 2:]


def by_numpy(u: Any, step: int) -> Any:
    for _ in range(STEPS):
        wide = np.pad(np.pad(u[::step], ((2, 1), (0, 0)), mode="wrap"), ((0, 0), (1, 1)), constant_values=0.5)
        u = 0.5 * wide[:-3, 1:-1] + 0.25 * wide[3:, :-2] + 0.125 * wide[2:-1, 2:]
    return u


@pytest.mark.parametrize("kind", ["opencl:0", "torch:cpu"])
@pytest.mark.parametrize("step", [1, -1])
def test_a_step_divided_between_memories_of_their_own(kind: str, step: int) -> None:
    pytest.importorskip(NEEDED[kind])
    start = np.random.default_rng(5).random((40, 6))
    with cx.Runtime(devices=f"cpu:0,{kind}@{CORE}", memory={kind: "own"}, store="off"):
        u, v = cx.array(start), cx.zeros((40, 6))
        for _ in range(STEPS):
            drift.using(devices=f"cpu:0,{kind}", policy="even")(u[::step], v)
            u, v = v, u
        got = np.asarray(u)
    assert np.array_equal(got, by_numpy(start, step))
