"""Generated OpenCL C where a point is a row, is reduced in NumPy's order, is reshaped or drawn: NumPy's bits on a driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile.opencl import statements
from coexec.compile.trace import trace
from coexec.compile.verify import differing

pytest.importorskip("pyopencl")
LENGTHS = (2, 3, 7, 8, 9, 15, 16, 17, 100, 127, 128, 129, 136, 200, 257, 1000, 4099)


@pytest.fixture(scope="module")
def runtime() -> Any:
    with cx.Runtime("cpu:0,opencl:0", store="off", inline=False, compile_bodies="auto") as found:
        yield found


def on_opencl(kernel: cx.Kernel, *arguments: Any) -> dict[str, str]:
    """Call a kernel on the OpenCL device, and return its variants."""
    kernel.using(devices="opencl:0")(*arguments)
    cx.wait()
    return {variant.name: variant.off for variant in kernel.variants}


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_rows_of_every_length_are_added_up_in_numpys_order(runtime: Any, dtype: str) -> None:
    del runtime

    @cx.kernel(split=0, x=cx.read, out=cx.write)
    def added(x, out):
        out[...] = (x * x).sum(axis=1) - x.sum(axis=1)

    for length in LENGTHS:
        x = np.random.default_rng(length).normal(size=(9, length)).astype(dtype)
        out = cx.zeros(9, x.dtype)
        found = on_opencl(added, cx.array(x), out)
        assert found.get("generated") == "", found
        wanted = np.zeros(9, dtype)
        added.function(x, wanted)
        np.testing.assert_array_equal(np.asarray(out), wanted, f"rows of {length}")


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_rows_that_are_computed_in_vectors_are_added_up_in_the_same_order(runtime: Any, dtype: str) -> None:
    del runtime

    @cx.kernel(split=0, x=cx.read, out=cx.write)
    def relative(x, out):
        size = np.sqrt(x)  # exact, and computed for eight elements at once
        out[...] = np.where(x > 0.5, size - size.sum(axis=1, keepdims=True), size.max(axis=1, keepdims=True))

    traced = trace(relative.function, {name: np.ones((20, 30), dtype) for name in ("x", "out")}, {"out"})
    text = statements(traced, name_numbers=True, vectors=True)
    assert text.rows and "vload8" in text.source and "_v.s7" in text.source
    for length in (17, 24, 128, 129, 1003):
        x = np.random.default_rng(length).random((9, length)).astype(dtype)
        out = cx.zeros(x.shape, x.dtype)
        found = on_opencl(relative, cx.array(x), out)
        assert found.get("generated") == "", found
        wanted = np.zeros(x.shape, dtype)
        relative.function(x, wanted)
        np.testing.assert_array_equal(np.asarray(out), wanted, f"rows of {length}")


def softmax(x, out):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    out[...] = e / e.sum(axis=1, keepdims=True)


def centred(x, out):
    out[...] = x - x.mean(axis=1, keepdims=True)


def centred_deep(x, out):
    out[...] = x - x.sum(axis=2, keepdims=True)


def ranked(x, out):
    out[...] = np.where(x == x.max(axis=1, keepdims=True), x.argmin(axis=1)[:, None], x)


@pytest.mark.parametrize("body", [centred, ranked])
def test_a_work_item_does_a_row_whose_reduction_all_its_points_use(runtime: Any, body: Any) -> None:
    del runtime
    kernel = cx.kernel(split=0, x=cx.read, out=cx.write)(body)
    x = np.random.default_rng(0).normal(size=(37, 211))
    out = cx.zeros((37, 211))
    assert on_opencl(kernel, cx.array(x), out).get("generated") == ""
    wanted = np.zeros_like(x)
    body(x, wanted)
    np.testing.assert_array_equal(np.asarray(out), wanted)


def test_rows_of_three_axes_and_functions_that_are_close(runtime: Any) -> None:
    del runtime
    deep = cx.kernel(split=0, x=cx.read, out=cx.write)(centred_deep)
    x = np.random.default_rng(0).normal(size=(5, 6, 130))
    out = cx.zeros(x.shape)
    assert on_opencl(deep, cx.array(x), out).get("generated") == ""
    wanted = np.zeros_like(x)
    centred_deep(x, wanted)
    np.testing.assert_array_equal(np.asarray(out), wanted)
    close = cx.kernel(split=0, x=cx.read, out=cx.write)(softmax)
    out = cx.zeros((30, 130))
    assert on_opencl(close, cx.array(x[0, :1] + x[0, 0, :30, None]), out).get("generated") == ""
    assert np.allclose(np.asarray(out).sum(axis=1), 1.0)


def test_a_reshaped_array_needs_no_contiguous_memory_on_opencl(runtime: Any) -> None:
    del runtime

    @cx.kernel(split=0, x=cx.read(cx.all), out=cx.write)
    def straight(x, out):
        out[...] = x.reshape(-1)[3 : 3 + len(out)] * 2

    x = np.random.default_rng(0).normal(size=(20, 30))
    out = cx.zeros(500)
    assert on_opencl(straight, cx.array(x), out).get("generated") == ""
    np.testing.assert_array_equal(np.asarray(out), x.reshape(-1)[3:503] * 2)


def test_random_numbers_have_numpys_bits_on_opencl(runtime: Any) -> None:
    del runtime

    @cx.kernel(split=0, out=cx.write)
    def drawn(out, seed, chunk):
        random = chunk.rng(seed)
        out[...] = random.random() + random.uniform(-1.0, 1.0)

    out, wanted = cx.zeros(5000), cx.zeros(5000)
    assert on_opencl(drawn, out, 12).get("generated") == ""
    drawn.using(devices="cpu:0")(wanted, 12)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(wanted))


def test_a_close_kernel_adds_products_on_opencl(runtime: Any) -> None:
    del runtime

    @cx.kernel(split=0, a=cx.read, b=cx.read(cx.all), out=cx.write, numerics=cx.close(256))
    def near(a, b, out):
        out[...] = a @ b

    a, b = np.random.default_rng(0).normal(size=(50, 300)), np.random.default_rng(1).normal(size=300)
    out = cx.zeros(50)
    assert on_opencl(near, cx.array(a), cx.array(b), out).get("generated") == ""
    np.testing.assert_allclose(np.asarray(out), a @ b, rtol=0, atol=256 * 2e-16 * np.abs(a @ b).max())


def test_what_a_close_kernel_declares_is_the_limit_on_opencl(runtime: Any) -> None:
    del runtime

    @cx.kernel(split=0, a=cx.read, b=cx.read(cx.all), out=cx.write, numerics=cx.close(1e-9))
    def near(a, b, out):
        out[...] = a @ b

    a, b = np.random.default_rng(0).normal(size=(50, 300)), np.random.default_rng(1).normal(size=300)
    out = cx.zeros(50)
    assert "is not NumPy's" in on_opencl(near, cx.array(a), cx.array(b), out)["generated"]
    np.testing.assert_array_equal(np.asarray(out), a @ b)


def nearest(x, centre, label):
    label[...] = ((x[:, None, :] - centre[None]) ** 2).sum(axis=2).argmin(axis=1)


def furthest(x, centre, label):
    label[...] = np.abs(x[:, None, :] - centre[None]).sum(axis=2).argmax(axis=1).astype(np.int32)


def columns(x, centre, label):
    label[...] = (x * 2.0 - centre[0, 0]).sum(axis=0) + x.max(axis=0) * x.min(axis=0)


def any_of(x, centre, label):
    label[...] = ((x > 0.5) | np.isnan(x)).any(axis=0) & (x > -3).all(axis=0) | (centre[0, 0] > 9)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize(
    ("body", "kind", "axis"), [(nearest, "i8", 0), (furthest, "i4", 0), (columns, "", 1), (any_of, "?", 1)]
)
def test_reductions_of_neighbouring_points_are_done_in_vectors(
    runtime: Any, body: Any, kind: str, axis: int, dtype: str
) -> None:
    del runtime
    for rows in (7, 40):  # a rest, and whole vectors
        rng = np.random.default_rng(rows)
        x, centre = (rng.normal(size=(count, 8)).astype(dtype) for count in (rows, 20))
        x[::5, ::3] = np.nan
        x[1::5] = centre[3]
        x = x if axis == 0 else np.ascontiguousarray(x.T)
        label = np.zeros(x.shape[axis], kind or dtype)
        traced = trace(body, {"x": x, "centre": centre, "label": label}, {"label"})
        assert statements(traced, name_numbers=True, vectors=True).width == 8
        access = cx.read if axis == 0 else cx.read(cx.all)
        kernel = cx.kernel(over="label", x=access, centre=cx.read(cx.all), label=cx.write)(body)
        got = cx.zeros(label.shape, label.dtype)
        assert on_opencl(kernel, cx.array(x), cx.array(centre), got).get("generated") == ""
        body(x, centre, label)
        assert not differing(label, np.asarray(got)).any()


def test_extremes_of_long_rows_are_found_in_vectors(runtime: Any) -> None:
    del runtime

    @cx.kernel(split=0, x=cx.read, out=cx.write)
    def extremes(x, out):
        size = np.sqrt(np.abs(x))
        out[...] = size - x.max(axis=1, keepdims=True) * size.min(axis=1, keepdims=True)

    for length in (17, 24, 129, 1003):
        x = np.random.default_rng(length).normal(size=(9, length))
        x[1] = -np.inf
        x[2] = 0 * -np.abs(x[2])
        x[3, length // 2] = np.nan
        x[4, -1] = np.nan
        x[5] = np.nan
        traced = trace(extremes.function, {"x": x, "out": np.ones(x.shape)}, {"out"})
        assert "_odd |=" in statements(traced, name_numbers=True, vectors=True).source
        out, wanted = cx.zeros(x.shape), np.zeros(x.shape)
        assert on_opencl(extremes, cx.array(x), out).get("generated") == ""
        with np.errstate(all="ignore"):
            extremes.function(x, wanted)
        assert not differing(wanted, np.asarray(out)).any(), length
