"""Indexing by arrays of indices: NumPy's bits, NumPy's errors, and nothing read beyond an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coexec.compile import Declined, Forms, compile_body, opencl_form
from coexec.compile.reference import Meaning
from coexec.compile.trace import trace

pytest.importorskip("llvmlite")
rng = np.random.default_rng(0)


def scaled(x, i, out):
    out[...] = x[i] * 2


def rows(x, i, out):
    out[...] = x[i]


def rows_and_a_part(x, i, out):
    out[...] = x[i, 1:5]


def columns(x, i, out):
    out[...] = x[:, i] + 1


def last_axis(x, i, out):
    out[...] = x[..., i]


def sums_of_rows(x, i, out):
    out[...] = x[i].sum(axis=1)


def backwards(x, i, out):
    out[...] = x[::-2][i]


def of_computed(x, i, out):
    out[...] = np.exp(x / 100)[i]


def in_place(x, i, out):
    out[...] = out[i]


def of_what_was_written(x, i, out):
    out[...] = x
    out[...] = out[i] + x


def taken(x, i, out):
    out[...] = np.take(x, i, axis=1) + x.take(i, axis=1)


CASES: list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = [
    (scaled, (100,), (50,), (50,), 100),
    (scaled, (100,), (20, 30), (20, 30), 100),
    (rows, (40, 33), (70,), (70, 33), 40),
    (rows_and_a_part, (40, 33), (70,), (70, 4), 40),
    (columns, (40, 33), (70,), (40, 70), 33),
    (last_axis, (9, 8, 33), (70,), (9, 8, 70), 33),
    (sums_of_rows, (40, 33), (70,), (70,), 40),
    (backwards, (100,), (37,), (37,), 50),
    (of_computed, (100,), (50,), (50,), 100),
    (in_place, (10,), (64,), (64,), 64),
    (of_what_was_written, (64,), (64,), (64,), 64),
    (taken, (40, 33), (70,), (40, 70), 33),
]


@pytest.mark.parametrize("kinds", ["f8 i8", "f4 i4", "u2 u1"])
@pytest.mark.parametrize(("body", "source", "chosen", "result", "extent"), CASES)
def test_indexed_bodies_compile_with_numpys_bits(
    body: Any, source: Any, chosen: Any, result: Any, extent: int, kinds: str
) -> None:
    kind, index = kinds.split()
    if kind == "u2" and body is of_computed:
        kind = "f8"  # the exponential of integers is no integer

    def arguments() -> dict[str, Any]:
        low = 0 if index == "u1" else -extent
        return {
            "x": (100 * rng.random(source)).astype(kind),
            "i": rng.integers(low, extent, chosen).astype(index),
            "out": (100 * rng.random(result)).astype(kind),
        }

    forms = Forms(body, writes={"out"})
    for _ in range(3):
        given = arguments()
        wanted = given["out"].copy()
        body(given["x"], given["i"], wanted)
        meaning = Meaning(trace(body, given, {"out"}), given)
        np.testing.assert_array_equal(meaning.run()["out"], wanted)
        forms(*given.values())
        np.testing.assert_array_equal(given["out"], wanted)
    assert [state.answer for state in forms.states()] == ["compiled"]


@pytest.mark.parametrize("beyond", [100, -101, 10**9])
def test_an_index_beyond_the_array_is_numpys_error_and_nothing_is_read(beyond: int) -> None:
    forms = Forms(scaled, writes={"out"})
    for _ in range(3):
        forms(np.ones(100), np.arange(50), np.zeros(50))
    numbers = np.arange(50)
    numbers[17] = beyond
    out = np.zeros(50)
    with pytest.raises(IndexError, match="out of bounds"):
        forms(np.ones(100), numbers, out)
    assert not out.any()
    assert [state.answer for state in forms.states()] == ["compiled"]  # no other form is made for it
    forms(np.ones(100), np.arange(50), out)
    assert (out == 2).all()


def by_what_it_computes(x, i, out):
    out[...] = x[i + 1]


def by_what_it_wrote(x, i, out):
    i[...] = 0
    out[...] = x[i]


def by_two(x, i, out):
    out[...] = x[i, i]


def by_a_mask(x, i, out):
    out[...] = x[x > 0]


def scatters(x, i, out):
    out[i] = x


def of_nothing(x, i, out):
    out[...] = np.empty(64)[i]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (by_what_it_computes, "by values that it computes"),
        (by_what_it_wrote, "by values that it computes"),
        (by_two, "by several arrays"),
        (by_a_mask, "by a mask"),
        (scatters, "it assigns to what an array of indices chooses"),
        (of_nothing, "a temporary that it has not written"),
    ],
)
def test_other_ways_of_indexing_are_refused(body: Any, words: str) -> None:
    given = {"x": np.ones(64), "i": np.zeros(64, np.int64), "out": np.ones(64)}
    answer = compile_body(body, given, writes={"out", "i"})
    assert isinstance(answer, Declined) and words in answer.reason


def test_opencl_c_has_no_indices_that_nobody_has_looked_at() -> None:
    given = {"x": np.ones(64), "i": np.zeros(64, np.int64), "out": np.ones(64)}
    answer = opencl_form(scaled, given, writes={"out"})
    assert isinstance(answer, Declined) and "looked at on the host" in answer.reason
