"""NumPy's functions on small arrays are NumPy's own calls, with the bits, types and errors that tasks have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ShapeError


@pytest.fixture
def rt():
    with cx.Runtime("cpu:0") as runtime:
        yield runtime


def tasks(runtime: cx.Runtime) -> int:
    """Return how many tasks there were."""
    return runtime._driver.scheduler.link.graph.last


FUNCTIONS: dict[str, Any] = {
    "copy": lambda x, _: x.copy(),
    "astype": lambda x, _: x.astype(np.float32),
    "astype to integers": lambda x, _: x.astype(np.int16),
    "where": lambda x, y: np.where(x > 3, x, y),
    "where of numbers": lambda x, _: np.where(x > 3, 1, 0.5),
    "argmax": lambda x, _: x.argmax(),
    "argmin of rows": lambda x, _: np.argmin(x, axis=-1),
    "argmax, axes kept": lambda x, _: np.argmax(x, axis=0, keepdims=True),
    "count_nonzero": lambda x, _: np.count_nonzero(x, 0),
    "mean": lambda x, _: x.mean(),
    "mean of columns": lambda x, _: np.mean(x, 0),
    "var": lambda x, _: x.var(axis=-1, keepdims=True),
    "var with one less": lambda x, _: x.var(ddof=1),
    "std": lambda x, _: np.std(x),
    "norm": lambda x, _: np.linalg.norm(x * 1.0),
    "norm of rows": lambda x, _: np.linalg.norm(x * 1.0, axis=-1),
    "matmul": lambda x, y: x @ y[: len(y)].T.copy(),
    "matmul with a vector": lambda x, y: x @ y[0],
    "matmul of vectors": lambda x, y: x[1] @ y[0],
    "dot": lambda x, y: x[1].dot(y[0]),
    "outer": lambda x, y: np.outer(x[1], y[0]),
    "clip": lambda x, _: np.clip(x, 1, 4),
    "clip by arrays": lambda x, y: x.clip(y, y + 1),
    "concatenate": lambda x, y: np.concatenate([x, y], axis=-1),
    "stack": lambda x, y: np.stack((x, y), 1),
    "vstack": lambda x, y: np.vstack([x, y]),
    "hstack": lambda x, y: np.hstack([x, y, x]),
}


def results(function: Any, x: Any, y: Any, *, inline: bool) -> list[tuple[Any, ...]]:
    """Return what a function gives for arrays that lie in memory in several ways: its type, and its elements' types and bits."""
    found: list[tuple[Any, ...]] = []
    with cx.Runtime("cpu:0", inline=inline), np.errstate(all="ignore"):
        a, b = cx.array(x), cx.array(y)
        for one, other in ((a, b), (a[::-1], b[:, :]), (a[:, 1:-1], b[:, 2:]), (a[2:5], b[2:5]), (a.T, b.T)):
            result = function(one, other)
            data = np.asarray(result)
            found.append((type(result), data.dtype, data.shape, data.tobytes()))
    return found


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_small_arrays_give_what_tasks_give(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.integers(0, 9, (9, 9)) + rng.choice([0.0, 0.25, -0.0], (9, 9)) for _ in range(2))
    x, y = x.astype(dtype), y.astype(dtype)
    function = FUNCTIONS[name]
    assert results(function, x, y, inline=True) == results(function, x, y, inline=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_small_arrays_add_up_in_the_order_of_tasks(name: str, dtype: Any) -> None:
    x, y = np.random.default_rng(6).normal(size=(2, 57, 57)).astype(dtype)
    function = FUNCTIONS[name]
    assert results(function, x, y, inline=True) == results(function, x, y, inline=False)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_task_is_made_of_functions_of_small_arrays(rt: cx.Runtime, name: str) -> None:
    a, b = cx.array(np.arange(36.0).reshape(6, 6)), cx.array(np.ones((6, 6)))
    before = tasks(rt)
    np.asarray(FUNCTIONS[name](a, b))
    assert tasks(rt) == before or name == "var with one less"


@pytest.mark.parametrize("inline", [True, False])
def test_what_a_function_is_given_for_its_result_is_written_in_order(inline: bool) -> None:
    x = np.arange(12.0).reshape(3, 4)
    with cx.Runtime("cpu:0", inline=inline):
        a: Any = cx.array(x)
        where: Any = cx.zeros(4, np.intp)
        mean: Any = cx.zeros(4)
        both: Any = cx.zeros((6, 4))
        np.argmax(a, 0, where)
        np.mean(a, 0, None, mean)
        np.concatenate([a, a], 0, both)
        a[...] = 0.0
        assert np.asarray(where).tolist() == [2] * 4
        assert np.array_equal(np.asarray(mean), x.mean(axis=0))
        assert np.array_equal(np.asarray(both), np.concatenate([x, x]))


def test_a_result_of_a_function_shares_no_memory_with_its_arguments(rt: cx.Runtime) -> None:
    a = cx.array(np.ones((4, 4)))
    made = [a.copy(), a.astype(np.float64), np.vstack([a]), np.concatenate([a]), np.hstack([a]), np.where(True, a, a)]
    a[...] = 5.0
    assert [float(array.max()) for array in made] == [1.0] * len(made)


def test_wrong_arguments_of_functions_are_refused_as_ever(rt: cx.Runtime) -> None:
    a = cx.array(np.ones((3, 4)))
    with pytest.raises((ValueError, ShapeError)):
        a @ a
    with pytest.raises((ValueError, ShapeError)):
        np.concatenate([a, a.T])
    with pytest.raises((ValueError, ShapeError)):
        np.argmax(a, axis=2)
