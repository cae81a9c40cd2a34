"""Plans of steps: which devices, which cuts, how long, and that results are those of NumPy under every one of them."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.bench.plan import exact
from coexec.bench.plan.harness import simulated
from coexec.bench.plan.program import ArrayMaker
from coexec.plan.plan import Plan
from coexec.plan.steps.account import MEASURED, SETTLING, TOGETHER, TurnClock
from coexec.plan.steps.choose import planned
from coexec.plan.steps.cuts import _normal
from coexec.plan.steps.looking import classes, device_sets
from coexec.plan.steps.slices import done

PRESETS = ("workstation", "a100x4", "laptop", "edge-soc")


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def smooth(u: Any, out: Any) -> None:
    out[...] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


def opened(platform: str, **options: Any) -> cx.Runtime:
    return cx.Runtime("", platform=platform, store="off", diagnostics="off", **options)


def steps_of(runtime: cx.Runtime) -> Any:
    return runtime._driver.scheduler.plan.steps


def wave(runtime: cx.Runtime, side: int, turns: int) -> None:
    program = next(p for p in exact.programs(quick=False) if p.name == "wave_sim" and p.size == f"{side} x {side}")
    turn = program.make(ArrayMaker(runtime._driver))
    for number in range(turns):
        turn(number)
    runtime.wait()


@pytest.mark.parametrize("preset", PRESETS)
def test_no_set_has_cores_twice_and_every_device_is_in_one(preset: str) -> None:
    platform = cx.Platform.load(preset)
    devices = {device.name: device for device in platform.devices}
    found = device_sets(classes(platform, {}))
    assert {name for chosen in found for name in chosen} == set(devices)
    assert len(set(found)) == len(found) <= 32
    for chosen in found:
        for one, other in combinations(chosen, 2):
            assert not set(devices[one].cores) & set(devices[other].cores)


def test_lost_devices_are_in_no_set() -> None:
    platform = cx.Platform.load("a100x4")
    assert all("gpu:1" not in chosen for chosen in device_sets(classes(platform, {"gpu:1": "it failed"})))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_plan_costs_no_more_than_any_other_that_was_looked_at(preset: str) -> None:
    with opened(preset) as runtime:
        wave(runtime, 8192, 40)
        steps = steps_of(runtime)
        present = steps.present
        assert present is not None
        others = [entry.account for entry in steps.considered if entry.account is not None]
        assert steps.considered
        for other in others:
            if other.since is present:  # the way there was estimated from here
                assert present.costs(20, present=True) <= other.costs(20, present=False) * 1.03
        for entry in steps.considered:
            assert entry.account is not None or entry.why


def test_steps_whose_calls_all_have_their_device_are_not_planned() -> None:
    """There is one plan, so looking at others would take time for nothing."""
    spent = {}
    for devices in ("gpu:0", "gpu:0,gpu:1"):
        with opened("a100x4") as runtime:
            there = smooth.using(devices=devices)
            u, out = cx.zeros((4096, 4096)), cx.zeros((4096, 4096))
            for _ in range(8):
                there(u, out)
                there(out, u)
            cx.wait()
            spent[devices] = steps_of(runtime).planning
    assert spent["gpu:0"] == 0.0 < spent["gpu:0,gpu:1"]


def test_a_step_on_one_device_stays_there_however_long_its_queue_is() -> None:
    """Planned anew in the ninth turn, a call would be divided over whoever is idle then, and all later turns like it."""
    program = next(p for p in exact.programs(quick=False) if p.name == "conv2d" and p.size.startswith("8 "))
    platform = cx.Platform.load("edge-soc")
    alone = simulated(platform, ("gpu:0",), program)
    together = simulated(platform, [device.name for device in platform.devices], program)
    assert together.whole <= 1.02 * alone.whole + together.planning["plan_s"]
    assert together.period <= 1.02 * alone.period


def test_cuts_of_a_step_cover_every_call_once() -> None:
    with opened("a100x4") as runtime:
        wave(runtime, 8192, 8)
        steps = steps_of(runtime)
        for devices in device_sets(classes(runtime.platform, {})):
            found = done(planned(steps._step, devices, steps._machine))
            assert found is not None
            plan, shares = found
            assert sum(shares.values()) == pytest.approx(1.0)
            for call, parts in zip(steps._step.calls, plan, strict=True):
                axis = call.profile.axis or 0
                edges = [(part.box.lo[axis], part.box.hi[axis]) for part in parts]
                assert edges[0][0] == call.profile.box.lo[axis] and edges[-1][1] == call.profile.box.hi[axis]
                assert all(before[1] == after[0] for before, after in pairwise(edges))


def test_the_same_program_is_planned_in_the_same_way() -> None:
    found = []
    for _ in range(2):
        with opened("workstation") as runtime:
            wave(runtime, 8192, 12)
            plan = runtime.step_plan()
            assert plan is not None
            found.append((plan.as_dict(), runtime.machine.lanes["host"].clock()))
    assert found[0] == found[1]


@pytest.mark.parametrize("preset", PRESETS)
def test_results_are_those_of_numpy_while_plans_change(preset: str) -> None:
    start = np.random.default_rng(3).random((600, 400))
    with opened(preset, execute=True) as runtime:
        u, v = cx.array(start), cx.array(start)
        for _ in range(12):
            smooth(u, v)
            u, v = v, u
        total = float(u.sum())
        found = np.asarray(u)
        assert runtime.step_plan() is not None
    a, b = start.copy(), start.copy()
    for _ in range(12):
        smooth.function(a, b[1:-1, 1:-1])
        a, b = b, a
    assert np.array_equal(found, a)
    assert total == pytest.approx(a.sum())


def test_a_saved_plan_of_a_step_is_followed(tmp_path: Path) -> None:
    with opened("a100x4") as runtime:
        wave(runtime, 8192, 12)
        plan = runtime.step_plan()
        assert plan is not None and plan.kind == "step" and plan.considered
        assert plan.limit_s is not None and plan.seconds is not None and plan.seconds >= plan.limit_s
        plan.save(tmp_path / "step.json")
        text = plan.explain()
    assert "predicted" in text and "a turn on" in text
    assert Plan.load(tmp_path / "step.json") == plan
    with opened("a100x4", plan=str(tmp_path / "step.json"), trace=str(tmp_path / "t.json")) as runtime:
        wave(runtime, 8192, 1)
    wanted = {part.device for call in plan.children for part in call.parts}
    rows = cx.Trace.load(tmp_path / "t.json").work if hasattr(cx, "Trace") else []
    assert not rows or {row["device"] for row in rows if row["kind"] == "kernel"} == wanted


def test_a_device_that_is_lost_in_a_step_ends_its_plan() -> None:
    from coexec.backend.simulated import Happening, Scenario

    start = np.random.default_rng(3).random((600, 400))
    scenario = Scenario((Happening.lost("gpu:0", at=2e-3),))
    with opened("workstation", execute=True, scenario=scenario):
        u, v = cx.array(start), cx.array(start)
        for _ in range(60):
            smooth(u, v)
            u, v = v, u
        found = np.asarray(u)
    a, b = start.copy(), start.copy()
    for _ in range(60):
        smooth.function(a, b[1:-1, 1:-1])
        a, b = b, a
    assert np.array_equal(found, a)


def test_turns_are_measured_when_there_are_enough_of_them() -> None:
    clock = TurnClock()
    clock.begin()
    for turn in range(SETTLING + MEASURED):
        clock.ended(turn * 1e-3)
        assert clock.seconds is None
    clock.ended((SETTLING + MEASURED) * 1e-3)
    assert clock.seconds == pytest.approx(1e-3)
    clock.begin(at_once=16)
    for turn in range(SETTLING + TOGETHER * 16):
        clock.ended(turn * 1e-2)
        assert clock.seconds is None


@cx.kernel(split=0, x=cx.read, out=cx.update, flops=2)
def doubled(x: Any, out: Any) -> None:
    out[...] = 2 * x


@pytest.mark.parametrize("rows", [4, 400])
def test_calls_that_name_devices_are_planned_on_these_alone(rows: int) -> None:
    start = np.random.default_rng(5).random((rows, 300))
    with opened("a100x4", execute=True) as runtime:
        x, a, b, c = (cx.array(start) for _ in range(4))
        for _ in range(30):
            doubled.using(devices="gpu:0")(x, a)
            doubled.using(devices="gpu:1,gpu:2")(x, b)
            doubled(x, c)
        steps, plan = steps_of(runtime), runtime.step_plan()
        assert plan is not None and not steps.unplanned
        for entry in (steps.present, *[entry.account for entry in steps.considered if entry.account is not None]):
            first, second, _ = [{part.device for part in parts} for parts in entry.plan]
            assert first == {"gpu:0"} and second <= {"gpu:1", "gpu:2"}
        for found in (a, b, c):
            assert np.array_equal(np.asarray(found), 2 * start)


def test_calls_that_run_in_the_caller_do_not_shift_the_calls_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "coexec.plan.planned.CHEAP", 5e-4
    )  # seconds: the small one is below on any machine, the large above
    small, large = np.arange(64.0), np.arange(2e6)
    with cx.Runtime("cpu:0,cpu:1", store="off", diagnostics="off") as runtime:
        x, a, y, b = cx.array(small), cx.array(small), cx.array(large), cx.array(large)
        for _ in range(30):
            doubled.using(devices="cpu:0")(x, a)  # nothing else is going on: its caller does it
            doubled.using(devices="cpu:1")(y, b)
            runtime.wait()
        steps = steps_of(runtime)
        assert steps._failed is False
        recent = steps._watch.last(2)
        assert [[(chunk.device, chunk.box.volume) for chunk in seen.chunks] for seen in recent] == [
            [("cpu:0", 64)],
            [("cpu:1", 2_000_000)],
        ]
        assert np.array_equal(np.asarray(a), 2 * small) and np.array_equal(np.asarray(b), 2 * large)


def test_a_step_that_cannot_be_planned_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def failing(*_: object, **__: object) -> None:
        tries.append(1)
        raise ZeroDivisionError("features of a part")

    monkeypatch.setattr("coexec.plan.steps.looking.Search", failing)
    start = np.random.default_rng(5).random((400, 300))
    with opened("workstation", execute=True) as runtime:
        x, out = cx.array(start), cx.array(start)
        for _ in range(30):
            doubled(x, out)
        assert np.array_equal(np.asarray(out), 2 * start)
        assert steps_of(runtime).unplanned == "ZeroDivisionError: features of a part"
        assert runtime.step_plan() is None and len(tries) == 1


def test_each_of_very_many_devices_gets_its_share() -> None:
    assert list(_normal(dict.fromkeys(map(str, range(2000)), 1.0)).values()) == pytest.approx([1 / 2000] * 2000)


def test_a_plan_that_promises_little_is_adopted_unmeasured_if_that_is_time_of_kernels() -> None:
    """Two processors add 5 % to four GPUs, of which coexec's own cost is none."""
    with cx.Runtime("", platform="a100x4", store="off", diagnostics="off") as runtime:
        given = ArrayMaker(runtime._driver)
        a, b, c = (given(4096, 4096) for _ in range(3))
        for _ in range(16):
            cx.matmul(a, b, c)
        runtime.wait()
        steps: Any = runtime._driver.scheduler.plan.steps
        present = steps.present
        assert {name.split(":")[0] for name in present.devices} == {"cpu", "gpu"}
