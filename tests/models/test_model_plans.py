"""Plans of models: one tree of plain data, never worse than its seeds, refused for what they are not made for, and run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ConfigError, DoesNotFit, PlanError, UnknownName
from coexec.machine.platform import HOST, Device, Platform
from coexec.models.building import NetBuilder
from coexec.models.deploying import planned
from coexec.models.fabric import fabric
from coexec.models.plan_tree import check_platform, cuts_of
from coexec.models.searching import ModelSearch, SearchProgress, budget_seconds, search_plan
from coexec.models.sharded import LayerCut, even_sizes
from coexec.models.sharding import Sharding, volumes
from coexec.models.uneven import balanced
from coexec.plan.plan import Plan

RNG = np.random.default_rng(2)


def small_net() -> cx.Model:
    """Return a network with a branch, a pool, and a classifier."""
    net = NetBuilder("small")
    x = net.input("x", (2, 3, 17, 13))
    x = net.same("Relu", net.conv(x, 8, 3, 2))
    y = net.conv(net.same("Relu", net.conv(x, 8, 3)), 8, 1)
    x = net.pool(net.same("Add", x, y), 2, 2)
    return cx.Model(net.done(net.fc(net.flatten(net.conv(x, 6, 3, groups=2)), 5)))


@pytest.fixture(scope="module")
def f1_plan() -> Plan:
    found: Plan = small_net().plan("f1.16xlarge", budget="20min")
    return found


def test_a_plan_is_a_tree_that_a_file_keeps(f1_plan: Plan, tmp_path: Path) -> None:
    f1_plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == f1_plan
    layers = [layer for group in f1_plan.children for layer in group.children]
    assert [layer.kind for layer in layers] == ["layer"] * 5
    assert all(sum(part.share for part in layer.parts) == pytest.approx(1.0) for layer in layers)
    assert f1_plan.explain().count("\n") == len(layers) + len(f1_plan.children)


def test_the_same_search_finds_the_same_plan(f1_plan: Plan) -> None:
    assert small_net().plan("f1.16xlarge", budget="20min") == f1_plan


def test_a_plan_is_never_worse_than_what_it_is_compared_with(f1_plan: Plan) -> None:
    assert f1_plan.seconds is not None and f1_plan.limit_seconds is not None
    assert set(f1_plan.considered) == {"cp", "all", "single", "equal"}
    assert all(f1_plan.seconds <= seconds for seconds in f1_plan.considered.values())
    assert f1_plan.limit_seconds <= f1_plan.seconds * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["throughput", "energy"])
def test_other_objectives_are_planned_in_the_same_type(f1_plan: Plan, objective: str) -> None:
    plan = small_net().plan("f1.16xlarge", objective, "20min")
    assert plan.objective == objective and plan.joules is not None and f1_plan.joules is not None
    if objective == "energy":
        assert plan.joules <= f1_plan.joules
    else:
        assert plan.seconds is not None and plan.seconds <= (f1_plan.latency_s or 0.0)


def test_progress_is_told_and_a_budget_that_ends_keeps_the_best_so_far() -> None:
    seen: list[SearchProgress] = []
    ticks = iter(range(10_000))
    model, platform = small_net(), fabric(cx.Platform.load("f1.16xlarge"))
    search = ModelSearch(model.layers, platform, "latency", 8.0, seen.append, lambda: float(next(ticks)))
    plan = search.run(("cp", "all"))
    assert [told.what for told in seen] == ["cp", "all"]
    assert "the budget ended" in plan.why
    assert plan.seconds == min(plan.considered.values())
    assert plan.limit_seconds is not None and plan.limit_seconds <= (plan.seconds or 0.0)


@pytest.mark.parametrize("text", ["", "soon", "-3s", "0", True])
def test_a_budget_that_is_no_time_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError, match="is no time"):
        budget_seconds(text)
    assert (budget_seconds("500ms"), budget_seconds("2min"), budget_seconds(3)) == (0.5, 120.0, 3.0)


def test_what_cannot_be_planned_is_said() -> None:
    model = small_net()
    with pytest.raises(UnknownName, match="objective 'speed'"):
        model.plan("f1.16xlarge", "speed")
    with pytest.raises(UnknownName, match="baseline 'h3h'"):
        model.plan("f1.16xlarge", baselines=["h3h"])
    empty = NetBuilder("empty")
    relu = cx.Model(empty.done(empty.same("Relu", empty.input("x", (3,)))))
    with pytest.raises(PlanError, match="no layer with sums"):
        relu.plan("f1.16xlarge", budget="20min")
    with pytest.raises(DoesNotFit, match="largest layer is"):
        net = NetBuilder("vast")
        vast = cx.Model(net.done(net.fc(net.input("x", (1, 100_000)), 100_000)))
        vast.plan("f1.16xlarge", budget="20min")


def test_a_plan_says_how_long_designs_are_loaded_and_its_latency_is_without_that(f1_plan: Plan) -> None:
    assert f1_plan.why.endswith("; designs are loaded once before, in 2 s")
    assert f1_plan.latency is not None and f1_plan.latency < 2.0


def test_a_model_of_nothing_is_not_planned() -> None:
    net = NetBuilder("nothing")
    empty = cx.Model(net.done(net.conv(net.input("x", (0, 3, 8, 8)), 4, 3)))
    with pytest.raises(PlanError, match=r"layer 'conv1' of nothing has no elements \(batch 0,"):
        empty.plan("f1.16xlarge")
    with pytest.raises(PlanError, match="no elements"):
        empty.front("f1.16xlarge")


def test_a_plan_for_another_model_or_platform_is_refused(f1_plan: Plan) -> None:
    other = cx.Model.named("encoder", length=4, width=8, blocks=1, heads=2)
    with pytest.raises(PlanError, match="for another model than encoder"):
        other(np.zeros((1, 4, 8), np.float32), plan=f1_plan)
    with pytest.raises(PlanError, match="another platform"):
        check_platform(f1_plan, small_net().layers, [fabric(cx.Platform.load("a100x4"))])
    x = np.zeros((2, 3, 17, 13), np.float32)
    for_gpus = small_net().plan("a100x4", budget="20min", baselines=())
    with cx.Runtime(platform="mi210x8", execute=True), pytest.raises(PlanError, match="another platform"):
        small_net()(x, plan=for_gpus)  # devices of the same names
    with cx.Runtime(devices="cpu:0,cpu:1"), pytest.raises(PlanError, match="the plan uses fpga:"):
        small_net()(np.zeros((2, 3, 17, 13), np.float32), plan=f1_plan)


def test_a_damaged_plan_is_refused(f1_plan: Plan) -> None:
    group = f1_plan.children[0]
    layer = replace(group.children[0], cuts={"rows": (1, 2)})
    wrong = replace(f1_plan, children=(replace(group, children=(layer, *group.children[1:])), *f1_plan.children[1:]))
    with pytest.raises(PlanError, match="does not fit it"):
        cuts_of(wrong, small_net().layers)
    turning = replace(group.children[0], rotates="sails by wind")
    wrong = replace(f1_plan, children=(replace(group, children=(turning, *group.children[1:])), *f1_plan.children[1:]))
    with pytest.raises(PlanError, match="nothing that goes around a ring"):
        cuts_of(wrong, small_net().layers)


def test_a_front_is_plans_of_which_none_is_better_than_another() -> None:
    model = small_net()
    found = model.front("f1.16xlarge")
    assert found and all(plan.children for plan in found)
    for one in found:
        values = (one.latency_s, max(group.seconds or 0.0 for group in one.children), one.joules)
        others = [(o.latency_s, max(g.seconds or 0.0 for g in o.children), o.joules) for o in found if o is not one]
        assert not any(all(a <= b for a, b in zip(other, values, strict=True)) for other in others)  # type: ignore[operator]
    assert found[0].latency_s == pytest.approx(model.plan("f1.16xlarge", budget="20min").seconds)
    assert [plan.latency_s for plan in found] == sorted(plan.latency_s or 0.0 for plan in found)


# Running --------------------------------------------------------------------------------------------------------------------


def check_planned(model: cx.Model, plan: Plan) -> None:
    inputs: dict[str, Any] = {n: RNG.standard_normal(t.shape).astype(t.dtype) for n, t in model.inputs.items()}
    whole = np.asarray(model(**inputs))
    found = np.asarray(model(**inputs, plan=plan))
    np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(whole).max())))


def test_a_plan_for_the_devices_here_runs_and_changes_nothing() -> None:
    with cx.Runtime(devices="cpu:0,cpu:1"):
        model = small_net()
        plan = model.plan(budget="20min")
        assert {part.device for group in plan.children for layer in group.children for part in layer.parts} <= {
            "cpu:0",
            "cpu:1",
        }
        check_planned(model, plan)


@pytest.mark.parametrize("name", ["small", "encoder"])
def test_a_plan_for_accelerators_runs_on_them_simulated(name: str) -> None:
    model = small_net() if name == "small" else cx.Model.named("encoder", length=8, width=16, blocks=1, heads=4)
    plan = model.plan("a100x4", budget="20min")
    with cx.Runtime(platform="a100x4", execute=True):
        check_planned(model, plan)


def test_every_layer_cut_by_force_gives_the_same() -> None:
    """A plan of unlike shardings, uneven parts among them, run on devices with memories of their own."""
    model = small_net()
    devices = tuple(f"gpu:{i}" for i in range(4))
    cuts = []
    for layer, factors in zip(model.layers.layers, ((1, 1, 1, 4, 1, 1, 1), (1, 2, 2, 1, 1, 1, 1), (2, 1, 1, 1, 2, 1, 1),
                                                    (1, 2, 1, 2, 1, 1, 1), (1, 1, 4, 1, 1, 1, 1)), strict=True):  # fmt: skip
        sharding = Sharding(factors)
        cuts.append(LayerCut(layer, sharding, devices, even_sizes(layer, sharding)))
    rows = cuts[0].layer.loops.rows
    cuts[0] = cuts[0]._replace(sizes=(*cuts[0].sizes[:3], (1, 0, 3, rows - 4), *cuts[0].sizes[4:]))
    x = RNG.standard_normal((2, 3, 17, 13)).astype(np.float32)
    with cx.Runtime(platform="a100x4", execute=True):
        whole = np.asarray(model(x))
        found = np.asarray(model.run(planned(model.running, cuts), x))
    np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-4)


def copied(model: cx.Model, factors: tuple[int, ...], tmp_path: Path) -> tuple[int, int]:
    """Return the bytes that go to two GPUs while a model runs with one sharding for all layers: from each other, from the host."""
    path = tmp_path / "run.json"
    sharding = Sharding(factors)  # type: ignore[arg-type]
    both = ("gpu:0", "gpu:1")
    cuts = [LayerCut(layer, sharding, both, even_sizes(layer, sharding)) for layer in model.layers.layers]
    x = RNG.standard_normal(model.inputs["x"].shape).astype(np.float32)
    with cx.Runtime(platform="a100x4", execute=True, trace=path):
        kept = model.run(planned(model.running, cuts), x)
        cx.wait()
        del kept
    trace = cx.Trace.load(path)
    copies = [(trace.way(row).count("gpu"), trace.nbytes(row)) for row in trace.work if row["kind"] == "copy"]
    return sum(size for gpus, size in copies if gpus == 2), sum(size for gpus, size in copies if gpus == 1)


def test_bytes_between_accelerators_are_what_the_sharding_says(tmp_path: Path) -> None:
    net = NetBuilder("two")
    x = net.input("x", (1, 4, 12, 12))
    model = cx.Model(net.done(net.conv(net.conv(x, 6, 3), 6, 3)))
    first, second = model.layers.layers
    rows: Any = (1, 1, 1, 2, 1, 1, 1)
    # The halo of the part with two neighbours is that of one boundary in both directions; weights are held twice.
    halos = [volumes(layer, Sharding(rows)).halo for layer in (first, second)]
    given = first.input_elements + halos[0] + 2 * (first.stored + second.stored)
    assert copied(model, rows, tmp_path) == (4 * halos[1], 4 * given)
    channels: Any = (1, 2, 1, 1, 1, 1, 1)
    # Of the second layer's input, each has one half and needs the other; the model's own input is held twice.
    given = 2 * first.input_elements + first.stored + second.stored
    assert copied(model, channels, tmp_path) == (4 * second.input_elements, 4 * given)
    sums: Any = (1, 1, 2, 1, 1, 1, 1)
    # Each has half of the channels; it receives the other's half of the sums it adds up, in both layers.
    added = first.output_elements + second.output_elements
    assert copied(model, sums, tmp_path)[0] >= 4 * added


# Fair parts -----------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 3)), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_fair_parts_finish_as_early_as_any(total: int, speeds: list[tuple[float, float]]) -> None:
    def seconds(index: int) -> Any:
        per_row, launch = speeds[index]
        return lambda n: launch + per_row * n if n else 0.0

    functions = [seconds(i) for i in range(len(speeds))]
    counts = balanced(total, functions)
    assert sum(counts) == total
    finish = max(f(n) for f, n in zip(functions, counts, strict=True))
    for giver in range(len(counts)):  # no move of rows from one to another helps
        for taker in range(len(counts)):
            moved = list(counts)
            for _ in range(counts[giver]):
                moved[giver], moved[taker] = moved[giver] - 1, moved[taker] + 1
                assert max(f(n) for f, n in zip(functions, moved, strict=True)) >= finish - 1e-9 or giver == taker


def test_unlike_accelerators_get_parts_by_their_speed() -> None:
    net = NetBuilder("one")
    model = cx.Model(net.done(net.conv(net.input("x", (1, 16, 40, 40)), 16, 3)))
    devices = tuple(Device(name, "cpu", HOST, flops=rate) for name, rate in (("a", 3e9), ("b", 1e9)))
    plan = search_plan(model.layers, fabric(Platform(devices, name="unlike"), every=True))
    shares = {part.device: part.share for part in plan.children[0].children[0].parts}
    assert shares == pytest.approx({"a": 0.75, "b": 0.25}, abs=0.03)
    assert plan.seconds == pytest.approx(2 * model.macs / 4e9, rel=0.05)
