"""What follows from the arrays of a call alone is kept with the first of them: for the same views, and for nothing else."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ProgramError, ShapeError
from coexec.graph.shape import MOST_CALLS


@cx.kernel(split=0, x=cx.read, y=cx.update)
def add(x: Any, y: Any) -> None:
    y += x


@cx.kernel(x=cx.update, over="rows")
def fill(x: Any, rows: int) -> None:
    x[:rows] = rows


@pytest.fixture
def runtime() -> Any:
    with cx.Runtime("null:2", policy="even", store="off") as opened:
        yield opened


def test_the_same_views_are_known_whether_or_not_they_are_the_same_objects(runtime):
    x, y = cx.zeros((8, 4)), cx.zeros((8, 4))
    first = add(x, y)
    assert first.same is not None
    assert add(x, y).same is first.same
    assert add(y, x).same is not first.same
    half = add(x[:4], y[:4])
    assert half.same is not first.same
    assert add(x[:4], y[:4]).same is half.same
    assert add(x[:4], y[4:]).same is not half.same
    assert add(x[:, ::2], y[:, ::2]).extents == (8, 2)
    runtime.wait()


def test_another_array_in_the_place_of_a_known_one_is_checked(runtime):
    x, y = cx.zeros((8, 4)), cx.zeros((8, 4))
    add(x, y)
    with pytest.raises(ShapeError):
        add(x, cx.zeros((8, 3)))
    with cx.Runtime("null:2", store="off") as other:
        foreign = cx.zeros((8, 4))
        foreign._storage.id = y._storage.id  # runtimes number their arrays themselves
        foreign._box = y._box
    with pytest.raises(Exception, match="is closed"):
        add(x, foreign)
    assert other.closed
    runtime.wait()


def test_arrays_of_an_open_runtime_are_not_taken_for_those_of_another():
    with cx.Runtime("null:2", store="off") as outer:
        x, y = cx.zeros(8), cx.zeros(8)
        add(x, y)
        with cx.Runtime("null:2", store="off"):
            mine, also_mine = cx.zeros(8), cx.zeros(8)
            add(mine, also_mine)
            with pytest.raises(ProgramError, match="another runtime"):
                add(mine, y)
        outer.wait()


def test_nothing_is_known_of_a_call_whose_index_space_is_a_scalar(runtime):
    x = cx.zeros(8)
    assert fill(x, 4).same is None
    assert [fill(x, rows).extents for rows in (2, 3, 3)] == [(2,), (3,), (3,)]
    runtime.wait()


def test_what_is_known_keeps_no_other_array_alive(runtime):
    x, y = cx.zeros(8), cx.zeros(8)
    add(x, y)
    gone = ref(y._storage)
    del y
    runtime.wait()
    gc.collect()
    assert gone() is None
    assert x._storage.calls is not None


def test_few_calls_are_remembered_of_an_array(runtime):
    x, y = cx.zeros(3 * MOST_CALLS), cx.zeros(3 * MOST_CALLS)
    for start in range(2 * MOST_CALLS):
        add(x[start:], y[start:])
    assert 0 < len(x._storage.calls) <= MOST_CALLS
    runtime.wait()


def test_options_of_a_call_have_a_shape_of_their_own(runtime):
    x, y = cx.zeros((8, 4)), cx.zeros((8, 4))
    whole = add.using(split=False)
    shapes = [call(x, y).shape for call in (add, whole, add, whole)]
    assert shapes[0] is shapes[2] is not shapes[1]
    assert shapes[1] is shapes[3]
    runtime.wait()


def test_results_are_numpys_when_views_arrays_and_options_change():
    generator = np.random.default_rng(7)
    given = [generator.integers(0, 9, (6, 5)).astype(float) for _ in range(3)]
    with cx.Runtime("cpu", store="off"):
        arrays = [cx.array(one) for one in given]
        expected = [one.copy() for one in given]
        cuts = [np.s_[:], np.s_[1:5], np.s_[::2], np.s_[:, 1:4]]
        for _ in range(60):
            a, b = generator.permutation(3)[:2]
            cut = cuts[int(generator.integers(len(cuts)))]
            (add if generator.integers(2) else add.using(split=False))(arrays[a][cut], arrays[b][cut])
            expected[b][cut] += expected[a][cut]
        for array, one in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(array), one)
