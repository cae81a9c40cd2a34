"""Small programs on real devices: behaviours G46 to G51 of the GrCUDA reference, under every lane and placement policy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import coexec as cx
from coexec.plan.policies import PLACEMENTS
from tests.devices import TWO

N = 50_000


@cx.kernel(x=cx.update)
def square(x):
    x *= x


@cx.kernel(x=cx.read, y=cx.read, out=cx.write)
def difference(x, y, out):
    np.subtract(x, y, out=out)


@cx.kernel(x=cx.read, total=cx.write(cx.all))
def total_of(x, total):
    total[...] = x.sum()


@cx.kernel(x=cx.read(cx.all), y=cx.read(cx.all), out=cx.write(cx.all))
def product(x, y, out):
    np.matmul(x, y, out=out)


@pytest.fixture(
    params=[
        {"lanes": "disjoint+reuse"},
        {"lanes": "disjoint+always-new"},
        {"lanes": "same-as-parent+reuse"},
        {"lanes": "same-as-parent+always-new"},
        *({"placement": name} for name in PLACEMENTS),
        {"inline": False},
        {"sync": True},
        {"horizon": 2},
    ],
    ids=lambda options: "+".join(map(str, options.values())) + " " + "+".join(options),
)
def runtime(request: pytest.FixtureRequest) -> Iterator[cx.Runtime]:
    with cx.Runtime(TWO, **request.param) as opened:
        yield opened


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(1.0, 2.0, N), np.linspace(0.0, 1.0, N)


def test_a_join_is_right(runtime: cx.Runtime, data: tuple[np.ndarray, np.ndarray]) -> None:
    """G46."""
    x, y = map(cx.array, data)
    out, total = cx.empty(N), cx.empty(())
    square(x)
    square(y)
    difference(x, y, out)
    total_of(out, total)
    assert float(total) == (data[0] ** 2 - data[1] ** 2).sum()


def test_a_fork_with_a_shared_input_and_a_diamond_are_right(
    runtime: cx.Runtime, data: tuple[np.ndarray, np.ndarray]
) -> None:
    """G46."""
    x, y = map(cx.array, data)
    left, right, out = cx.empty(N), cx.empty(N), cx.empty(N)
    square(x)
    difference(x, y, left)
    difference(y, x, right)
    difference(left, right, out)
    square(x)
    difference(out, x, left)
    first, second = data[0] ** 2, data[1]
    np.testing.assert_array_equal(out, (first - second) - (second - first))
    np.testing.assert_array_equal(left, (first - second) - (second - first) - first**2)
    np.testing.assert_array_equal(x, first**2)


def test_reading_an_input_while_kernels_use_it_is_right_and_disturbs_nothing(
    runtime: cx.Runtime, data: tuple[np.ndarray, np.ndarray]
) -> None:
    """G47 and G48."""
    x, y, unused = (cx.array(values) for values in (*data, np.arange(5)))
    out = cx.empty(N)
    for _ in range(5):
        difference(x, y, out)
        assert x[7].item() == data[0][7]
        assert unused.tolist() == [0, 1, 2, 3, 4]
        difference(out, y, x)
        data = (data[0] - data[1] - data[1], data[1])
    np.testing.assert_array_equal(x, data[0])


def test_copies_between_arrays_and_with_the_programs_own_are_ordered(
    runtime: cx.Runtime, data: tuple[np.ndarray, np.ndarray]
) -> None:
    """G49 and G50."""
    x, y = map(cx.array, data)
    square(x)
    square(y)
    y[...] = x
    x[: N // 2] = data[1][: N // 2]
    square(x)
    data[1][...] = -1.0  # too late: the assignment has taken its copy
    assert np.asarray(y).tolist() == (data[0] ** 2).tolist()
    assert np.asarray(x[: N // 2]).tolist() == (np.linspace(0.0, 1.0, N)[: N // 2] ** 2).tolist()
    assert np.asarray(x[N // 2 :]).tolist() == ((data[0] ** 2) ** 2)[N // 2 :].tolist()


def test_library_calls_are_tasks_like_any_other(runtime: cx.Runtime) -> None:
    """G51."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 9, (60, 60)).astype(float) for _ in range(2))
    x, y = cx.array(a), cx.array(b)
    left, right, both = cx.empty((60, 60)), cx.empty((60, 60)), cx.empty((60, 60))
    product(x, y, left)
    product(y, x, right)
    product(left, right, both)
    np.testing.assert_array_equal(both, (a @ b) @ (b @ a))
