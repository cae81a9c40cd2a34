"""Graphs made smaller: normalisation that follows a convolution becomes part of it, and what nobody reads goes.

Before: models/values.py.  After: models/onnx_files.py.  Knows values of constants.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .values import LayerGraph, OpNode, ValueType


def without_dead_operations(graph: LayerGraph) -> LayerGraph:
    """Return a graph without operations and constants that no output needs."""
    wanted = set(graph.outputs)
    kept: list[OpNode] = []
    for node in reversed(graph.operations):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
            outputs = list(node.outputs)
            while len(outputs) > 1 and outputs[-1] not in wanted:
                outputs.pop()
            kept.append(replace(node, outputs=tuple(outputs)))
    made = {name for node in kept for name in node.outputs}
    types = {name: kind for name, kind in graph.types.items() if name in wanted or name in made or name in graph.inputs}
    constants = {name: value for name, value in graph.constants.items() if name in wanted}
    return replace(graph, operations=tuple(reversed(kept)), types=types, constants=constants)


def without_normalisation(graph: LayerGraph) -> LayerGraph:
    """Return a graph in which no convolution with constant weights is followed by a normalisation of its channels."""
    readers: dict[str, int] = {}
    for node in graph.operations:
        for name in node.inputs:
            readers[name] = readers.get(name, 0) + 1
    made = {name: node for node in graph.operations for name in node.outputs}
    constants, types = dict(graph.constants), dict(graph.types)
    replaced: dict[str, OpNode] = {}
    for node in graph.operations:
        before = made.get(node.inputs[0]) if node.inputs else None
        if before is None or not _foldable(graph, node, before, readers):
            continue
        operands = _folded(graph, node, before)
        names = (f"{node.name}.weight", f"{node.name}.bias")
        for name, value in zip(names, operands, strict=True):
            constants[name], types[name] = value, ValueType(value.shape, value.dtype.name)
        replaced[before.name] = replace(before, inputs=(before.inputs[0], *names), outputs=node.outputs[:1])
        replaced[node.name] = replaced[before.name]
    operations = [
        replaced.get(node.name, node) for node in graph.operations
        if not (node.kind == "BatchNormalization" and node.name in replaced)
    ]  # fmt: skip
    return replace(graph, operations=tuple(operations), constants=constants, types=types)


def _foldable(graph: LayerGraph, node: OpNode, before: OpNode, readers: dict[str, int]) -> bool:
    return (
        node.kind == "BatchNormalization"
        and before.kind == "Conv"
        and not node.attributes.get("training_mode")
        and all(not name for name in node.outputs[1:])
        and readers[node.inputs[0]] == 1
        and node.inputs[0] not in graph.outputs
        and all(name in graph.constants for name in (*node.inputs[1:], *before.inputs[1:]) if name)
        and len({graph.types[name].dtype for name in (*node.inputs[1:], *before.inputs[1:]) if name}) == 1
    )


def _folded(graph: LayerGraph, node: OpNode, before: OpNode) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return weights and bias of a convolution that does the normalisation as well."""
    scale, shift, mean, variance = (graph.constant(name).astype(np.float64) for name in node.inputs[1:5])
    weights = graph.constant(before.inputs[1])
    has_bias = len(before.inputs) > 2 and before.inputs[2]
    bias = graph.constant(before.inputs[2]).astype(np.float64) if has_bias else 0.0
    factor = scale / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
    shape = (-1, *(1,) * (weights.ndim - 1))
    return (
        (weights * factor.reshape(shape)).astype(weights.dtype),
        ((bias - mean) * factor + shift).astype(weights.dtype),
    )


def as_torch_resizes(graph: LayerGraph) -> LayerGraph:
    """Return a graph of torch's whose images are resized as torch does it: to whole sizes, with the corners on the corners.

    For scales that lead to no whole size, the standard's own implementation puts the last corner where the exact size ends. torch,
    which writes scales, and ONNX Runtime put it on the last pixel; with sizes instead of scales they all do.
    """
    constants, types, operations = dict(graph.constants), dict(graph.types), []
    for node in graph.operations:
        scales = graph.constants.get(node.inputs[2]) if node.kind == "Resize" and len(node.inputs) == 3 else None
        if scales is None or node.attributes.get("coordinate_transformation_mode") != "align_corners":
            operations.append(node)
            continue
        shape, name = graph.types[node.outputs[0]].shape, f"{node.outputs[0]}.sizes"
        axes = node.attributes.get("axes", range(len(shape)))
        sizes = np.array([shape[axis] for axis in axes], np.int64)
        constants[name], types[name] = sizes, ValueType(sizes.shape, "int64")
        operations.append(replace(node, inputs=(*node.inputs[:2], "", name)))
    return replace(graph, operations=tuple(operations), types=types, constants=constants)
