"""How often Python looks for cycles of garbage: seldom while many instructions are open, the program's own way otherwise."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile import Compiler
from coexec.compile.compiler import Compilation
from coexec.machine import collecting
from coexec.machine.collecting import (
    FEW,
    MANY,
    OFTEN,
    CollectorPace,
    collect_as_before,
    collect_seldom,
    collect_young,
)


@pytest.fixture(autouse=True)
def own_thresholds(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int, int]]:
    """Nobody has asked for anything yet, and the program's own thresholds are Python's."""
    before = gc.get_threshold()
    monkeypatch.setattr(collecting, "_asked", {})
    monkeypatch.setattr(collecting, "_young", set())
    gc.set_threshold(700, 10, 10)
    yield 700, 10, 10
    gc.set_threshold(*before)


@cx.kernel(x=cx.read, y=cx.update)
def add(x: Any, y: Any) -> None:
    y += x


def test_the_collector_runs_seldom_while_somebody_asks_and_as_before_afterwards() -> None:
    one, other = object(), object()
    collect_seldom(one, 5000)
    collect_seldom(other, 9000)
    assert gc.get_threshold() == (9000, 10, 10)
    collect_as_before(other)
    assert gc.get_threshold() == (5000, 10, 10)
    collect_as_before(other)
    collect_as_before(one)
    assert gc.get_threshold() == (700, 10, 10)


def test_thresholds_that_the_program_sets_while_somebody_asks_are_its_own_afterwards() -> None:
    one, other = object(), object()
    collect_seldom(one, 5000)
    gc.set_threshold(300, 5, 5)
    collect_seldom(other, 6000)
    assert gc.get_threshold() == (6000, 5, 5)
    collect_as_before(other)
    collect_as_before(one)
    assert gc.get_threshold() == (300, 5, 5)


def test_a_collector_that_runs_more_seldom_already_or_is_off_is_left_alone() -> None:
    one = object()
    gc.set_threshold(100_000, 10, 10)
    collect_seldom(one, 5000)
    assert gc.get_threshold()[0] == 100_000
    collect_as_before(one)
    gc.set_threshold(0, 10, 10)
    collect_seldom(one, 5000)
    assert gc.get_threshold()[0] == 0
    collect_as_before(one)
    assert gc.get_threshold()[0] == 0


def test_a_pace_of_nothing_never_begins() -> None:
    assert CollectorPace(0).many > 1 << 40
    assert CollectorPace(5000).many == MANY > FEW > CollectorPace(5000).few


@pytest.mark.parametrize("threshold", [20_000, 0])
def test_a_runtime_asks_while_many_instructions_are_open_and_no_longer(threshold: int) -> None:
    seldom = max(threshold, 700)
    with cx.Runtime("null:1", store="off", gc_threshold=threshold) as runtime:
        x, y = cx.zeros(64), cx.zeros(64)
        for _ in range(MANY // 2):
            add(x, y)
        assert gc.get_threshold()[0] == 700
        for _ in range(MANY):
            add(x, y)
        assert gc.get_threshold()[0] == seldom
        runtime.wait()
        assert gc.get_threshold() == (700, 10, 10)
        for _ in range(2 * MANY):
            add(x, y)
        assert gc.get_threshold()[0] == seldom
        del x, y
    assert gc.get_threshold() == (700, 10, 10)


def test_garbage_in_cycles_is_found_once_few_instructions_are_open() -> None:
    with cx.Runtime("null:1", store="off", horizon=100_000) as runtime:
        x, y = cx.zeros(64), cx.zeros(64)
        for _ in range(2 * MANY):
            add(x, y)
        gone: list[bool] = []

        class Cycle:
            """An object that holds itself."""

            def __init__(self) -> None:
                self.me, self.data = self, np.zeros(8)

            def __del__(self) -> None:
                gone.append(True)

        Cycle()
        for _ in range(MANY):
            add(x, y)
        assert not gone, "the collector ran, so this test would say nothing"
        runtime.wait()
        kept = [[] for _ in range(2000)]  # type: ignore[var-annotated]  # the next objects that the program makes
        assert gone and kept
        del x, y


def test_older_objects_are_left_alone_while_somebody_asks() -> None:
    one, other = object(), object()
    collect_young(one)
    assert gc.get_threshold() == (700, OFTEN, 10)
    collect_seldom(other, 5000)
    assert gc.get_threshold() == (5000, OFTEN, 10)
    collect_as_before(one)
    assert gc.get_threshold() == (5000, 10, 10)
    collect_as_before(other)
    assert gc.get_threshold() == (700, 10, 10)
    gc.set_threshold(0)
    collect_young(one)
    assert gc.get_threshold()[0] == 0
    collect_as_before(one)
    assert gc.get_threshold()[0] == 0


def test_a_compiling_thread_sets_off_no_run_through_all_objects_of_the_program() -> None:
    seen: list[tuple[int, int, int]] = []
    with Compiler() as compiler:
        compiler.submit(Compilation(lambda: seen.append(gc.get_threshold()), lambda: None))
        compiler.wait()
    assert seen == [(700, OFTEN, 10)] and gc.get_threshold() == (700, 10, 10)
