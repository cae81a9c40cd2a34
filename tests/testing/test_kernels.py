"""check_kernel finds what division breaks, names it, and leaves its arguments alone."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.testing import check_kernel


@cx.kernel(split=0, x=cx.read, y=cx.update)
def axpy(a, x, y):
    y += a * x


@cx.kernel(split=(0, 1), u=cx.read(cx.halo(1, border="inside")), out=cx.update)
def heat(u, out, k=0.1):
    out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"), top=cx.reduce("max"), seen=cx.write)
def measure(x, total, top, seen, chunk):
    total += x.sum()
    np.maximum(top, x.max(axis=0), out=top)
    seen[...] = np.arange(chunk.lo[0], chunk.hi[0])


def test_kernels_that_may_be_divided_pass() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random(100), np.ones(100)
    check_kernel(axpy, 2.0, x, y)
    check_kernel(axpy, 2.0, cx.array(x), y=cx.array(y))
    check_kernel(heat, rng.random((20, 9)), np.zeros((20, 9)), 0.2, splits=[2, 5])
    check_kernel(heat, rng.random((20, 9)), np.zeros((20, 9)))
    check_kernel(measure, rng.random((500, 3)), np.zeros(()), np.zeros(3), np.zeros(500, int))


def test_the_arguments_are_not_changed() -> None:
    x, y = np.arange(10.0), np.ones(10)
    ours = cx.array(y)
    check_kernel(axpy, 2.0, x, y)
    check_kernel(axpy, 2.0, x, ours)
    assert y.tolist() == [1] * 10 and np.asarray(ours).tolist() == [1] * 10


def test_a_kernel_that_looks_beyond_its_chunk_is_caught_with_array_and_chunk() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def centre(x, y):
        y[...] = x - x.mean()

    with pytest.raises(AssertionError, match=r"'centre', variant python on cpu:0: 'y' differs .* in chunk 1 of 2"):
        check_kernel(centre, np.arange(30.0), np.zeros(30))


def test_the_chunk_named_is_the_one_that_differs() -> None:
    @cx.kernel(split=0, y=cx.write)
    def edge(y, chunk):
        y[...] = 0
        if chunk.lo[0] and chunk.hi[0] == 30:
            y[-1] = 1

    with pytest.raises(AssertionError, match=r"'y' differs in 1 of 30 elements .* first at \(29,\).* in chunk 2 of 2"):
        check_kernel(edge, np.zeros(30))


def test_a_wrong_reduction_is_caught() -> None:
    @cx.kernel(split=0, over="x", x=cx.read, n=cx.reduce("sum"))
    def count(x, n):
        n += 1

    with pytest.raises(AssertionError, match=r"'n' differs.*a reduction over 2 chunks"):
        check_kernel(count, np.zeros(50), np.zeros((), int))


def test_a_body_that_raises_on_a_part_only_is_caught_with_the_cause() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def last(x, y):
        y[...] = x[29]

    with pytest.raises(AssertionError, match=r"raises IndexError on chunk .* but not on the whole") as caught:
        check_kernel(last, np.arange(30.0), np.zeros(30))
    assert isinstance(caught.value.__cause__, IndexError)


def test_a_wrong_halo_is_told_with_kernel_variant_chunk_and_arrays() -> None:
    @cx.kernel(split=0, u=cx.read(cx.halo(0)), out=cx.write)
    def blur(u, out):
        out[...] = u[:-2] + u[2:]

    with pytest.raises(ValueError, match="broadcast") as caught:
        check_kernel(blur, np.ones(30), np.zeros(30))
    (note,) = caught.value.__notes__
    for words in ("kernel 'blur'", "on chunk", "variant python", "cpu:0", "u", "of (30,)", "out", "the whole"):
        assert words in note


def test_a_body_that_raises_on_the_whole_raises_as_it_is() -> None:
    @cx.kernel(split=0, y=cx.update)
    def broken(y):
        raise ZeroDivisionError("always")

    with pytest.raises(ZeroDivisionError, match="always"):
        check_kernel(broken, np.zeros(3))


def test_a_write_that_leaves_elements_out_is_caught() -> None:
    @cx.kernel(split=0, y=cx.write)
    def lazy(y):
        y[1:] = 0

    with pytest.raises(cx.errors.ProgramError, match=r"left element \(0,\)"):
        check_kernel(lazy, np.zeros(10))


def test_functional_kernels_and_scalars_by_name() -> None:
    @cx.kernel(split=0, x=cx.read, returns=(cx.like("x"), cx.like("x", dtype=bool)))
    def signs(x, by=1.0):
        return x * by, x > 0

    check_kernel(signs, np.arange(-5.0, 5), by=2.0)


def test_every_variant_is_compared_on_its_device() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def double(x, y):
        y[...] = x * 2

    def library(x, y):
        np.multiply(x, 2, out=y)

    double.variant(library)
    double.opencl("y(i) = x(i) * 2;", numerics=cx.exact)
    check_kernel(double, np.arange(50.0), np.zeros(50))
    double.opencl("y(i) = x(i) * 2 + (lo0 > 10);")
    with pytest.raises(AssertionError, match="variant opencl on opencl:0: 'y' differs"):
        check_kernel(double, np.arange(50.0), np.zeros(50))


def test_numerics_say_how_much_a_variant_may_differ() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def third(x, y):
        y[...] = x / 3

    def reciprocal(x, y):
        y[...] = x * (1 / 3)

    data = np.linspace(1, 2, 999)
    third.variant(reciprocal, numerics=cx.close(1))
    check_kernel(third, data, np.zeros_like(data))
    check_kernel(third, data, np.zeros_like(data), ulp=4)
    with pytest.raises(AssertionError, match="variant reciprocal"):
        check_kernel(third, data, np.zeros_like(data), ulp=0)


def test_a_call_that_is_never_divided_is_said_to_be_so() -> None:
    @cx.kernel(split=0, x=cx.update(cx.halo(1)))
    def smooth(x):
        x[1:] += x[:-1]

    with pytest.warns(cx.CoexecWarning, match="never divides"):
        check_kernel(smooth, np.arange(20.0))
    data = np.arange(20.0)
    check_kernel(axpy, 1.0, data, data)  # the same array twice, elementwise: may be divided


def test_nothing_to_divide_is_fine() -> None:
    check_kernel(axpy, 2.0, np.zeros(0), np.zeros(0))
    check_kernel(axpy, 2.0, np.zeros(1), np.zeros(1))
