from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy import absolute

import coexec as cx
from coexec.errors import VariantRefused
from coexec.geometry import Box, whole
from coexec.graph.instruction import Binding

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from coexec.backend.torch.check import POINTS  # noqa: E402 - needs torch
from tests.backend.torch_parts import Rig, on_torch  # noqa: E402

both = pytest.mark.parametrize("memory", ["shared", "own"])
UPDATE: dict[str, Any] = {"x": cx.read, "y": cx.update}


def refused(rig, kernel, *arrays, **scalars):
    """Return why a kernel is refused; nothing may have changed."""
    held = [rig.put(array) for array in arrays]
    bindings = {
        p.name: Binding(p.name, a, a.box, None, p.access.writes, None, a.dtype)
        for p, a in zip(kernel.array_params, held, strict=True)
    }
    with pytest.raises(VariantRefused, match="it stays on NumPy") as caught:
        rig.run(rig.kernel(kernel, bindings, held[-1].box, **scalars))
    assert all(np.array_equal(rig.get(a), b, equal_nan=True) for a, b in zip(held, arrays, strict=True))
    return re.fullmatch(rf"kernel '\w+' on {rig.name}: (.*); it stays on NumPy", str(caught.value))[1]  # type: ignore[index]


def numpys(x):
    """Tell NumPy from torch; a helper of a body keeps its own `np`."""
    return isinstance(x, np.ndarray)


def deviation(x, y):
    y[...] = x.std()


def half(x, y):
    y[...] = x / 2


def half_more(x, y):
    y[...] = x * 2.5


def mixed(x, y):
    y[...] = x * y.sum()


def reverse(x, y):
    y[...] = x[::-1]


def convert(x, y):
    y[...] = x.astype(np.float32)


def middle(x, y):
    y[...] = x.median() if hasattr(x, "median") else np.median(x)


def unknown(x, y):
    y[...] = np.i0(x)


@both
def test_bodies_that_mean_something_else_on_torch_are_refused_with_the_reason(memory):
    floats, integers = np.arange(6.0), np.arange(6)
    cases = [
        (deviation, floats, r"std\(\) of a tensor divides by n - 1, NumPy's by n; use xp.std"),
        (half, integers, "div of torch.int64 gives torch.float32"),
        (half_more, integers, "mul of torch.int64 gives torch.float32"),
        (reverse, floats, "fails on torch and not on NumPy: ValueError: step must be greater than zero"),
        (convert, floats, "'Tensor' object has no attribute 'astype'"),
        (middle, floats, "the lower of two middle values"),
        (unknown, floats, "coexec's NumPy for torch has no 'i0'"),
    ]
    with Rig(memory) as rig:
        for body, x, reason in cases:
            found = refused(rig, cx.kernel(**UPDATE)(body), x, np.zeros(6))
            assert re.search(reason, found), (body, found)


def test_a_product_of_unlike_types_is_refused_where_torch_computes_it_in_fewer_bits():
    with Rig() as rig:
        why = refused(rig, cx.kernel(x=cx.read, k=cx.read, y=cx.update)(_times), np.arange(3), _f32(3), np.zeros(3))
        assert why == "mul gives float32 on torch and float64 on NumPy"


def _times(x, k, y):
    y[...] = x * k


def _f32(n):
    return np.arange(n, dtype=np.float32)


def test_other_values_shapes_and_types_are_told_apart():
    def twice(x, y):
        y[...] = 2 * x if numpys(x) else 2.001 * x

    def integers(x, y):
        y[...] = x + numpys(x)

    def infinite(x, y):
        y[...] = x if numpys(x) else x / 0

    def wide(x):
        return x if numpys(x) else x[:1]

    def narrow(x):
        return x if numpys(x) else x.to(torch.float32)

    x = np.array([1.0, 2.0])
    with Rig() as rig:
        kernel = cx.kernel(**UPDATE)
        values = "the body gives other values on torch than on NumPy: max difference {} in y"
        assert refused(rig, kernel(twice), x, x) == values.format("0.002")
        assert refused(rig, kernel(integers), x.astype(int), x.astype(int)) == values.format("1")
        assert refused(rig, kernel(infinite), x, x) == values.format("inf")
        returns = cx.kernel(x=cx.read, returns=cx.like("x"))
        assert refused(rig, returns(wide), x, x) == "the result has shape (1,) on torch and (2,) on NumPy"
        assert refused(rig, returns(narrow), x, x) == "the result is float32 on torch and float64 on NumPy"


def test_a_body_that_is_never_the_same_cannot_be_compared():
    draws = np.random.default_rng(0).random

    def draw(x, y):
        y[...] = draws(2) if numpys(y) else 0.0

    with Rig() as rig:
        why = refused(rig, cx.kernel(**UPDATE)(draw), np.zeros(2), np.zeros(2))
        assert why == "the body does not give the same result twice, so it cannot be compared"


def test_a_body_that_fails_on_numpy_fails_with_its_own_error():
    def fail(x, y):
        raise KeyError("mine")

    with Rig() as rig, pytest.raises(KeyError, match="mine"):
        rig.call(cx.kernel(**UPDATE)(fail), np.zeros(2), np.zeros(2))


def test_a_body_that_writes_to_its_input_on_torch_alone_is_refused():
    def scribble(x, y):
        y[...] = x
        if not numpys(x):
            x += 1

    with Rig() as rig:
        assert "wrote to 'x'" in refused(rig, cx.kernel(**UPDATE)(scribble), np.zeros(2), np.zeros(2))


def test_rounding_and_not_a_numbers_are_no_difference():
    def wave(x, y, xp):
        y[...] = xp.exp(xp.sin(x)) + np.log(x)

    x = np.array([-1.0, 0.0, np.inf, np.nan, *np.random.default_rng(0).random(1000)])
    with Rig() as rig, np.errstate(all="ignore"):
        for dtype in (np.float64, np.float32, np.float16):
            found = rig.call(cx.kernel(**UPDATE)(wave), x.astype(dtype), x.astype(dtype))[1]
            assert np.isfinite(found).sum() == 1000


def test_numerics_that_a_variant_declares_are_the_measure():
    def off_by_rounding(x, y):
        y[...] = x * (1.0 if numpys(x) else 1 + 2e-15)

    x, variant = np.array([1.0]), on_torch()
    kernel = cx.kernel(**UPDATE)(off_by_rounding)
    with Rig() as rig:
        rig.call(kernel, x, x, variant=variant)
    variant.name = "declared"
    with Rig() as rig, pytest.raises(VariantRefused):
        rig.call(kernel, x, x, variant=variant)


def counting(calls):
    note = calls.append

    def count(x, y):
        if numpys(x):
            note(x.shape)
        y[...] = x

    return count


def test_a_body_is_checked_once_per_types_and_again_for_much_smaller_calls():
    calls: list[tuple[int, ...]] = []
    kernel = cx.kernel(**UPDATE)(counting(calls))
    with Rig() as rig:
        for n in (100, 100, 80, 51, 50, 30, 200, 25):
            rig.call(kernel, np.zeros(n), np.zeros(n))
        assert calls == [(100,), (50,), (25,)]
        rig.call(kernel, np.zeros(100, int), np.zeros(100, int))
        assert calls[3:] == [(100,)]


def test_a_large_chunk_is_checked_on_its_leading_rows_where_every_array_allows_it():
    calls: list[tuple[int, ...]] = []
    rows = cx.kernel(split=0, x=cx.read, y=cx.update)(counting(calls))
    whole_only = cx.kernel(**UPDATE)(counting(calls))
    halo = cx.kernel(split=0, x=cx.read(cx.halo(1)), y=cx.update)(counting(calls))
    data = np.random.default_rng(0).random((POINTS, 4))
    with Rig() as rig:
        for kernel in (rows, whole_only, halo):
            assert np.array_equal(rig.call(kernel, data, data * 0)[1], data)
    assert calls == [(POINTS // 4, 4), (POINTS, 4), (POINTS, 4)]


def test_a_chunk_that_cannot_be_cut_after_all_is_checked_whole():
    def whole_rows(x, y, n):
        assert x.shape == (n,)
        y[...] = x

    data = np.arange(2.0 * POINTS)
    kernel = cx.kernel(split=0, x=cx.read, y=cx.update)(whole_rows)
    with Rig() as rig:
        assert np.array_equal(rig.call(kernel, data, data * 0, n=2 * POINTS)[1], data)


def test_reductions_get_their_private_array():
    @cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
    def add(x, total):
        total += x.sum(axis=0)

    data = np.random.default_rng(0).random((5000, 2))
    with Rig() as rig:
        x, total = rig.put(data), rig.put(np.zeros((1, 2)))
        slot = Binding("total", total, total.box, None, True, None, total.dtype)
        bindings = {"x": Binding("x", x, x.box, None, False, None, x.dtype), "total": slot}
        rig.run(rig.kernel(add, bindings, Box((0, 0), (5000, 2))))
        assert np.allclose(rig.get(total)[0], data.sum(axis=0))


def test_numpy_inside_a_body_is_torchs_and_elsewhere_it_stays_numpy():
    seen: list[str] = []
    note = seen.append

    def names(x, y):
        nested = lambda v: np.sqrt(v)  # noqa: E731, PLW0108 - a nested function has the same globals
        note(type(np.sqrt(x)).__name__ + type(nested(x)).__name__)
        assert isinstance(x, np.ndarray)
        y[...] = np.maximum(x, 0)

    with Rig() as rig:
        rig.call(cx.kernel(**UPDATE)(names), np.ones(3), np.zeros(3))
    assert seen == ["ndarrayndarray", "TensorTensor", "TensorTensor"]
    assert whole((3,)).volume == np.sqrt(9)


@both
def test_a_chunk_in_pieces_runs_one_after_the_other_each_with_its_slot(memory):
    @cx.kernel(split=0, x=cx.read, y=cx.write, total=cx.reduce("sum"))
    def add(x, y, total, chunk):
        y[...] = x + chunk.lo[0]
        total += x.sum()

    data = np.arange(10.0)
    pieces = (Box((0,), (4,)), Box((4,), (10,)))
    with Rig(memory) as rig:
        held = {"x": rig.put(data), "y": rig.put(data * 0), "total": rig.put(np.zeros((2, 1)))}
        bindings = {n: Binding(n, a, a.box, None, n != "x", None, a.dtype) for n, a in held.items()}
        rig.run(rig.kernel(add, bindings, whole((10,)), pieces=pieces))
        assert np.array_equal(rig.get(held["y"]), data + np.repeat([0, 4], [4, 6]))
        assert rig.get(held["total"]).ravel().tolist() == [6, 39]


def test_functions_that_were_taken_out_of_numpy_are_translated_too():
    root = np.sqrt

    def length(x, y):
        y[...] = root(x) + absolute(x)

    with Rig() as rig:
        assert rig.call(cx.kernel(**UPDATE)(length), np.array([4.0]), np.zeros(1))[1].tolist() == [6]


class Applied:
    """A body that is an object."""

    __name__ = "applied"

    def __init__(self, function):
        self.function = function

    def __call__(self, x, y):
        self.function(x, out=(y,))

    def on(self, xp):
        return Applied(getattr(xp, self.function.__name__))


def test_a_body_that_is_an_object_may_translate_itself():
    with Rig() as rig:
        assert rig.call(cx.kernel(**UPDATE)(Applied(np.sqrt)), np.array([4.0]), np.zeros(1))[1].tolist() == [2]
        why = refused(rig, cx.kernel(**UPDATE)(Applied(np.spacing)), np.ones(1), np.zeros(1))
        assert "has no 'spacing'" in why
