"""What follows a convolution becomes part of it: a sum with another value, and bounds. One call instead of up to three.

Before: models/values.py, ops/convolve.py.  After: models/model.py.  For running only: graphs that are planned and saved stay.

A fused convolution has a fourth operand, which is added to its sums, and the attribute `bounds` (lowest, highest or None).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from .values import LayerGraph, OpNode

AXES = 2
"""Spatial axes of a convolution up to which coexec's own kernel computes it."""
BOUNDS = "bounds"
Bounds = tuple[float | None, float | None]


def fused(graph: LayerGraph) -> LayerGraph:
    """Return a graph that computes the same with fewer operations."""
    finder = Followers(graph)
    taken: dict[int, OpNode] = {}
    gone: set[int] = set()
    for position, node in enumerate(graph.operations):
        if finder.fusable(node):
            taken[position], followers = finder.followed(position, node)
            gone.update(followers)
    operations = tuple(taken.get(i, node) for i, node in enumerate(graph.operations) if i not in gone)
    return replace(graph, operations=operations)


class Followers:
    """Finds what follows convolutions in a graph."""

    def __init__(self, graph: LayerGraph) -> None:
        self.graph = graph
        self.readers: dict[str, int] = {}
        self.reads = Counter(name for node in graph.operations for name in node.inputs)
        self.reads.update(graph.outputs)
        self.made: dict[str, int] = {}
        for position, node in enumerate(graph.operations):
            self.readers.update(dict.fromkeys(node.inputs, position))
            self.made.update(dict.fromkeys(node.outputs, position))

    def fusable(self, node: OpNode) -> bool:
        """Tell whether an operation is a convolution that coexec's own kernel computes."""
        if node.kind != "Conv":
            return False
        shape, dtype = self.graph.types[node.outputs[0]]
        return len(shape) - 2 <= AXES and dtype in ("float32", "float64")

    def followed(self, position: int, conv: OpNode) -> tuple[OpNode, list[int]]:
        """Return a convolution with what follows it, and the positions of that."""
        result, other, gone = conv.outputs[0], "", []
        bounds: Bounds = (None, None)
        while self.reads[result] == 1 and result in self.readers and bounds == (None, None):
            at = self.readers[result]
            node = self.graph.operations[at]
            if node.kind == "Add" and not other and (added := self.other(node, result, position)):
                other = added
            elif (found := self._bounds(node, result)) is not None:
                bounds = found
            else:
                break
            gone.append(at)
            result = node.outputs[0]
        if not gone:
            return conv, []
        bias = conv.inputs[2] if len(conv.inputs) > 2 else ""
        inputs = (*conv.inputs[:2], bias, other) if other else conv.inputs
        attributes = {**conv.attributes, BOUNDS: bounds}
        return replace(conv, inputs=inputs, outputs=(result,), attributes=attributes), gone

    def other(self, node: OpNode, result: str, position: int) -> str:
        """Return the other operand of a sum if it has the same type and is there before the convolution; else ""."""
        other = node.inputs[1] if node.inputs[0] == result else node.inputs[0]
        same = self.graph.types[other] == self.graph.types[result] and other != result
        return other if same and self.made.get(other, -1) < position else ""

    def _bounds(self, node: OpNode, result: str) -> Bounds | None:
        """Return the bounds that an operation sets to a value; None if it does something else."""
        if node.kind == "Relu":
            return 0.0, None
        if node.kind != "Clip" or node.inputs[0] != result:
            return None
        limits: list[float | None] = []
        for at, name in ((1, "min"), (2, "max")):
            given: Any = node.attributes.get(name)
            if at < len(node.inputs) and node.inputs[at]:
                if node.inputs[at] not in self.graph.constants:
                    return None
                given = self.graph.constant(node.inputs[at]).reshape(-1)[0]
            limits.append(None if given is None else float(given))
        low, high = limits
        return None if any(limit is not None and limit != limit for limit in limits) else (low, high)  # noqa: PLR0124
