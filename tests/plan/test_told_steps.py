"""Steps of which the program says how often they come: planned before any of them runs, and never wrong."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.bench.plan import exact
from coexec.bench.plan.harness import told_run
from tests.devices import TWO

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def smooth(u: Any, out: Any) -> None:
    out[...] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


@cx.kernel(split=0, x=cx.read, out=cx.write, flops=1)
def doubled(x: Any, out: Any) -> None:
    out[...] = 2 * x


def opened(platform: str = "workstation", **options: Any) -> cx.Runtime:
    return cx.Runtime("", platform=platform, store="off", diagnostics="off", **options)


def plan_layer(runtime: cx.Runtime) -> Any:
    return runtime._driver.scheduler.plan


@pytest.mark.parametrize(
    ("preset", "name"),
    [("workstation", "wave_sim"), ("workstation", "image"), ("a100x4", "chain"), ("a100x4", "matmul")],
)
def test_a_told_step_takes_hardly_longer_than_on_the_best_choice_of_devices(preset: str, name: str) -> None:
    program = next(p for p in exact.programs(quick=True) if p.name == name)
    platform = cx.Platform.load(preset)
    everything = [device.name for device in platform.devices]
    gpus = [device.name for device in platform.devices if device.kind == "gpu"]
    ours = told_run(platform, everything, program)
    for others in (gpus, gpus[:1], ["cpu:0"]):
        assert ours <= told_run(platform, others, program) / 0.95


def test_nothing_of_the_first_step_begins_before_all_of_it_was_planned() -> None:
    with opened() as runtime:
        u, v = cx.zeros((2000, 2000)), cx.zeros((2000, 2000))
        step = cx.record(times=100)
        for turn in range(3):
            with step:
                smooth(u, v)
                smooth(v, u)
                assert plan_layer(runtime).waiting == (2 if turn == 0 else 0)
            assert plan_layer(runtime).waiting == 0
        steps = plan_layer(runtime).steps
        assert steps.adopted and steps.unplanned == ""
        planned = runtime.step_plan()
        assert planned is not None and len(planned.children) == 2


def test_a_told_step_is_not_looked_at_again_in_a_short_run() -> None:
    with opened() as runtime:
        u, v = cx.zeros((1000, 1000)), cx.zeros((1000, 1000))
        step = cx.record(times=20)
        spent = []
        for _ in range(20):
            with step:
                smooth(u, v)
                smooth(v, u)
            spent.append(plan_layer(runtime).steps.planning)
        assert len(set(spent)) == 1 and 0.0 < spent[0] < 1e-3


@pytest.mark.parametrize("options", [{"platform": "workstation", "execute": True}, {"devices": TWO}])
def test_results_are_those_of_numpy(options: dict[str, Any]) -> None:
    start = np.random.default_rng(3).random((120, 80))
    expected = start.copy()
    for _ in range(6):
        expected = np.sqrt(2 * expected + 1) * 0.5
    devices = options.pop("devices", "")
    with cx.Runtime(devices, store="off", diagnostics="off", **options):
        x = cx.array(start)
        step = cx.record(times=6)
        sums = []
        for _ in range(6):
            with step:
                out = cx.zeros_like(x)
                doubled(x, out)
                x[...] = np.sqrt(out + 1) * 0.5
                sums.append(x.sum())
        np.testing.assert_allclose(np.asarray(x), expected)
        np.testing.assert_allclose(float(sums[-1]), expected.sum())


def test_a_value_that_is_read_within_the_step_lets_it_go() -> None:
    start = np.random.default_rng(4).random((50, 50))
    with opened(execute=True) as runtime:
        x, out = cx.array(start), cx.zeros((50, 50))
        step = cx.record(times=5)
        for turn in range(5):
            with step:
                doubled(x, out)
                assert bool(plan_layer(runtime).waiting) == (turn == 0)
                assert float(out[7, 3]) == 2 * start[7, 3]
                doubled(out, x)
                assert plan_layer(runtime).waiting == 0
                doubled(x, out).result()
            start = 4 * start
        np.testing.assert_allclose(np.asarray(x), start)


def test_a_step_that_an_exception_leaves_runs_what_it_called() -> None:
    with opened(execute=True) as runtime:
        x, out = cx.array(np.ones(100)), cx.zeros(100)
        with pytest.raises(KeyError), cx.record(times=10):
            doubled(x, out)
            raise KeyError("left")
        assert plan_layer(runtime).waiting == 0
        np.testing.assert_array_equal(np.asarray(out), np.full(100, 2.0))


def test_a_step_may_have_more_calls_than_wait_for_each_other() -> None:
    with opened(execute=True) as runtime:
        x, y = cx.array(np.ones(64)), cx.zeros(64)
        most = 0
        with cx.record(times=3):
            for _ in range(150):
                doubled(x, y)
                x[...] = y * 0.5
                most = max(most, plan_layer(runtime).waiting)
        assert 200 <= most <= 256
        np.testing.assert_array_equal(np.asarray(y), np.full(64, 2.0))


def test_another_thread_that_waits_lets_the_step_go() -> None:
    with opened(execute=True):
        x, out = cx.array(np.ones(100)), cx.zeros(100)
        found: list[Any] = []
        with cx.record(times=4):
            doubled(x, out)
            thread = threading.Thread(target=lambda: found.append(np.asarray(out)))
            thread.start()
            thread.join()
        np.testing.assert_array_equal(found[0], np.full(100, 2.0))


def test_a_told_step_that_cannot_be_planned_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ZeroDivisionError("features of a part")

    monkeypatch.setattr("coexec.plan.steps.looking.Search", failing)
    with opened(execute=True) as runtime:
        x, out = cx.array(np.ones(300)), cx.zeros(300)
        with cx.record(times=2):
            doubled(x, out)
        assert plan_layer(runtime).steps.unplanned == "ZeroDivisionError: features of a part"
        np.testing.assert_array_equal(np.asarray(out), np.full(300, 2.0))


def test_calls_that_raise_do_so_where_they_are_made() -> None:
    with opened(execute=True):
        x, out = cx.array(np.ones(300)), cx.zeros(300)
        with cx.record(times=2):
            with pytest.raises(cx.CoexecError):
                doubled.using(devices="gpu:9")(x, out)
            doubled(x, out)
        np.testing.assert_array_equal(np.asarray(out), np.full(300, 2.0))


def test_a_step_comes_at_least_once() -> None:
    with pytest.raises(ValueError, match="at least once"):
        cx.record(times=0)
