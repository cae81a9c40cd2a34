"""Programs that do not repeat themselves: their data moves to where a run of calls wants it, and results are NumPy's."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.bench.plan import changing
from coexec.bench.plan.harness import simulated
from coexec.bench.plan.program import ArrayMaker
from coexec.plan.steps.looking import FIRST, MOST_FIRST, SHARE
from coexec.plan.steps.planner import WINDOW
from coexec.plan.steps.watch import ProgramWatch

TURNS = 30
WORTH = 0.85  # of the best device's steady time: measured 0.9 and more, as `coexec bench plan` shows


def opened(platform: str, **options: Any) -> cx.Runtime:
    return cx.Runtime("", platform=platform, store="off", diagnostics="off", **options)


def steps_of(runtime: cx.Runtime) -> Any:
    return runtime._driver.scheduler.plan.steps


def program(name: str) -> Any:
    return next(p for p in changing.programs(quick=True) if p.name == name)


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def smooth(u: Any, out: Any) -> None:
    out[...] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


@pytest.mark.parametrize("name", ["branch", "lu", "reads"])
def test_more_devices_do_not_slow_a_changing_program_down(name: str) -> None:
    platform = cx.Platform.load("workstation")
    everything = simulated(platform, [device.name for device in platform.devices], program(name))
    alone = simulated(platform, ["gpu:0"], program(name))
    assert alone.period >= WORTH * everything.period


def test_data_moves_once_and_stays_there() -> None:
    with opened("workstation") as runtime:
        turn = program("branch").make(ArrayMaker(runtime._driver))
        for number in range(TURNS):
            turn(number)
        runtime.wait()
        seen = steps_of(runtime)._watch.last(2 * WINDOW)
        held = {chunk.device for call in seen for chunk in call.chunks}
        assert held and held <= steps_of(runtime)._guide.devices and len(held) < len(runtime.platform.devices)


def test_looks_take_a_bounded_part_of_the_time() -> None:
    with opened("a100x4") as runtime:
        turn = program("inner loop").make(ArrayMaker(runtime._driver))
        for number in range(2 * TURNS):
            turn(number)
        runtime.wait()
        elapsed = runtime.machine.lanes["host"].clock()
        assert 0.0 < steps_of(runtime).planning <= MOST_FIRST + FIRST + SHARE * elapsed + FIRST


def test_a_call_that_no_plan_names_follows_the_plan_in_force() -> None:
    """Views of an elimination shrink: none of its calls comes twice."""
    with opened("workstation") as runtime:
        turn = program("lu").make(ArrayMaker(runtime._driver))
        for number in range(TURNS):
            turn(number)
        runtime.wait()
        steps = steps_of(runtime)
        devices = {chunk.device for chunk in steps._watch.last(1)[0].chunks}
        assert steps._guide.devices and devices <= steps._guide.devices


@pytest.mark.parametrize("preset", ["workstation", "a100x4", "laptop"])
def test_results_are_those_of_numpy_whatever_is_moved(preset: str) -> None:
    start = np.random.default_rng(7).random((500, 300))
    thrown = Random(4)
    coin = [thrown.random() < 0.6 for _ in range(24)]
    with opened(preset, execute=True):
        u, v = cx.array(start), cx.array(start)
        for turn, heads in enumerate(coin):
            if heads:
                smooth(u, v)
            else:
                smooth(v, u)
                v[turn:, :] = np.sqrt(u[turn:, :] * 2) + v[turn:, :]
        found = np.asarray(u), np.asarray(v)
    a, b = start.copy(), start.copy()
    for turn, heads in enumerate(coin):
        if heads:
            smooth.function(a, b[1:-1, 1:-1])
        else:
            smooth.function(b, a[1:-1, 1:-1])
            b[turn:, :] = np.sqrt(a[turn:, :] * 2) + b[turn:, :]
    assert np.array_equal(found[0], a) and np.array_equal(found[1], b)


def test_arrays_that_a_window_makes_are_made_anew_in_each_turn() -> None:
    with opened("workstation") as runtime:
        x = cx.zeros((2048, 2048))
        for _ in range(3):
            y = cx.zeros((2048, 2048))
            smooth(x, y)
            smooth(y, x)
        watch: ProgramWatch = steps_of(runtime)._watch
        window = watch.window(4)
        assert window is not None and not window.exact
        grown = {new for call in window.calls for new in call.renewed}
        assert grown == {0, 2}  # two of the arrays y; x stays
        runtime.wait()
