"""Reductions: NumPy's order of additions, at every length where that order changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, Declined, compile_body
from tests.compile.random_bodies import bits

pytest.importorskip("llvmlite")
rng = np.random.default_rng(0)


def compiled(text: str, **arguments: Any) -> tuple[Any, Compiled | Declined]:
    space: dict[str, Any] = {"np": np}
    exec(f"def body(x, out):\n    out[...] = {text}\n", space)
    return space["body"], compile_body(space["body"], arguments, writes={"out"})


def check(text: str, shapes: Sequence[tuple[int, ...]], dtype: str = "f8", out: str | None = None) -> None:
    """Raise unless one form, made for the first shape, has NumPy's bits at all of them."""
    form: Any = None
    for shape in shapes:
        x = drawn(shape, dtype)
        with np.errstate(all="ignore"):
            wanted = np.asarray(eval(text, {"np": np, "x": x}))
        got = np.zeros(wanted.shape, out or wanted.dtype)
        if form is None:
            _, form = compiled(text, x=x, out=got)
            assert isinstance(form, Compiled), form
        with np.errstate(all="ignore"):
            assert form(x, got) == "", f"{text} {shape}"
        np.testing.assert_array_equal(bits(got), bits(wanted.astype(got.dtype)), f"{text} {shape} {dtype}")


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        x = (rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(kind)
        x.reshape(-1)[:: max(1, x.size // 3)] = [-0.0, 0.0, np.inf][rng.integers(0, 3)]
        return x
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, dtype=kind, endpoint=True)


ROWS = [(20, 18), (3, 17), (9, 127), (5, 128), (6, 129), (4, 1000), (2, 20_001), (1, 40)]


@pytest.mark.parametrize(
    "text", ["x.sum(axis=1)", "x.max(axis=1)", "(x * 2 - 1).sum(axis=1)", "np.exp(-x * x).mean(axis=1)"]
)
def test_rows_are_added_in_numpys_order(text: str) -> None:
    check(text, ROWS)
    check(text, ROWS[:4], "f4")


@pytest.mark.parametrize("text", ["x.sum(axis=0)", "(x + 1).min(axis=0)", "x.prod(axis=0)", "x / x.sum(axis=0)"])
def test_columns_are_added_one_after_the_other(text: str) -> None:
    check(text, ROWS[:6])
    check(text, ROWS[:3], "f4")


@pytest.mark.parametrize("width", [2, 3, 7, 8, 9, 12, 15, 16])
def test_a_few_elements_are_added_as_numpy_adds_them(width: int) -> None:
    check("(x * 3).sum(axis=1)", [(400, width), (17, width), (3, width)])


@pytest.mark.parametrize("text", ["(x * x).sum()", "x.sum()", "(x - x.mean()).max()", "np.abs(x).min()"])
def test_all_elements_are_added_in_the_order_of_memory(text: str) -> None:
    check(text, ROWS[:6])
    check(text, [(19,), (7,), (8,), (1000,), (100_003,)])


@pytest.mark.parametrize("dtype", ["i8", "i4", "u1", "?"])
@pytest.mark.parametrize("text", ["x.sum(axis=1)", "x.max(axis=0)", "x.any()", "x.all(axis=1)", "x.sum()"])
def test_integers_do_not_depend_on_the_order(text: str, dtype: str) -> None:
    check(text, ROWS[:3], dtype)


@pytest.mark.parametrize(
    "text", ["x.argmin(axis=1)", "np.argmax(x, axis=0)", "(x * x).argmax(axis=1)", "x.ravel().argmin()"]
)
def test_places_of_extremes_are_the_first_ones(text: str) -> None:
    check(text, ROWS[:5])
    check(text, ROWS[:3], "u1")
    x = np.round(rng.normal(size=(30, 40)))
    x[7, 9] = x[7, 20] = x[3, 0] = np.nan
    _, form = compiled("x.argmin(axis=1)", x=x, out=np.zeros(30, np.intp))
    got = np.zeros(30, np.intp)
    assert isinstance(form, Compiled) and form(x, got) == ""
    np.testing.assert_array_equal(got, x.argmin(axis=1))


def test_three_axes_are_reduced_along_any_of_them() -> None:
    shapes = [(5, 20, 20), (3, 40, 17), (9, 17, 130)]
    for axis in (0, 1, 2):
        check(f"x.sum(axis={axis})", shapes)
    check("((x[:, None] - x[None]) ** 2).sum(axis=2).min(axis=1)", [(20, 8), (5, 8)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x.T.sum(axis=0)", "in another order"),
        ("x[::-1].sum(axis=1)", "in another order"),
        ("x[1:].sum()", "a part of an array"),
        ("x.astype('f4').sum(axis=1, dtype='f8')", "in blocks"),
        ("(x > 0).mean(axis=1)", "in blocks"),
        ("x.sum(axis=1, initial=3)", "a reduction with initial="),
        ("x.sum(axis=1, initial=1)", "a reduction with initial="),  # 1 == True
        ("x.sum(axis=1, where=x > 0)", "a reduction with where="),
        ("x.max(axis=1, where=x > 0, initial=1)", "a reduction with where= and initial="),
        ("np.cumsum(x, axis=1)", "np.cumsum is not compiled"),
        ("x.std(axis=1)", "array.std is not compiled"),
    ],
)
def test_an_order_that_is_not_known_is_refused(text: str, words: str) -> None:
    x = np.ones((30, 40))
    _, found = compiled(text, x=x, out=np.asarray(eval(text, {"np": np, "x": x})))
    assert isinstance(found, Declined)
    assert words in found.reason
