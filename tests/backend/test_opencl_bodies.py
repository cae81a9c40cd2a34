"""Python bodies on OpenCL devices: text made at the launch, compared with NumPy before its first use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile import opencl_points
from coexec.compile.opencl_text import TEXTS, Text
from coexec.errors import PlanError
from tests.devices import MIXED

pytest.importorskip("pyopencl")
rng = np.random.default_rng(0)


def runtime(devices: str = "opencl:0", **options: Any) -> cx.Runtime:
    return cx.Runtime(devices, store="off", compile_bodies="auto", **options)


def stencil(border: Any) -> cx.Kernel:
    @cx.kernel(split=0, u=cx.read(cx.halo(1, border=border)), out=cx.update if border == "inside" else cx.write)
    def heat(u, out, k):
        out[...] = u[1:-1, 1:-1] + k * (
            u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - (2 + 2 * k) * u[1:-1, 1:-1]
        )

    return heat


def result(kernel: cx.Kernel, devices: str, *arguments: Any, at: str | None = None) -> Any:
    """Return what a kernel writes to its last array, called on these devices."""
    with cx.Runtime(devices, store="off", compile_bodies="auto"):
        given = [cx.array(value) if isinstance(value, np.ndarray) else value for value in arguments]
        kernel.using(devices=at)(*given)
        return np.asarray(next(value for value in reversed(given) if isinstance(value, cx.Array)))


def generated(kernel: cx.Kernel) -> str:
    """Return why the generated variant is off, or nothing."""
    return next(variant.off for variant in kernel.variants if variant.name == "generated")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("border", ["inside", "edge", "wrap", "reflect", 0.5])
def test_a_plain_stencil_runs_on_opencl_with_numpys_bits(border: Any, dtype: Any) -> None:
    kernel = stencil(border)
    u = rng.random((50, 37)).astype(dtype)
    out = rng.random(u.shape).astype(dtype)
    wanted = result(kernel, "cpu:0", u, out, 0.2)
    np.testing.assert_array_equal(result(kernel, "opencl:0", u, out, 0.2), wanted)
    np.testing.assert_array_equal(result(kernel, MIXED, u, out, 0.2, at=MIXED.replace("@1", "")), wanted)
    assert generated(kernel) == ""


def test_numbers_that_python_computes_are_passed_in_the_arrays_type() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def scaled(x, y, speed):
        y[...] = x * (2 - 4 * speed) + x.shape[1] * speed

    x = rng.random((30, 20)).astype(np.float32)
    for speed in (0.5000001, 0.1):  # where single precision would cancel
        wanted = result(scaled, "cpu:0", x, np.zeros_like(x), speed)
        np.testing.assert_array_equal(result(scaled, "opencl:0", x, np.zeros_like(x), speed), wanted)


def test_branches_by_numbers_make_one_text_each() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def either(x, y, n):
        if n > 3:
            y[...] = x + n
        else:
            y[...] = x * n

    x = rng.random(100)
    with runtime():
        given, y = cx.array(x), cx.zeros(100)
        for n in (1, 5, 3, 9):
            either(given, y, n)
            np.testing.assert_array_equal(np.asarray(y), x + n if n > 3 else x * n)
    assert generated(either) == ""


def test_chunks_results_zero_dimensional_arrays_and_reductions() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def placed(x, y, chunk, xp):
        y[...] = xp.sqrt(x) + chunk.lo[0] * 0 + chunk.whole

    @cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
    def returning(x, power):
        return x * x + power

    @cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
    def summed(x, total):
        total += (x * 2).sum(axis=0)

    x = rng.random((60, 7))
    with runtime():
        given, y, total, two = cx.array(x), cx.zeros(x.shape), cx.zeros(7), cx.array(np.array(2.0))
        placed(given, y)
        summed(given, total)
        np.testing.assert_array_equal(np.asarray(returning(given, 3.0)), x * x + 3.0)
        np.testing.assert_array_equal(np.asarray(returning(given, two)), x * x + 2.0)
        np.testing.assert_allclose(np.asarray(y), np.sqrt(x) + 1)
        np.testing.assert_allclose(np.asarray(total), 2 * x.sum(axis=0))
    assert [generated(kernel) for kernel in (placed, returning, summed)] == ["", "", ""]


def test_a_body_without_opencl_c_is_numpys_and_the_trace_says_why_without_a_warning(tmp_path: Path) -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def ordered(x, y):
        y[...] = np.sort(x, axis=1)

    x = rng.random((900, 900))
    with runtime(MIXED, trace=tmp_path / "run.json"):
        given, y = cx.array(x), cx.zeros(x.shape)
        for _ in range(3):
            ordered(given, y)
            np.testing.assert_array_equal(np.asarray(y), np.sort(x, axis=1))
    assert generated(ordered) == "its body has no OpenCL C: np.sort is not compiled"
    rows = json.loads((tmp_path / "run.json").read_text())
    told = [row["text"] for row in rows if row["row"] == "note" and "generated" in row["text"]]
    assert told == [f"kernel 'ordered': variant 'generated' is off: {generated(ordered)}"]


def test_who_names_the_device_is_told_that_the_host_stood_in() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def ordered(x, y):
        y[...] = np.sort(x)

    x = rng.random(40)
    with pytest.warns(cx.CoexecWarning, match="np.sort is not compiled"):
        got = result(ordered, MIXED, x, np.zeros(40), at="opencl:0")
    np.testing.assert_array_equal(got, np.sort(x))


def test_a_text_that_differs_from_numpy_changes_nothing_and_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**TEXTS, np.add: Text("{0} - {1}", "{0} - {1}")}
    monkeypatch.setattr(opencl_points, "TEXTS", wrong)

    @cx.kernel(split=0, x=cx.read, y=cx.update)
    def added(x, y):
        y += x

    x, y = rng.random((20, 30)), rng.random((20, 30))
    with pytest.warns(cx.CoexecWarning, match="y differs in 600 of 600 elements"):
        got = result(added, MIXED, x, y, at="opencl:0")
    np.testing.assert_array_equal(got, y + x)
    assert "differs in 600" in generated(added)


def test_views_steps_and_transposed_arrays_are_compared_and_computed_as_seen() -> None:
    @cx.kernel(x=cx.read, y=cx.update)
    def mixed(x, y):
        y += 2 * x - y * y

    x, y = rng.random((12, 20)), rng.random((20, 24))
    wanted = y.copy()
    mixed.function(x.T[:, ::2], wanted[:, 1:12:2])
    with runtime():
        a, b = cx.array(x), cx.array(y)
        mixed(a.T[:, ::2], b[:, 1:12:2])
        np.testing.assert_array_equal(np.asarray(b), wanted)
    assert generated(mixed) == ""


def test_it_is_off_where_compiling_is() -> None:
    kernel = stencil("edge")
    with cx.Runtime("opencl:0", store="off", compile_bodies="off"), pytest.raises(PlanError, match="none of which"):
        kernel(cx.zeros((5, 5)), cx.zeros((5, 5)), 0.1)
    result(kernel, "opencl:0", np.ones((5, 5)), np.zeros((5, 5)), 0.1)
    with cx.Runtime("opencl:0", store="off", compile_bodies="off"), pytest.raises(PlanError, match="none of which"):
        kernel(cx.zeros((5, 5)), cx.zeros((5, 5)), 0.1)
