"""Plans as ONNX's multi-device annotations: the checker accepts them, and the same plan is read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

import coexec as cx
from coexec.errors import ModelError, PlanError
from coexec.models.building import NetBuilder
from coexec.models.onnx_annotations import annotated, read_annotations, save_annotated
from coexec.plan.plan import Plan


def wide_net() -> cx.Model:
    """Return a network that is worth several accelerators."""
    net = NetBuilder("wide")
    x = net.input("x", (1, 16, 64, 64))
    x = net.same("Relu", net.conv(net.same("Relu", net.conv(x, 64, 3)), 64, 3))
    return cx.Model(net.done(net.fc(net.flatten(net.global_pool(net.conv(x, 64, 3, 2))), 5)))


@pytest.fixture(scope="module")
def plan() -> Plan:
    found: Plan = wide_net().plan("f1.16xlarge", budget="20min")
    return found


def test_the_checker_accepts_annotations_and_the_same_plan_comes_back(plan: Plan, tmp_path: Path) -> None:
    model, path = wide_net(), tmp_path / "net.onnx"
    save_annotated(model, plan, path)
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    assert proto.ir_version >= 11
    assert proto.configuration[0].num_devices == len(proto.configuration[0].device) > 1
    assert read_annotations(path, model) == plan
    assert read_annotations(path, cx.Model.from_onnx(path)) == plan


def test_shards_are_counted_along_the_axes_of_tensors(plan: Plan) -> None:
    model = wide_net()
    layer = next(layer for group in plan.children for layer in group.children if layer.cuts)
    node = next(node for node in annotated(model, plan).graph.node if node.name == layer.name)
    spec = next(s for s in node.device_configurations[0].sharding_spec if s.tensor_name == node.output[0])
    axes = {"batch": 0, "cout": 1, "rows": 2, "columns": 3}
    expected = {axes[dim]: len(sizes) for dim, sizes in layer.cuts.items() if dim in axes}
    assert {dim.axis: dim.simple_sharding[0].num_shards for dim in spec.sharded_dim} == expected


def test_uneven_parts_survive(plan: Plan, tmp_path: Path) -> None:
    group = plan.children[0]
    index, layer = next((i, layer) for i, layer in enumerate(group.children) if layer.cuts)
    dim, sizes = next(iter(layer.cuts.items()))
    uneven = replace(layer, cuts={**layer.cuts, dim: (sizes[0] - 1, *sizes[1:-1], sizes[-1] + 1)})
    children = (*group.children[:index], uneven, *group.children[index + 1 :])
    changed = replace(plan, children=(replace(group, children=children), *plan.children[1:]))
    save_annotated(wide_net(), changed, tmp_path / "net.onnx")
    assert read_annotations(tmp_path / "net.onnx", wide_net()) == changed


@pytest.mark.parametrize("what", ["axis", "shards", "tensor", "device", "none"])
def test_annotations_that_contradict_the_plan_are_refused(plan: Plan, tmp_path: Path, what: str) -> None:
    model, path = wide_net(), tmp_path / "net.onnx"
    proto = annotated(model, plan)
    spec = next(
        s for node in proto.graph.node for c in node.device_configurations for s in c.sharding_spec if s.sharded_dim
    )
    if what == "axis":
        spec.sharded_dim[0].axis = (spec.sharded_dim[0].axis + 1) % 4
    elif what == "shards":
        spec.sharded_dim[0].simple_sharding[0].num_shards += 1
    elif what == "tensor":
        spec.tensor_name = "elsewhere"
    elif what == "device":
        proto.configuration[0].device[0] = "toaster:0"
    else:
        del proto.metadata_props[:]
    path.write_bytes(proto.SerializeToString())
    with pytest.raises((PlanError, ModelError), match=r"annotat|no plan|elsewhere"):
        read_annotations(path, model)
