"""Products with weights that are known become one operation with what follows them: for models that are one call.

Before: models/fusing.py, models/operators/linear.py.  After: models/whole.py.  Graphs that are planned and cut stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from .fusing import Followers
from .operators.linear import LINEAR, AfterProduct
from .values import LayerGraph, OpNode

TYPES = ("float32", "float64")


def joined(graph: LayerGraph) -> LayerGraph:
    """Return a graph that computes the same with fewer operations."""
    finder = _Products(graph)
    taken: dict[int, OpNode] = {}
    gone: set[int] = set()
    for position, node in enumerate(graph.operations):
        if position not in gone and (found := finder.product(node)) is not None:
            taken[position], followers = finder.followed_product(position, node, found)
            gone.update(followers)
    operations = tuple(taken.get(i, node) for i, node in enumerate(graph.operations) if i not in gone)
    return replace(graph, operations=operations)


class _Products(Followers):
    """Finds what follows products in a graph."""

    def product(self, node: OpNode) -> AfterProduct | None:
        """Return what is known of a product by weights: how they lie, and whether there is a bias; None for everything else."""
        if node.kind not in ("MatMul", "Gemm") or self.graph.types[node.outputs[0]].dtype not in TYPES:
            return None
        left, right = (self.graph.types[name] for name in node.inputs[:2])
        known = node.inputs[1] in self.graph.constants and len(right.shape) == 2 and len(left.shape) >= 2
        if not known or node.inputs[0] in self.graph.constants:
            return None
        if node.kind == "MatMul":
            return AfterProduct()
        given = node.attributes
        scaled = given.get("alpha", 1.0) != 1.0 or given.get("beta", 1.0) != 1.0 or given.get("transA", 0)
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        if scaled or (bias and not self._is_bias(bias, self.graph.types[node.outputs[0]].shape[-1])):
            return None
        return AfterProduct(transposed=bool(given.get("transB", 0)), biased=bool(bias))

    def _is_bias(self, name: str, width: int) -> bool:
        return name in self.graph.constants and self.graph.types[name].shape == (width,)

    def followed_product(self, position: int, node: OpNode, after: AfterProduct) -> tuple[OpNode, list[int]]:
        """Return a product with what follows it, and the positions of that."""
        result, gone = node.outputs[0], []
        inputs = [name for name in node.inputs if name]
        width, dtype = self.graph.types[result].shape[-1], self.graph.types[result].dtype
        while self.reads[result] == 1 and result in self.readers and not after.activation:
            at = self.readers[result]
            follower = self.graph.operations[at]
            other = next((name for name in follower.inputs if name != result), "")
            same = bool(other) and self.graph.types[other].dtype == dtype and len(follower.inputs) == 2
            if follower.kind == "Add" and same and not after.biased and not after.added and self._is_bias(other, width):
                after, inputs = after._replace(biased=True), [*inputs, other]
            elif follower.kind == "Add" and same and not after.added and self.other(follower, result, position):
                after, inputs = after._replace(added=True), [*inputs, other]
            elif follower.kind == "Relu":
                after = after._replace(activation="relu")
            elif follower.kind == "Gelu":
                near = follower.attributes.get("approximate", "none") == "tanh"
                after = after._replace(activation="gelu tanh" if near else "gelu")
            else:
                break
            gone.append(at)
            result = follower.outputs[0]
        return OpNode(LINEAR, node.name, tuple(inputs), (result,), {"after": after}), gone
