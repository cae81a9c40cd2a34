"""Plans for the devices here: choices against enumeration, what runs decides, and planned calls are replayed."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.machine.platform import Platform
from coexec.models.building import NetBuilder
from coexec.models.deploying import PlannedRun, planned
from coexec.models.fabric import fabric
from coexec.models.here import CALLS, TURNS, HerePlanner, chosen_plan, tried
from coexec.models.layer_times import LayerTimes, time_layers
from coexec.models.measured import with_rates
from coexec.models.model import example_inputs
from coexec.models.running import RunNode
from coexec.models.sharding import COUT, ROWS
from coexec.models.values import ValueType
from coexec.observe.keeping_up import SchedulingPace

RNG = np.random.default_rng(5)


def small_net(convolutions: int = 3, follower: str = "Relu") -> cx.Model:
    net = NetBuilder("small")
    x = net.input("x", (1, 3, 12, 10))
    for _ in range(convolutions):
        x = net.same(follower, net.conv(x, 4, 3))
    return cx.Model(net.done(x))


def planner(
    model: cx.Model, seconds: tuple[tuple[float, ...], ...], call: float, machine: str = "workstation"
) -> HerePlanner:
    """Return a planner that was told how long layers take on the first devices of a machine."""
    platform = Platform.load(machine)
    names = [device.name for device in platform.devices if not device.wide][: len(seconds)]
    found = fabric(with_rates(platform, dict.fromkeys(names, 1e12)), every=True)
    assert [a.name for a in found.accelerators] == names
    calls = (2,) * len(model.layers.layers)
    return HerePlanner(model.graph, model.layers, found, LayerTimes(tuple(names), seconds, calls, call))


times = st.floats(1e-5, 1e-1)


@given(st.lists(st.tuples(times, times, times), min_size=2, max_size=2), st.floats(0, 1e-2))
@settings(max_examples=25, deadline=None)
def test_the_choice_is_the_best_of_all(seconds: list[tuple[float, ...]], call: float) -> None:
    found = planner(small_net(), tuple(seconds), call)
    best = found.best()
    every = [found.priced(choices).seconds for choices in product(*(found.options(layer) for layer in range(3)))]
    assert best.seconds == pytest.approx(min(every))
    assert found.bound() <= best.seconds * (1 + 1e-12)
    assert best.seconds <= min(found.alone(device).seconds for device in range(2)) * (1 + 1e-12)


def test_what_calls_cost_keeps_small_layers_whole() -> None:
    """Layers of 10 ms are cut; where a call takes 6 ms they are not, because parts are more calls."""
    seconds = ((0.01,) * 3, (0.01,) * 3)
    assert all(choice.dim >= 0 for choice in planner(small_net(), seconds, 1e-5).best().choices)
    assert all(choice.dim < 0 for choice in planner(small_net(), seconds, 6e-3).best().choices)


def test_parts_follow_the_speed_of_devices() -> None:
    found = planner(small_net(), ((0.01,) * 3, (0.03,) * 3), 0.0)
    cuts = {choice.dim: choice.sizes for choice in found.options(0) if choice.dim >= 0}
    assert cuts[ROWS] == (9, 3)


def test_output_channels_are_cut_as_finely_as_groups_allow() -> None:
    """Rows of 1 and 2 would leave a third of the layer to one and two thirds to the other; channels are halved."""
    net = NetBuilder("deep")
    x = net.conv(net.input("x", (1, 4, 3, 3)), 6, 3)
    model = cx.Model(net.done(net.conv(net.conv(x, 6, 3, groups=2), 6, 3, groups=6)))
    found = planner(model, ((0.01,) * 3, (0.01,) * 3), 0.0)
    for layer in range(3):
        cuts = {choice.dim: choice.sizes for choice in found.options(layer) if choice.dim >= 0}
        assert cuts[COUT] == (3, 3) and sorted(cuts[ROWS]) == [1, 2]
    assert [choice.dim for choice in found.best().choices] == [COUT] * 3
    unlike = planner(model, ((0.01,) * 3, (0.04,) * 3), 0.0)
    sizes = [{choice.dim: choice.sizes for choice in unlike.options(layer)}.get(COUT) for layer in range(3)]
    assert sizes == [(5, 1), None, (5, 1)], "of two groups nobody does a half"


class TellingClock:
    """A clock that each run advances by what it is said to take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("whole", "cut", "expected"), [(1.0, 2.0, 1), (2.0, 1.0, 2), (1.0, 0.99, 1)])
def test_what_runs_quicker_is_the_plan(whole: float, cut: float, expected: int) -> None:
    """The prediction says that both devices are best; the trial decides, and is what the plan predicts."""
    model, clock = small_net(), TellingClock()
    x = RNG.standard_normal((1, 3, 12, 10)).astype(np.float32)
    with cx.Runtime(platform="workstation", execute=True):
        found = planner(model, ((0.01,) * 3, (0.01,) * 3), 1e-5)

        def run(way: RunNode) -> Any:
            assert isinstance(way, PlannedRun)
            clock.now += whole if way.alone else cut
            return model.run(way, x)

        plan = chosen_plan(found, run, clock, until=1e9)
    devices = {part.device for group in plan.children for layer in group.children for part in layer.parts}
    assert len(devices) == expected
    assert plan.seconds == pytest.approx(whole if expected == 1 else cut)
    assert plan.considered == pytest.approx({"single": whole, "cut": cut})
    assert plan.limit_s is not None and plan.seconds is not None and plan.limit_s <= plan.seconds
    assert sum(layer.seconds or 0.0 for group in plan.children for layer in group.children) == pytest.approx(
        plan.seconds
    )
    assert cx.Plan.from_dict(plan.as_dict()) == plan


def test_trials_end_with_the_budget() -> None:
    model, clock, runs = small_net(1), TellingClock(), []
    x = RNG.standard_normal((1, 3, 12, 10)).astype(np.float32)
    with cx.Runtime(platform="workstation", execute=True):
        way = planned(
            model.running, planner(model, ((0.01,),), 0.0).cuts(planner(model, ((0.01,),), 0.0).best().choices)
        )

        def run(how: RunNode) -> Any:
            runs.append(how)
            clock.now += 1.0
            return model.run(how, x)

        assert tried(run, [way], clock, until=0.5) == [pytest.approx(1.0)]
        assert len(runs) == 2
        assert tried(run, [way], clock, until=1e9) == [pytest.approx(1.0)]
        assert len(runs) > 4


def test_a_candidate_is_called_again_and_again_before_the_next_has_its_turn() -> None:
    """As programs call it: which thread computes is learned from calls that follow each other, with NumPy's arrays."""
    model, clock, runs = small_net(1), TellingClock(), []
    with cx.Runtime(platform="workstation", execute=True):
        found = planner(model, ((0.01,), (0.01,)), 1e-5)
        ways = [planned(model.running, found.cuts(found.alone(device).choices)) for device in range(2)]

        def run(how: RunNode) -> Any:
            runs.append(ways.index(how))
            clock.now += 1.0 - len(runs) / 1e3
            return model.run(how, **example_inputs(model.inputs))

        took = tried(run, ways, clock, until=1e9)
    assert runs == ([0] * CALLS + [1] * CALLS) * TURNS
    assert took == [pytest.approx(1.0 - (len(runs) - CALLS) / 1e3), pytest.approx(1.0 - len(runs) / 1e3)]


def test_a_candidate_that_is_far_behind_has_one_turn() -> None:
    model, clock, runs = small_net(1), TellingClock(), []
    with cx.Runtime(platform="workstation", execute=True):
        found = planner(model, ((0.01,), (0.01,)), 1e-5)
        ways = [planned(model.running, found.cuts(found.alone(device).choices)) for device in range(2)]

        def run(how: RunNode) -> Any:
            runs.append(ways.index(how))
            clock.now += 1.0 + ways.index(how)
            return model.run(how, **example_inputs(model.inputs))

        took = tried(run, ways, clock, until=1e9)
    assert runs == [0] * CALLS + [1] * CALLS + [0] * CALLS * (TURNS - 1)
    assert took == [pytest.approx(1.0), pytest.approx(2.0)]


def test_trials_compute_with_numbers_that_a_program_could_have() -> None:
    kinds = {"x": ValueType((3, 4)), "half": ValueType((2,), "float16"), "ids": ValueType((5,), "int64")}
    given = example_inputs(kinds)
    assert {name: (value.shape, str(value.dtype)) for name, value in given.items()} == kinds
    assert not given["ids"].any() and len(np.unique(given["x"])) == 12


def test_each_layer_is_timed_with_what_follows_it() -> None:
    model, clock = small_net(2, "Tanh"), TellingClock()
    x = RNG.standard_normal((1, 3, 12, 10)).astype(np.float32)

    def run(way: RunNode) -> Any:
        def slowly(position: int, call: Any) -> Any:
            found = way(position, call)
            clock.now += 1.0 + position  # Conv 1, Tanh 2, Conv 3, Tanh 4
            return found

        return model.run(slowly, x)

    with cx.Runtime(devices="cpu:0"):
        found = time_layers(model.running, run, ["cpu:0"], clock, until=0.0)
    assert found.seconds == ((3.0, 7.0),) and found.calls == (2, 2) and found.call == 0.0


@pytest.mark.parametrize("cut", [True, False])
def test_a_planned_model_that_is_called_again_is_replayed(cut: bool) -> None:
    model = small_net()
    x = RNG.standard_normal((1, 3, 12, 10)).astype(np.float32)
    with cx.Runtime(platform="workstation", execute=True) as runtime:
        found = planner(model, ((0.01,) * 3, (0.01,) * 3), 1e-5 if cut else 1.0)
        way = planned(model.running, found.cuts(found.best().choices))
        results = [np.asarray(model.run(way, x)) for _ in range(6)]
        before = runtime._driver.scheduler.counts
        results += [np.asarray(model.run(way, x)) for _ in range(4)]
        after = runtime._driver.scheduler.counts
        np.testing.assert_allclose(results[-1], np.asarray(model(x)), rtol=1e-5, atol=1e-5)
    assert after.analysed == before.analysed
    assert after.replayed - before.replayed == 4 * 3  # three convolutions with their bounds, however they are cut


def test_the_best_device_of_each_kind_is_tried_alone_whatever_its_layers_took() -> None:
    model, clock, alone = small_net(), TellingClock(), []
    x = RNG.standard_normal((1, 3, 12, 10)).astype(np.float32)
    with cx.Runtime(platform="laptop", execute=True):
        seconds = [(0.02,) * 3, (0.01,) * 3, *[(0.02,) * 3] * 2, (0.03,) * 3]  # four cores and a GPU
        found = planner(model, tuple(seconds), 1.0, "laptop")

        def run(way: RunNode) -> Any:
            assert isinstance(way, PlannedRun)
            alone.append(way.alone)
            clock.now += 0.5 if way.alone == "gpu:0" else 1.0
            return model.run(way, x)

        plan = chosen_plan(found, run, clock, until=1e9)
    assert set(alone) == {"cpu:1", "gpu:0"}
    assert plan.seconds == pytest.approx(0.5)


def test_what_a_plan_tries_is_not_held_against_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials wait for every layer, and for every call: a program that did so would be told."""
    model, seen = small_net(), []
    monkeypatch.setattr(SchedulingPace, "waited", lambda self, *given, own: seen.append("a wait"))
    monkeypatch.setattr(SchedulingPace, "ran", lambda self, records: seen.append("a task"))
    with cx.Runtime("cpu:0,cpu:1", store="off", diagnostics="warn"):
        model.plan(budget=0.2)
        assert not seen
        np.asarray(model(*example_inputs(model.inputs).values()))
    assert "a task" in seen, "what the program does itself is looked at"
