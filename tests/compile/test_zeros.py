"""The sign of zeros: extremes, bounds and choices have NumPy's bits wherever they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

import coexec as cx
from coexec.compile import Compiled, compile_body
from coexec.compile.refused import Untraceable
from coexec.compile.verify import differing
from coexec.compile.zeros import _holds, _rank, lanes_of_extreme

LENGTHS = (1, 2, 8, 9, 17, 33, 130, 1000)
MIXTURES = ([0.0, -0.0], [0.0, -0.0, -1.0], [0.0, -0.0, 1.0], [0.0, -0.0, np.nan, -1.0])


def extremes(x, most, least, top, bottom):
    most[...] = x.max(axis=1)
    least[...] = np.minimum.reduce(x, axis=-1)
    top[...] = (-x).max(axis=1)
    bottom[...] = np.abs(x).min(axis=1)


def columns(x, most, least):
    most[...] = x.max(axis=0)
    least[...] = x.min(axis=0)


def bounded(x, both, negative, low, high):
    both[...] = np.clip(x, 0, 9)
    negative[...] = np.clip(x, -9, -0.0) + -0.0
    low[...] = np.clip(x, -0.0, None)
    high[...] = x.clip(None, 0.0)


def chosen(x, less, greater, top, bottom):
    less[...] = np.where(x < 0, -0.0, x)
    greater[...] = np.where(x > -0.0, -0.0, x)
    top[...] = np.maximum(-0.0, x)
    bottom[...] = np.minimum(x, -0.0)


BODIES: dict[Any, int | None] = {
    extremes: 0,
    columns: 1,
    bounded: None,
    chosen: None,
}  # and the axis that the results have, or all


def results_of(body: Any, x: Any) -> dict[str, Any]:
    axis = BODIES[body]
    shape = x.shape if axis is None else x.shape[axis : axis + 1]
    return {name: np.full(shape, 7, x.dtype) for name in body.__code__.co_varnames[1 : body.__code__.co_argcount]}


def wanted_of(body: Any, x: Any) -> dict[str, Any]:
    found = results_of(body, x)
    with np.errstate(all="ignore"):
        body(x, **found)
    return found


def examples(dtype: str) -> Iterator[Any]:
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        for values in MIXTURES:
            yield rng.choice(np.array(values, dtype), (23, length))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("body", BODIES)
def test_compiled_bodies_have_numpys_zeros(body: Any, dtype: str) -> None:
    pytest.importorskip("llvmlite")
    form: Any = None
    for x in examples(dtype):
        got = results_of(body, x)
        with np.errstate(all="ignore"):
            if form is None or form(x, *got.values()) != "":
                form = compile_body(body, {"x": x, **got}, writes=got)
                assert isinstance(form, Compiled)
                assert form(x, *got.values()) == ""
        for name, wanted in wanted_of(body, x).items():
            assert not differing(wanted, got[name]).any(), (x.shape, name)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("body", BODIES)
def test_generated_opencl_has_numpys_zeros(body: Any, dtype: str) -> None:
    pytest.importorskip("pyopencl")
    names = tuple(results_of(body, np.ones((2, 2))))
    accesses: dict[str, Any] = {"split": 0, "x": cx.read} if BODIES[body] != 1 else {"x": cx.read(cx.all)}
    accesses |= dict.fromkeys(names, cx.write)
    with cx.Runtime("cpu:0,opencl:0", store="off", inline=False, compile_bodies="auto"):
        kernel = cx.kernel(over=names[0], **accesses)(body)
        # The comparison at first use sees no zero, so that whatever follows is the text's own.
        for x in [np.random.default_rng(0).normal(size=(23, 1000)).astype(dtype), *examples(dtype)]:
            got = {name: cx.array(value) for name, value in results_of(body, x).items()}
            kernel.using(devices="opencl:0")(cx.array(x), **got)
            cx.wait()
            assert {v.name: v.off for v in kernel.variants}["generated"] == ""
            for name, wanted in wanted_of(body, x).items():
                assert not differing(wanted, np.asarray(got[name])).any(), (x.shape, name)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_along_an_axis_have_numpys_zeros_on_opencl(name: str, axis: int) -> None:
    pytest.importorskip("pyopencl")
    with cx.Runtime("opencl:0", store="off", inline=False):
        for values in MIXTURES:
            x = np.random.default_rng(1).choice(np.array(values), (60, 1003))
            got = np.asarray(getattr(cx.array(x), name)(axis=axis))
            assert not differing(getattr(x, name)(axis=axis), got).any()


@given(arrays.arrays(st.sampled_from([np.float32, np.float64]), st.integers(1, 300), elements=st.sampled_from([0.0, -0.0, -1.0])))  # fmt: skip
def test_the_zero_of_the_highest_rank_is_numpys(row: Any) -> None:
    lanes = lanes_of_extreme("maximum", row.dtype.str)
    zeros = [(_rank(place, len(row), lanes), np.signbit(value)) for place, value in enumerate(row) if value == 0]
    if zeros:
        assert max(zeros)[1] == np.signbit(row.max())


def test_a_numpy_with_an_order_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = lanes_of_extreme("maximum", "<f8")
    if len(lanes) > 1:
        assert not _holds(np.maximum, np.dtype(float), lanes[::-1])
    monkeypatch.setattr("coexec.compile.zeros._holds", lambda *_: False)
    lanes_of_extreme.cache_clear()
    with pytest.raises(Untraceable, match="secret"):
        lanes_of_extreme("maximum", "<f8")
    lanes_of_extreme.cache_clear()
