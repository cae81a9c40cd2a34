"""Plans of whole layers on unlike engines: branches side by side, never worse than H2H, and runnable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import PlanError
from coexec.models.building import NetBuilder
from coexec.models.fabric import fabric
from coexec.models.multimodal import casia_surf_layers
from coexec.models.queue_plans import fabric_costs, h2h_seconds, unlike_engines, with_branches
from coexec.plan.plan import Plan


@pytest.fixture(scope="module")
def surf() -> cx.Model:
    return cx.Model.named("casia_surf", image=16)


@pytest.fixture(scope="module")
def plan(surf: cx.Model) -> Plan:
    return surf.plan("h2h", budget="20min", baselines=["single", "cp"])


def devices(plan: Plan) -> dict[str, str]:
    return {layer.name: layer.parts[0].device for group in plan.children for layer in group.children}


def test_only_unlike_engines_are_mapped_layer_by_layer() -> None:
    assert unlike_engines(fabric(cx.Platform.load("h2h")))
    assert not unlike_engines(fabric(cx.Platform.load("f1.16xlarge")))


def test_branches_of_a_graph_are_those_of_the_published_list(surf: cx.Model) -> None:
    listed = casia_surf_layers()
    found = with_branches(cx.Model(surf.graph).layers)
    assert [layer.after for layer in found.layers] == [layer.after for layer in listed.layers]

    def chains(workload: object) -> list[int]:
        return [layer.branch for layer in with_branches(workload).layers]  # type: ignore[arg-type]

    assert len(set(chains(found))) == len(set(chains(listed))) == 3
    for one, other in zip(chains(found), chains(listed), strict=True):
        assert chains(found).count(one) == chains(listed).count(other)


def test_a_plan_is_never_worse_than_what_it_is_compared_with(plan: Plan) -> None:
    assert set(plan.considered) == {"h2h", "cp", "single"}
    assert plan.seconds is not None and plan.seconds <= min(plan.considered.values()) * (1 + 1e-12)
    assert plan.limit_s is not None and plan.limit_s <= plan.seconds
    assert Plan.from_dict(plan.as_dict()) == plan


def test_parts_say_when_they_end_since_the_model_began(plan: Plan) -> None:
    ends = [part.finish_s for group in plan.children for layer in group.children for part in layer.parts]
    assert all(end is not None for end in ends)
    assert max(end for end in ends if end is not None) == pytest.approx(plan.latency)


def test_branches_run_side_by_side_and_give_the_same(surf: cx.Model, plan: Plan, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {n: rng.standard_normal(t.shape).astype(t.dtype) for n, t in surf.inputs.items()}
    used = set(devices(plan).values())
    assert len(used) > 1
    path = tmp_path / "run.json"
    with cx.Runtime(platform="h2h", execute=True, trace=path):
        found = np.asarray(surf(**inputs, plan=plan))
    with cx.Runtime(devices="cpu:0"):
        whole = np.asarray(surf(**inputs))
    np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(whole).max())))
    ran = [row for row in cx.Trace.load(path).work if row["kind"] == "kernel" and row["name"].startswith("conv2d")]
    assert {row["device"] for row in ran} == used and len(ran) == len(surf.layers.layers)
    first = {device: min(row["start"] for row in ran if row["device"] == device) for device in used}
    last = {device: max(row["stop"] for row in ran if row["device"] == device) for device in used}
    assert any(first[one] < last[other] and first[other] < last[one] for one in used for other in used if one != other)


def test_h2h_refuses_more_free_layers_than_it_can_look_at() -> None:
    net = NetBuilder("wide")
    x = net.input("x", (1, 2, 4, 4))
    model = cx.Model(net.done(net.concat([net.conv(x, 2, 1) for _ in range(9)], 1)))
    with pytest.raises(PlanError, match="9 layers of wide can begin at once"):
        h2h_seconds(model.layers, fabric(cx.Platform.load("h2h")))


def test_costs_of_a_platform_are_its_engines_and_links(surf: cx.Model) -> None:
    found = fabric(cx.Platform.load("h2h"))
    costs = fabric_costs(surf.layers, found)
    layer = surf.layers.layers[0]
    way = max(found.host)
    assert costs.output[0] == pytest.approx(layer.output_elements * 4 * way.per_byte + way.latency)
    assert costs.input[0] == pytest.approx(layer.input_elements * 4 * way.per_byte + way.latency)
    assert costs.rest[0] == 0.0
    assert np.isinf(costs.compute[0, costs.names.index("fc_10")])
