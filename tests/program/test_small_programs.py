"""Random programs of small calls, and of tasks among them, give NumPy's bits: at home, and with every call a task."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx


@cx.kernel(x=cx.update)
def doubled(x):
    x *= 2


OPERATORS = [np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.less, np.arctan2, np.hypot]
FUNCTIONS = [np.negative, np.sqrt, np.exp, np.sin, np.absolute, np.floor]
REDUCTIONS = [np.sum, np.max, np.min, np.any, np.prod]
SHAPES = [(), (1,), (5,), (3, 5), (3, 1), (1, 5), (5, 3), (2, 3, 5)]
DTYPES = [np.float64, np.float32, np.int64, np.int16, np.uint8, np.bool_, np.complex128]
NUMBERS = [2, -3, 0.5, True, np.float32(1.5), np.int64(7), 1 << 20]

places = st.integers(0, 7)
step = st.one_of(
    st.tuples(st.just("two"), st.sampled_from(OPERATORS), places, places),
    st.tuples(st.just("number"), st.sampled_from(OPERATORS), places, st.sampled_from(NUMBERS), st.booleans()),
    st.tuples(st.just("one"), st.sampled_from(FUNCTIONS), places),
    st.tuples(st.just("into"), st.sampled_from(OPERATORS[:5]), places, places),
    st.tuples(st.just("reduce"), st.sampled_from(REDUCTIONS), places, st.sampled_from([None, 0, -1]), st.booleans()),
    st.tuples(st.just("view"), places, st.integers(0, 5)),
    st.tuples(st.just("set"), places, st.integers(0, 5), st.sampled_from([0, 1.5, -2, True, 300])),
    st.tuples(st.just("copy"), places, places, st.integers(0, 5)),
    st.tuples(st.just("value"), places, st.sampled_from(OPERATORS[:4])),
    st.tuples(st.just("kernel"), places),
    st.tuples(st.just("read"), places),
    st.tuples(st.just("new"), st.sampled_from(SHAPES), st.sampled_from(DTYPES)),
)


def key_of(number: int, ndim: int) -> Any:
    """Return one of some indices that fit to so many axes."""
    keys: list[Any] = [
        ...,
        slice(1, None),
        slice(None, None, -1),
        (..., slice(0, 2)),
        None,
        (..., None, slice(None, None, 2)),
    ]
    return keys[number] if ndim else [..., (), None][number % 3]


def double(x: Any) -> None:
    """Let a task, or NumPy, double an array."""
    if isinstance(x, cx.Array):
        doubled(x)
    else:
        x *= x.dtype.type(2)


class Play:
    """One run of a random program, on coexec's arrays or NumPy's."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.held: list[Any] = [array(np.arange(1, 6) * 0.75), array(np.arange(15).reshape(3, 5) % 7)]
        self.seen: list[Any] = []

    def take(self, number: int) -> Any:
        return self.held[number % len(self.held)]

    def run(self, entry: tuple[Any, ...]) -> None:
        what, *rest = entry
        try:
            getattr(self, what)(*rest)
        except (TypeError, ValueError, IndexError, cx.errors.CoexecError) as error:
            self.seen.append(("raised", isinstance(error, TypeError)))

    def keep(self, made: Any) -> None:
        self.held = [*self.held, made][-8:]

    def two(self, ufunc: Any, a: int, b: int) -> None:
        self.keep(ufunc(self.take(a), self.take(b)))

    def number(self, ufunc: Any, a: int, number: Any, swapped: bool) -> None:
        self.keep(ufunc(number, self.take(a)) if swapped else ufunc(self.take(a), number))

    def one(self, ufunc: Any, a: int) -> None:
        self.keep(ufunc(self.take(a)))

    def into(self, ufunc: Any, a: int, b: int) -> None:
        target = self.take(a)
        if isinstance(target, np.ndarray) or type(target) is cx.Array:
            ufunc(target, self.take(b), out=target)

    def reduce(self, function: Any, a: int, axis: Any, keepdims: bool) -> None:
        self.keep(function(self.take(a), axis=axis, keepdims=keepdims))

    def view(self, a: int, key: int) -> None:
        taken = self.take(a)
        if (isinstance(taken, np.ndarray) or type(taken) is cx.Array) and np.empty(taken.shape)[
            key_of(key, taken.ndim)
        ].size:
            self.keep(taken[key_of(key, taken.ndim)])

    def set(self, a: int, key: int, number: Any) -> None:
        taken = self.take(a)
        if isinstance(taken, np.ndarray) or type(taken) is cx.Array:
            taken[key_of(key, taken.ndim)] = np.asarray(number).astype(taken.dtype)[()]

    def copy(self, a: int, b: int, key: int) -> None:
        taken, given = self.take(a), self.take(b)
        if (isinstance(taken, np.ndarray) or type(taken) is cx.Array) and not (
            given.dtype.kind == "c" != taken.dtype.kind
        ):
            place = key_of(key, taken.ndim)
            if place == () and taken.dtype.kind == "c":
                place = (
                    ...
                )  # for () alone NumPy refuses an array as no complex number, not for its shape as everywhere else
            taken[place] = given.copy() if isinstance(given, np.ndarray) else given

    def value(self, a: int, ufunc: Any) -> None:
        taken = self.take(a)
        if taken.size and taken.ndim:
            one, other = taken[(0,) * taken.ndim], taken[(-1,) * taken.ndim]
            made = ufunc(one, other)
            if taken.dtype.kind != "c" and (isinstance(taken, np.ndarray) or type(taken) is cx.Array):
                taken[(0,) * taken.ndim] = np.asarray(7).astype(taken.dtype)[()]
            self.seen.append(np.asarray(made))
            self.seen.append(np.asarray(one))

    def kernel(self, a: int) -> None:
        taken = self.take(a)
        if taken.dtype.kind == "f" and taken.ndim and (isinstance(taken, np.ndarray) or type(taken) is cx.Array):
            double(taken)

    def read(self, a: int) -> None:
        taken = np.asarray(self.take(a))
        self.seen.append(taken if isinstance(self.take(a), cx.Array) else taken.copy())

    def new(self, shape: Any, dtype: Any) -> None:
        self.keep(self.array((np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5).astype(dtype)))

    def answer(self) -> list[Any]:
        return [*self.seen, *[np.asarray(x) for x in self.held]]


def same(a: Any, b: Any) -> bool:
    """Tell whether two answers have the same type, shape and bits; all NaNs are one."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return type(a) is type(b) and bool(a == b)
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


@pytest.mark.parametrize("inline", [True, False])
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(step, max_size=14))
def test_random_programs_give_numpys_bits(inline: bool, steps: list[Any]) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        plain = Play(np.array)
        for entry in steps:
            plain.run(entry)
        with cx.Runtime("cpu:0", inline=inline, diagnostics="off"):
            ours = Play(cx.array)
            for entry in steps:
                ours.run(entry)
            found = ours.answer()
            del ours
    for mine, theirs in zip(found, plain.answer(), strict=True):
        assert same(mine, theirs), (mine, theirs)
