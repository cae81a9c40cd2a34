"""The benchmark of applications runs what examples/ shows, gives every figure that it promises, and adds up right."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import coexec as cx
from coexec.bench.apps import cholesky, harness, harness as cost, harness as figures, programs
from coexec.bench.apps.app import App
from coexec.bench.apps.team import ThreadTeam
from coexec.bench.apps.ways import AppThroughCoexec, AppWay, ByHand, InNumPy
from coexec.bench.split.harness import usable
from coexec.machine.cores import available_cores
from tests.observe.stories import Story
from tests.repository import ROOT

CASE = {
    "app", "devices", "numpy_s", "coexec_s", "handwritten_s", "speedup", "vs_numpy", "vs_handwritten", "gb_per_s",
    "runtime_cost", "handwritten_compiled_s", "vs_handwritten_compiled",
}  # fmt: skip
EFFORT = harness.AppEffort(0.0, (1, 1), 1, 1)
SETS, _ = usable(harness.DEVICES)


def quick(name):
    return import_module(f"coexec.bench.apps.{name}").make(True)


# The applications ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("bodies_everywhere")
@pytest.mark.parametrize("name", harness.APPS)
def test_every_way_gives_the_results_of_plain_numpy_again_and_again(name):
    app = quick(name)
    ways: list[AppWay] = [
        InNumPy(app, 1),
        ByHand(app, available_cores()),
        ByHand(app, available_cores(), compiled=True),
        *(AppThroughCoexec(app, devices) for devices in SETS),
    ]
    try:
        for _ in range(3):  # every run begins from the first contents again; in the third, compiled forms were compared
            assert all(way.seconds() > 0 for way in ways)
            assert not any(app.wrong(way.results, ways[0].results) for way in ways)
    finally:
        for way in ways:
            way.close()


@pytest.mark.parametrize("name", harness.APPS)
def test_results_are_compared_closely_enough_to_notice_a_missing_step(name):
    app = quick(name)
    wanted = app.numpy(*(array.copy() for array in app.inputs))
    shifted = tuple(result + 1e-3 * np.abs(result).max() for result in map(np.asarray, wanted))
    assert not app.wrong(wanted, wanted)
    assert app.wrong(shifted, wanted)


def test_the_wave_kernel_is_the_same_in_pieces_and_on_every_device():
    wave = programs.load("wave_sim")
    before, now = (np.random.default_rng(1).random((40, 30), np.float32) for _ in range(2))
    cx.testing.check_kernel(wave.step, now, before, 0.25, ulp=64)


def test_the_kernel_of_bodies_is_the_same_in_pieces_and_on_every_device():
    bodies = programs.load("nbody")
    place, next, speed, mass = bodies.start(50)
    cx.testing.check_kernel(bodies.move, place, mass, place, speed, next, 0.01, ulp=1e6)


def test_the_kernel_of_light_is_the_same_in_pieces_and_on_every_device():
    light = programs.load("rsim")
    form, when, history = light.start(3, 4)
    cx.testing.check_kernel(light.bounce, form, when, history[:-1], history[-1], ulp=1e4)


def test_a_failing_task_of_the_hand_written_factorisation_lets_nobody_wait():
    ready, team = cholesky.ReadyTasks(list(cholesky.jobs(4))), ThreadTeam(available_cores()[:1] * 2)

    def run(job):
        if job.name == "syrk":
            raise ValueError("mine")

    try:
        with pytest.raises(ValueError, match="mine"):
            team.run(lambda _: ready.work(run))
    finally:
        team.close()


def test_examples_come_from_the_checkout_and_are_part_of_the_wheel():
    assert programs.folder() == ROOT / "examples"
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert built["targets"]["wheel"]["force-include"] == {"examples": "coexec/examples"}
    with pytest.raises(FileNotFoundError, match="no example"):
        programs.load("nothing")


# The figures --------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("bodies_everywhere")
def test_a_case_has_every_key_and_its_figures_agree():
    said: list[str] = []
    found, off = harness.measure(quick("wave_sim"), SETS, EFFORT, said.append)
    assert [case["devices"] for case in found] == SETS and not off
    for case in found:
        assert case.keys() >= CASE
        if case["best_alone"] == "cpu:0":
            assert case["speedup"] == pytest.approx(found[0]["coexec_s"] / case["coexec_s"])
        assert case["vs_numpy"] == pytest.approx(case["numpy_s"] / case["coexec_s"])
        assert case["vs_handwritten"] == pytest.approx(case["handwritten_s"] / case["coexec_s"])
        assert 1.0 <= case["runtime_cost"] <= case["runtime_cost_with_gil"] + 1e-9
        assert case["vs_handwritten_compiled"] == pytest.approx(case["handwritten_compiled_s"] / case["coexec_s"])
    assert said
    json.dumps(found)


def test_one_core_is_compared_with_numpy_on_one_core_where_numpy_has_threads():
    app = replace(quick("rsim"), libraries=True)
    times = {"numpy": [1.0], "numpy 1": [2.0], "hand 1": [1.0], "hand 2": [1.0], "cpu:0": [4.0], "cpu:0,cpu:1": [2.0]}
    times |= {"hand 1 compiled": [3.0], "hand 2 compiled": [3.0]}
    one, two = (harness.case(app, devices, times, {}) for devices in ("cpu:0", "cpu:0,cpu:1"))
    assert (one["vs_numpy"], two["vs_numpy"]) == (0.5, 0.5)
    assert (one["speedup"], two["speedup"]) == (1.0, 2.0)
    with harness._ways(app, ["cpu:0"]) as ways:
        assert list(ways) == ["numpy", "numpy 1", "hand 1", "hand 1 compiled", "cpu:0"]


def test_a_device_that_cannot_run_an_application_alone_is_named_and_left_out():
    if SETS[-1] != "cpu:0,opencl:0@1":
        return  # no OpenCL here, so no device is left out

    @cx.kernel(x=cx.update)
    def grow(x):  # no OpenCL variant
        x += 1

    def through(x):
        grow(x)
        return (x,)

    def plain(x):
        x += 1
        return (x,)

    app = App("grow", "10", (np.zeros(10),), plain, through, lambda _, x: plain(x), 80.0, rewritten=(0,))
    found, off = harness.measure(app, SETS, EFFORT, lambda _: None)
    assert [case["best_alone"] for case in found] == ["cpu:0"] * len(SETS)
    assert list(off) == ["grow on opencl:0@1 alone"]


def test_apps_reports_every_application_with_the_triad_beside_it(monkeypatch):
    monkeypatch.setattr(harness, "APPS", ("rsim",))
    monkeypatch.setattr(harness, "BRIEF", EFFORT)
    found = harness.run(True, lambda _: None)
    assert [case["devices"] for case in found["cases"]] == SETS
    assert all(case["triad_gb_per_s"] > 0 for case in found["cases"])
    assert found.keys() >= {"missed", "bandwidth", "machine", "others_cores", "off", "worst_vs_numpy"}
    json.dumps(found)


def test_only_what_is_named_is_measured(monkeypatch):
    monkeypatch.setattr(harness, "BRIEF", EFFORT)
    found = harness.run(True, lambda _: None, only=["rsim"], devices=["cpu:0"])
    assert [(case["app"], case["devices"]) for case in found["cases"]] == [("rsim", "cpu:0")]


def test_a_wrong_result_ends_the_benchmark():
    app = quick("rsim")
    way = InNumPy(app, 1)
    way.seconds()
    other = InNumPy(app, 1)
    other.results = (way.results[0] + 1,)
    with pytest.raises(AssertionError, match="rsim: wrong results"):
        harness._check(app, {"numpy": way, "cpu:0": other})


def case(devices, speedup, hand, numpy, runtime_cost, kernel_ms=2.0):
    return {
        "app": "x", "devices": devices, "speedup": speedup, "vs_handwritten": hand, "vs_numpy": numpy,
        "vs_handwritten_compiled": hand + 0.1,
        "runtime_cost": runtime_cost, "kernel_ms": kernel_ms,
    }  # fmt: skip


def test_the_summary_names_who_misses_which_bar():
    cases = [
        case("cpu:0", 1.0, 0.9, 0.99, 1.0),  # slower than NumPy
        case("cpu:0,cpu:1", 1.9, 0.94, 2.0, 1.06),  # behind hand-written, and a costly runtime
        case("cpu:0,cpu:1", 1.6, 1.0, 2.0, 9.0, kernel_ms=0.5),  # a poor speedup; such short kernels may cost more
    ]
    found = figures.summary(cases)
    assert [(row["figure"], row["is"]) for row in found["missed"]] == [
        ("speedup", 1.6), ("vs_handwritten", 0.94), ("vs_numpy", 0.99), ("runtime_cost", 1.06),
    ]  # fmt: skip
    assert (found["worst_speedup"], found["worst_runtime_cost"]) == (1.6, 1.06)
    assert found["geomean_speedup"] == pytest.approx((1.9 * 1.6) ** 0.5)


# What the runtime costs ---------------------------------------------------------------------------------------------------


def test_gaps_between_kernels_are_the_runtime_s_and_dependencies_are_not():
    story = Story()
    task = story.task("a", submitted=0.0)
    one = story.run("kernel", "a", "cpu:0", 1.0, task=task, late=0.5)
    story.run("kernel", "a", "cpu:1", 2.0, task=task, needs=(one,), late=0.5)  # begins at 2.0, ends at 4.0
    trace = story.trace()
    assert cost.shortest(trace) == pytest.approx(3.0)
    assert cost.figures(trace)["runtime_cost"] == pytest.approx(4 / 3)


def test_a_device_keeps_the_order_of_its_kernels_also_across_lanes():
    story = Story()
    task = story.task("a")
    story.run("kernel", "a", "cpu:0", 1.0, task=task)
    story.run("kernel", "a", "cpu:0", 1.0, task=task, lane=1, late=1.2)
    story.run("kernel", "a", "cpu:0", 1.0, task=task, lane=2, late=1.5)  # beside the second: they shared the core
    assert cost.shortest(story.trace()) == pytest.approx(2.0)


def test_what_takes_no_time_passes_dependencies_on():
    story = Story()
    task = story.task("a")
    one = story.run("kernel", "a", "cpu:0", 1.0, task=task)
    room = story.run("alloc", "alloc", "host", 0.3, task=task, lane=-1, after=(one,))
    there = story.run(
        "copy", "copy", "opencl:0", 0.5, task=task, needs=(one,), after=(room,), link=("host", "opencl:0")
    )
    story.run("kernel", "a", "opencl:0", 1.0, task=task, lane=1, needs=(there,))
    assert cost.shortest(story.trace()) == pytest.approx(2.5)


def test_waiting_for_the_interpreter_lock_can_be_counted_as_a_cost():
    story = Story()
    task = story.task("a")
    story.run("kernel", "a", "cpu:0", 1.0, task=task, waited=0.5)
    found = cost.figures(story.trace())
    assert (found["runtime_cost"], found["runtime_cost_with_gil"]) == (pytest.approx(1.0), pytest.approx(2.0))
    assert found["kernel_ms"] == pytest.approx(1000)


# Threads by hand ----------------------------------------------------------------------------------------------------------


def test_a_team_meets_at_every_barrier_and_its_parts_cover_everything():
    team = ThreadTeam(available_cores()[:1] * 3)
    reached: list[list[int]] = [[0] * 3 for _ in range(20)]
    try:

        def share(rank):
            for step in range(20):
                reached[step][rank] = 1
                team.barrier()
                assert sum(reached[step]) == 3

        team.run(share)
        team.run(share)
        assert [team.part(10, rank) for rank in range(3)] == [slice(0, 3), slice(3, 6), slice(6, 10)]
    finally:
        team.close()


def test_a_failing_thread_lets_nobody_wait_and_its_error_is_raised():
    team = ThreadTeam(available_cores()[:1] * 2)

    def share(rank):
        if rank == 1:
            raise ValueError("mine")
        team.barrier()

    try:
        with pytest.raises((ValueError, RuntimeError), match=r"mine|another thread"):
            team.run(share)
    finally:
        team.close()
