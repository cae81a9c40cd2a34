"""Variants: OpenCL C, Numba and any callable, chosen by device and by what was measured."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.errors import PlanError, UnknownName
from coexec.testing import check_kernel
from tests.devices import MIXED


@pytest.fixture(params=["own", "shared"])
def mixed(request):
    with cx.Runtime(MIXED, memory={"opencl:0": request.param}) as runtime:
        yield runtime


def make_axpy():
    @cx.kernel(split=0, x=cx.read, y=cx.update)
    def axpy(a, x, y):
        y += a * x

    axpy.opencl("y(i) += a * x(i);", numerics=cx.exact)
    return axpy


def test_opencl_source_computes_on_the_device_it_names(mixed) -> None:
    axpy = make_axpy()
    x, y = np.arange(1000.0), np.ones(1000)
    ours, out = cx.array(x), cx.array(y)
    for factor, devices in [(2.0, "opencl:0"), (3.0, "cpu:0"), (4.0, "opencl"), (5.0, "cpu:0,opencl:0"), (6.0, None)]:
        axpy.using(devices=devices)(factor, ours, out)
        y += factor * x
    np.testing.assert_array_equal(np.asarray(out), y)


def test_pieces_move_between_the_host_and_a_device_as_needed(mixed) -> None:
    axpy = make_axpy()
    x, y = cx.array(np.arange(100.0)), cx.zeros(100)
    expected = np.zeros(100)
    for step in range(20):
        lo, hi = (step * 7) % 60, (step * 7) % 60 + 40
        axpy.using(devices="opencl:0" if step % 3 else "cpu:0")(1.0 + step, x[lo:hi], y[lo:hi])
        expected[lo:hi] += (1.0 + step) * np.arange(100.0)[lo:hi]
        if step % 5 == 0:
            y[step] = -1
            expected[step] = -1
    np.testing.assert_array_equal(np.asarray(y), expected)


def test_a_zero_d_array_is_a_scalar_of_an_opencl_kernel(mixed) -> None:
    axpy = make_axpy()
    factor, x, y = cx.full((), 2.0), cx.ones(10), cx.zeros(10)
    factor[...] = 4
    axpy.using(devices="opencl:0")(factor, x, y)
    assert np.asarray(y).tolist() == [4.0] * 10


def test_stencils_with_halos_are_divided_between_numpy_and_opencl(mixed) -> None:
    @cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update)
    def heat(u, out, k):
        out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])

    heat.opencl(
        "out(i, j) = u(i + 1, j + 1) + k * (u(i, j + 1) + u(i + 2, j + 1) + u(i + 1, j) + u(i + 1, j + 2)"
        " - 4 * u(i + 1, j + 1));",
        numerics=cx.close(2),
    )
    u = np.random.default_rng(1).random((64, 50))
    check_kernel(heat, u, np.zeros_like(u), 0.1)
    a, b = cx.array(u), cx.array(u)
    for _ in range(10):
        heat.using(devices="cpu:0,opencl:0")(a, b, 0.1)
        a, b = b, a
        u[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    np.testing.assert_allclose(np.asarray(a), u, rtol=1e-12)


def test_types_that_opencl_cannot_hold_stay_with_numpy(mixed) -> None:
    axpy = make_axpy()
    y = cx.zeros(10, complex)
    axpy(1j, cx.ones(10, complex), y)
    assert np.asarray(y).tolist() == [1j] * 10


def test_a_python_body_does_not_run_on_opencl() -> None:
    @cx.kernel(x=cx.update)
    def only_python(x):
        x += 1

    with cx.Runtime(MIXED):
        x = cx.zeros(3)
        only_python(x)
        assert float(x[0]) == 1
        with pytest.raises(PlanError, match=r"'only_python' has variants for python.*kernel.opencl"):
            only_python.using(devices="opencl:0")(x)
        with pytest.raises(UnknownName, match="unknown device 'opencl:7'"):
            only_python.using(devices="opencl:7")(x)


def test_source_that_does_not_compile_fails_its_task_with_the_compilers_words(mixed) -> None:
    @cx.kernel(x=cx.update)
    def broken(x):
        x += 1

    broken.opencl("this is no C;")
    x = cx.zeros(3)
    task = broken.using(devices="opencl:0")(x)
    error = task.exception()
    assert isinstance(error, cx.TaskFailed) and "broken" in str(error)
    x[...] = 2
    assert np.asarray(x).tolist() == [2, 2, 2]


def test_any_callable_is_a_variant_and_the_faster_one_is_chosen() -> None:
    @cx.kernel(x=cx.update)
    def slowly(x):
        for _ in range(200):
            np.sin(x)
        x += 1

    calls = []

    def quickly(x):
        calls.append(1)
        x += 1

    slowly.variant(quickly, numerics=cx.close(1))
    assert [v.name for v in slowly.variants] == ["python", "quickly"]
    assert "close(1)" in repr(slowly.variants[1])
    with cx.Runtime("cpu:0"):
        x = cx.zeros(5000)
        for _ in range(30):
            slowly(x).result()
        assert np.asarray(x).tolist() == [30.0] * 5000
    assert len(calls) > 15


def test_numba_functions_are_variants() -> None:
    numba = pytest.importorskip("numba")

    @cx.kernel(split=0, x=cx.read, out=cx.write)
    def root(x, out):
        out[...] = np.sqrt(x) + 1

    @root.variant
    @numba.njit(nogil=True)
    def compiled(x, out):
        for i in range(len(x)):
            out[i] = np.sqrt(x[i]) + 1

    assert root.variants[1].name == "compiled"
    data = np.random.default_rng(2).random(1000)
    check_kernel(root, data, np.zeros(1000))
    with cx.Runtime("cpu:0"):
        out = cx.empty(1000)
        for _ in range(4):
            root(cx.array(data), out)
        np.testing.assert_array_equal(np.asarray(out), np.sqrt(data) + 1)


def test_a_whole_kernel_is_a_numba_function() -> None:
    numba = pytest.importorskip("numba")

    @cx.kernel(split=0, x=cx.update)
    @numba.njit
    def triple(x):
        for i in range(len(x)):
            x[i] *= 3

    with cx.Runtime("cpu:0"):
        x = cx.array(np.arange(5.0))
        triple(x)
        assert np.asarray(x).tolist() == [0, 3, 6, 9, 12]
