"""When data is worth bringing: staying costs at most as much as moving would have, and moving in vain becomes rare."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.plan.policies import Regrets
from tests.backend.simulated_parts import backend_of, opened
from tests.plan.test_abilities import far_but_fast


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 100.0), st.integers(0, 200))
def test_whatever_comes_it_costs_at_most_twice_the_best_decision(gain: float, copies: float, calls: int) -> None:
    regrets = Regrets()
    cost, moved = 0.0, False
    for _ in range(calls):
        if not moved:
            moved = regrets.moves("call", gain, copies)
            cost += copies if moved else gain
    best = min(calls * gain, copies)
    assert cost <= 2 * best + max(gain, copies if gain > copies else 0.0) + 1e-12


def test_data_that_comes_back_is_moved_less_and_less_often() -> None:
    regrets = Regrets()
    moves = [turn for turn in range(1000) if regrets.moves("call", 1.0, 2.0)]
    assert len(moves) < 12
    gaps = np.diff([-1, *moves])
    assert (gaps[1:] >= gaps[:-1]).all()


def test_calls_are_told_apart_and_a_look_changes_nothing() -> None:
    regrets = Regrets()
    assert not regrets.moves("a", 1.0, 2.0)
    look = regrets.copy()
    assert look.moves("a", 1.0, 2.0) and not look.moves("b", 1.0, 2.0)
    assert regrets.moves("a", 1.0, 2.0)


def test_calls_that_are_planned_as_before_count_and_ask_for_a_plan_when_the_data_is_to_move() -> None:
    regrets = Regrets()
    assert not regrets.moves("a", 1.0, 3.0)
    assert not regrets.due("a", 1.0, 3.0)
    assert regrets.due("a", 1.0, 3.0) and regrets.due("a", 1.0, 3.0) and not regrets.due("b", 1.0, 3.0)
    assert regrets.moves("a", 1.0, 3.0) and not regrets.due("a", 1.0, 3.0)


@cx.kernel(x=cx.read, y=cx.update, flops=lambda x, y: 1e6)
def whole(x, y):
    y += x


def test_a_loop_takes_its_data_to_the_fast_device_once_that_has_paid() -> None:
    with opened(far_but_fast("1e6")) as runtime:  # 1 ms on a core, 1 us on the other; 16 kB take 16 ms to get there
        x, y = cx.array(np.zeros(1000)), cx.array(np.zeros(1000))
        for _ in range(200):
            whole(x, y)
            x, y = y, x
            cx.wait()
        assert 0.016 < backend_of(runtime).now < 0.04  # all on a core: 0.2 s


def test_who_calls_once_or_twice_stays_where_the_data_is() -> None:
    with opened(far_but_fast("1e6")) as runtime:
        x, y = cx.array(np.zeros(1000)), cx.array(np.zeros(1000))
        whole(x, y)
        whole(x, y)
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(0.002, rel=0.1)


def test_a_program_that_brings_its_data_back_each_time_hardly_pays_for_it() -> None:
    with opened(far_but_fast("1e6"), execute=True) as runtime:
        x, y = cx.array(np.zeros(1000)), cx.array(np.zeros(1000))
        for _ in range(200):
            whole(x, y)
            on_core(y)
            cx.wait()
        assert backend_of(runtime).now < 2 * 200 * 0.002


@cx.kernel(y=cx.update, flops=lambda y: 1e6)
def _core(y):
    y += 1


on_core = _core.using(devices="cpu:0")
