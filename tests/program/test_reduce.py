"""Reductions: every operator and shape, whole and divided, with the array's old value or afresh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.testing import check_kernel
from tests.devices import MIXED, TWO

UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def reducing(operator: Any, **options: Any):
    """Return a kernel that reduces the rows of `x` with an operator."""
    combine = UFUNCS.get(operator, operator)

    @cx.kernel(split=0, over="x", x=cx.read, out=cx.reduce(operator, **options), name=f"reduce_{combine.__name__}")
    def rows(x, out):
        for row in x:
            out[...] = combine(out, row)

    return rows


@pytest.fixture(autouse=True)
def two_cores():
    with cx.Runtime(TWO):
        yield


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("operator", "dtype"),
    [
        *((operator, dtype) for operator in ("sum", "prod", "max", "min") for dtype in "lfbBd?"),
        *((operator, "?") for operator in ("any", "all")),
    ],
)
def test_every_operator_over_rows_is_numpys(operator, dtype, fresh) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, (40, 3)).astype(dtype) + np.dtype(dtype).type(1 if operator == "prod" else 0)
    start = np.array([1, 0, 1], dtype)
    out = cx.array(start)
    kernel = reducing(operator, fresh=fresh)
    kernel.using(devices=TWO)(cx.array(x), out)
    expected = UFUNCS[operator].reduce(x, axis=0).astype(dtype)
    if not fresh:
        expected = UFUNCS[operator](start, expected).astype(dtype)
    assert np.asarray(out).tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (4, 1, 2)])
def test_reductions_go_into_any_shape(shape) -> None:
    x = np.random.default_rng(2).integers(0, 100, (50, *shape))
    out = cx.zeros(shape, int)
    kernel = reducing("sum")
    kernel.using(devices=TWO)(cx.array(x), out)
    assert np.asarray(out).tolist() == x.sum(axis=0).tolist()
    check_kernel(kernel, x, np.zeros(shape, int))


def test_a_ufunc_with_its_identity_reduces() -> None:
    x = np.random.default_rng(3).integers(0, 2**20, (100,))
    for operator, identity in [(np.bitwise_xor, None), (np.bitwise_and, -1), (np.gcd, 0)]:
        out = cx.full((), identity or 0, int)
        reducing(operator, identity=identity, fresh=True).using(devices=TWO)(cx.array(x), out)
        assert int(out) == operator.reduce(x)


def test_several_reductions_and_outputs_in_one_kernel() -> None:
    @cx.kernel(
        split=0, over="x", x=cx.read, c=cx.read(cx.all), label=cx.write, sums=cx.reduce("sum"), n=cx.reduce("sum")
    )
    def assign(x, c, label, sums, n, xp):
        label[...] = xp.abs(x[:, None] - c[None, :]).argmin(axis=1)
        xp.add.at(sums, label, x)
        xp.add.at(n, label, 1)

    rng = np.random.default_rng(4)
    x, c = rng.integers(0, 100, 400_000).astype(float), np.array([10.0, 40.0, 90.0])
    label, sums, n = cx.empty(len(x), int), cx.zeros(3), cx.zeros(3, int)
    assign(cx.array(x), cx.array(c), label, sums, n)
    expected = np.abs(x[:, None] - c[None, :]).argmin(axis=1)
    np.testing.assert_array_equal(np.asarray(label), expected)
    np.testing.assert_array_equal(np.asarray(n), np.bincount(expected, minlength=3))
    np.testing.assert_array_equal(np.asarray(sums), np.bincount(expected, x, minlength=3))
    check_kernel(assign, x[:300], c, np.zeros(300, int), np.zeros(3), np.zeros(3, int))


def test_the_bits_of_a_sum_do_not_depend_on_who_computed_it() -> None:
    x = np.random.default_rng(5).random(300_000).astype(np.float32)

    @cx.kernel(split=0, over="x", x=cx.read, out=cx.reduce("sum"))
    def total(x, out):
        out += x.sum()

    results = set()
    for devices in ("cpu:0", TWO):
        with cx.Runtime(devices):
            out = cx.zeros((), np.float32)
            total(cx.array(x), out)
            results.add(float(out))
    assert len(results) == 1


def test_reductions_are_ordered_like_any_write() -> None:
    kernel = reducing("sum")
    x, out = cx.array(np.ones(1000, int)), cx.zeros((), int)
    for step in range(5):
        kernel(x, out)
        assert int(out) == 1000 * (step + 1)
        x[...] = 1
    out[...] = 7
    kernel(x, out)
    total = cx.zeros((), int)
    total[...] = out
    assert int(total) == 1007


def test_a_reduction_into_a_view_changes_only_that_view() -> None:
    out = cx.zeros((3, 4), int)
    kernel = reducing("sum")
    kernel.using(devices=TWO)(cx.array(np.ones((10, 4), int)), out[1])
    kernel.using(devices=TWO)(cx.array(np.ones((5, 3), int)), out[:, ::-2][:, 0])
    assert np.asarray(out).tolist() == [[0, 0, 0, 5], [10, 10, 10, 15], [0, 0, 0, 5]]


@pytest.mark.parametrize("memory", ["own", "shared"])
def test_partial_results_come_back_from_a_device(memory) -> None:
    @cx.kernel(split=0, over="x", x=cx.read, out=cx.reduce("sum"))
    def total(x, out):
        out += x.sum()

    total.opencl(
        """__kernel void total(__global double *x_data, long x_start, long x_stride0,
                               __global double *out_data, long out_start, long n0) {
            if (get_global_id(0) == 0) { for (long i = 0; i < n0; i++) out() += x(i); }
        }"""
    )
    with cx.Runtime(MIXED, memory={"opencl:0": memory}):
        x, out = cx.array(np.arange(200_000.0)), cx.full((), 5.0)
        total.using(devices="cpu:0,opencl:0")(x, out)
        assert float(out) == 5 + 199_999 * 100_000


@settings(max_examples=25)
@given(st.integers(0, 40), st.integers(1, 3), st.sampled_from(["sum", "max", "prod"]), st.booleans())
def test_random_shapes_reduce_as_in_numpy(rows, columns, operator, fresh) -> None:
    x = np.random.default_rng(rows).integers(1, 3, (rows, columns))
    out = cx.full(columns, 2)
    reducing(operator, fresh=fresh).using(devices=TWO)(cx.array(x), out)
    ufunc = UFUNCS[operator]
    start = {"sum": 0, "prod": 1, "max": np.iinfo(np.int64).min}[operator] if fresh else 2
    assert np.asarray(out).tolist() == ufunc.reduce(np.vstack([np.full(columns, start), x]), axis=0).tolist()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c16", "i1", "u8", "?"])
@pytest.mark.parametrize("operator", ["sum", "prod", "max"])
@pytest.mark.parametrize(("parts", "shape"), [(3, ()), (32, ()), (1024, ()), (40, (7,)), (40, (2, 200))])
def test_partial_results_are_combined_one_after_the_other_whatever_their_number(dtype, operator, parts, shape) -> None:
    random = np.random.default_rng(parts)
    given = random.normal(1.0, 0.3, (parts, *shape)).astype(dtype)
    combine = UFUNCS[operator]
    if (operator, dtype) == ("max", "c16"):
        pytest.skip("complex numbers have no identity of maxima")
    for fresh in (True, False):
        how = cx.reduce(operator, fresh=fresh).operator
        assert how is not None
        found = np.full(shape, 3, dtype)
        expected = np.full(shape, how.start(found.dtype) if fresh else 3, dtype)
        for part in given:
            expected[...] = combine(expected, part)
        how.fold(given, found)
        assert found.tobytes() == expected.tobytes()
