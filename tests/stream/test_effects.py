"""What functions do beside computing: planning runs them seldom then, and leaves random numbers and constants as they were."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.stream.effects import noticed
from tests.stream.test_following import opened

ITEM = np.ones(3)
MOST_RUNS = 12  # of a function that is planned for, and has effects


class Augmenting:
    """An object that has a generator."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(4)

    def __call__(self, x: Any) -> Any:
        return x * float(self.rng.random())


def from_closure() -> Callable[..., Any]:
    rng = np.random.default_rng(7)
    return lambda x: x + float(rng.standard_normal())


def from_python() -> Callable[..., Any]:
    random.seed(3)
    return lambda x: x + random.random()


def from_numpy() -> Callable[..., Any]:
    np.random.seed(3)  # noqa: NPY002 - as many programs do
    return lambda x: x + np.random.rand()  # noqa: NPY002


def from_coexec() -> Callable[..., Any]:
    generator = cx.random.Generator(5)
    return lambda x: x + generator.random(3)


@pytest.mark.parametrize("make", [from_closure, from_python, from_numpy, from_coexec, Augmenting])
def test_random_numbers_are_those_of_calling_the_function_item_by_item(make: Callable[[], Any]) -> None:
    with opened("cpu:0"):
        found = cx.Pipeline(make()).map([ITEM] * 8)
        function = make()
        expected = [np.asarray(function(cx.array(ITEM))) for _ in range(8)]
    np.testing.assert_array_equal(found, expected)


def test_a_dict_among_the_constants_is_changed_by_items_only() -> None:
    def counted(x: Any, state: dict[str, int]) -> Any:
        state["items"] += 1
        return x * state["items"]

    with opened("cpu:0"):
        pipe = cx.Pipeline(counted, state={"items": 0})
        found = pipe.map([ITEM] * 5)
    assert [float(each[0]) for each in found] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_function_that_prints_or_counts_is_run_seldom(capsys: pytest.CaptureFixture[str]) -> None:
    runs: list[int] = []

    def counts(x: Any) -> Any:
        runs.append(1)
        return x + 1

    def prints(x: Any) -> Any:
        sys.stdout.write(f"{x.shape}\n")
        return x + 1

    with opened("cpu:0,cpu:1"):
        cx.Pipeline(counts).map([ITEM] * 3)
        assert len(runs) <= MOST_RUNS + 3
        cx.Pipeline(prints).map([ITEM] * 3)
    assert len(capsys.readouterr().out.splitlines()) <= MOST_RUNS + 3


def test_changes_are_noticed_and_what_stays_is_not() -> None:
    numbers, table, flags = itertools.count(), {"n": 1.0, "nan": float("nan")}, np.zeros(4)
    total = 0

    def helper() -> None:
        nonlocal total
        total += 1

    def look(_: Any) -> Any:
        return table["n"], flags[0], numbers

    def check(function: Any, change: Any) -> bool:
        found: list[bool] = []
        with noticed(function, {}, found):
            change()
        return found.pop()

    assert not check(look, lambda: None)
    assert check(look, lambda: next(numbers))
    assert check(look, lambda: table.update(n=2.0))
    assert check(look, lambda: flags.__setitem__(1, 1.0))
    assert check(lambda: helper(), helper)  # noqa: PLW0108 - what is called is looked at as well
    assert not check(look, helper)
    assert check(look, lambda: sys.stdout.write("."))
