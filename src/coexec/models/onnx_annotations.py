"""Plans of models as ONNX's own multi-device annotations, and back.

Before: models/onnx_writing.py, models/plan_tree.py.  After: cli/models.py, models/model.py.

Annotations say which devices hold which shard of each tensor, in equal shards. What they cannot say, uneven parts, partial
sums and rings, is in the metadata, as the plan itself; both must agree when a plan is read back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ModelError, PlanError
from ..plan.plan import Plan
from .extract import HEAVY
from .onnx_files import check_onnx, parse_onnx
from .onnx_types import needs
from .onnx_writing import save_onnx, to_onnx
from .plan_tree import cuts_of
from .sharded import LayerCut
from .sharding import BATCH, CIN, COLUMNS, COUT, KH, KW, ROWS, positions
from .values import LayerGraph, OpNode

if TYPE_CHECKING:
    from .model import Model

CONFIGURATION = "coexec"
METADATA = "coexec.plan"
"""The key of the metadata that holds the plan."""


class TensorCut(NamedTuple):
    """How a tensor lies on devices: per axis the number of shards, and for each shard the devices that hold it."""

    tensor: str
    shards: tuple[tuple[int, int], ...]  # axis, how many
    holders: tuple[tuple[int, ...], ...]  # numbers of devices, shard by shard, the last axis first


def annotated(model: Model, plan: Plan) -> Any:
    """Return the model as ONNX with annotations of a plan; raise PlanError if the plan is another model's."""
    onnx, graph = needs("onnx"), model.graph
    cuts = cuts_of(plan, model.layers)
    names = sorted({device for cut in cuts for device in cut.devices})
    proto = to_onnx(graph)
    proto.configuration.add(name=CONFIGURATION, num_devices=len(names), device=names)
    stages = [number for number, group in enumerate(plan.children) for _ in group.children]
    layer = -1
    for node, operation in zip(proto.graph.node, graph.operations, strict=True):
        if operation.kind not in HEAVY:
            continue
        layer += 1
        entry = node.device_configurations.add(configuration_id=CONFIGURATION, pipeline_stage=stages[layer])
        for tensor in tensor_cuts(graph, operation, cuts[layer], names):
            _write_spec(entry.sharding_spec.add(), tensor)
    onnx.helper.set_model_props(proto, {METADATA: json.dumps(plan.as_dict())})
    check_onnx(proto, f"{graph.name} with annotations")
    return proto


def save_annotated(model: Model, plan: Plan, path: str | Path) -> None:
    """Write the model with annotations of a plan."""
    save_onnx(annotated(model, plan), path)


def _write_spec(spec: Any, cut: TensorCut) -> None:
    spec.tensor_name = cut.tensor
    for axis, count in cut.shards:
        spec.sharded_dim.add(axis=axis).simple_sharding.add(num_shards=count)
    for number, holders in enumerate(cut.holders):
        if len(holders) == 1:
            spec.device.append(holders[0])
        else:  # a group of devices with the same shard has a negative number
            spec.device.append(-1 - number)
            spec.index_to_device_group_map.add(key=-1 - number, value=holders)


def tensor_cuts(graph: LayerGraph, node: OpNode, cut: LayerCut, names: Sequence[str]) -> Iterator[TensorCut]:
    """Yield how the operands and the result of a layer lie on devices, as far as axes of tensors are cut."""
    for tensor, dims in tensor_axes(graph, node):
        shards = tuple((axis, len(cut.sizes[dim])) for axis, dim in dims if len(cut.sizes[dim]) > 1)
        holders: dict[tuple[int, ...], list[int]] = {}
        for device, at in zip(cut.devices, positions(cut.sharding.factors), strict=True):
            key = tuple(at[dim] for _, dim in dims if len(cut.sizes[dim]) > 1)
            holders.setdefault(key, []).append(names.index(device))
        yield TensorCut(tensor, shards, tuple(tuple(holders[key]) for key in sorted(holders)))


def tensor_axes(graph: LayerGraph, node: OpNode) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return for each tensor of a layer which of its axes are which loop dimensions."""
    out = node.outputs[0]
    rank = len(graph.types[out].shape)
    if node.kind == "Conv":
        grouped = int(node.attributes.get("group", 1)) > 1
        space = [ROWS, COLUMNS][: rank - 2]
        taps = [KH, KW][: rank - 2]
        return [
            (node.inputs[0], list(enumerate([BATCH, COUT if grouped else CIN, *space]))),
            (node.inputs[1], list(enumerate([COUT, CIN, *taps]))),
            (out, list(enumerate([BATCH, COUT, *space]))),
        ]
    if node.kind == "Gemm":
        left = [(1, ROWS), (0, CIN)] if node.attributes.get("transA") else [(0, ROWS), (1, CIN)]
        right = [(1, CIN), (0, COUT)] if node.attributes.get("transB") else [(0, CIN), (1, COUT)]
        return [(node.inputs[0], sorted(left)), (node.inputs[1], sorted(right)), (out, [(0, ROWS), (1, COUT)])]
    if node.kind == "MatMul" and len(graph.types[node.inputs[1]].shape) == 2 and rank == 2:
        return [
            (node.inputs[0], [(0, ROWS), (1, CIN)]),
            (node.inputs[1], [(0, CIN), (1, COUT)]),
            (out, [(0, ROWS), (1, COUT)]),
        ]
    return []  # heads and flattened rows are no axes of a tensor; the metadata has them


# Back -----------------------------------------------------------------------------------------------------------------------


def read_annotations(path: str | Path, model: Model) -> Plan:
    """Return the plan that an annotated file holds; raise if it has none, or if annotations and metadata disagree."""
    proto = parse_onnx(Path(path))
    given = {entry.key: entry.value for entry in proto.metadata_props}
    if METADATA not in given:
        raise ModelError(f"{path} holds no plan of coexec's; write one with coexec plan --annotate")
    try:
        plan = Plan.from_dict(json.loads(given[METADATA]))
    except ValueError as error:
        raise PlanError(f"{path}: its plan cannot be read: {error}") from error
    check_annotations(proto, model, plan)
    return plan


def check_annotations(proto: Any, model: Model, plan: Plan) -> None:
    """Raise PlanError unless the annotations of a file say what its plan says: devices, tensors, axes, shards."""
    cuts = cuts_of(plan, model.layers)
    names = sorted({device for cut in cuts for device in cut.devices})
    configured = [c for c in proto.configuration if c.name == CONFIGURATION]
    if not configured or list(configured[0].device) != names or configured[0].num_devices != len(names):
        raise PlanError(
            f"the annotations name other devices than the plan ({', '.join(names)}); annotate the model anew"
        )
    tensors = {name for node in proto.graph.node for name in (*node.input, *node.output)}
    layer = -1
    for node, operation in zip(proto.graph.node, model.graph.operations, strict=True):
        if operation.kind not in HEAVY:
            continue
        layer += 1
        found = [_read_spec(spec) for entry in node.device_configurations for spec in entry.sharding_spec]
        if lost := [cut.tensor for cut in found if cut.tensor not in tensors]:
            raise PlanError(f"the annotations of {operation.name!r} name the tensor {lost[0]!r}, which does not exist")
        expected = list(tensor_cuts(model.graph, operation, cuts[layer], names))
        if found != expected:
            raise PlanError(
                f"the annotations of {operation.name!r} differ from the plan in the same file: {_differing(found, expected)}"
            )


def _read_spec(spec: Any) -> TensorCut:
    groups = {entry.key: tuple(entry.value) for entry in spec.index_to_device_group_map}
    shards = tuple((d.axis, d.simple_sharding[0].num_shards) for d in spec.sharded_dim if d.simple_sharding)
    return TensorCut(spec.tensor_name, shards, tuple(groups.get(number, (number,)) for number in spec.device))


def _differing(found: Sequence[TensorCut], expected: Sequence[TensorCut]) -> str:
    for one, other in zip(found, expected, strict=False):
        if one != other:
            return f"{one.tensor!r} is cut {dict(one.shards)}, the plan says {dict(other.shards)} of {other.tensor!r}"
    return f"{len(found)} tensors are annotated, the plan has {len(expected)}"
