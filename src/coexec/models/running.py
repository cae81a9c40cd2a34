"""Run a graph of operations as ordinary coexec calls.

Before: models/operators/, models/values.py.  After: models/model.py, models/sharded.py.  Knows no plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..program import array as arrays
from ..program.array import Array
from .operators.calls import OpCall
from .operators.table import OPERATORS
from .values import LayerGraph, OpNode

RunNode = Callable[[int, OpCall], list[Array]]


class GraphConstants:
    """The constants of a graph as arrays of one runtime, made when they are asked for and then kept."""

    def __init__(self, graph: LayerGraph) -> None:
        self._graph = graph
        self.last_uses = _last_uses(graph)
        self._arrays: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            self._arrays[name] = arrays.asarray(self._graph.constant(name))
        return self._arrays[name]


def as_called(position: int, call: OpCall) -> list[Array]:
    """Run an operation as its operator says: coexec places and divides what it calls."""
    del position
    return list(OPERATORS[call.node.kind](call))


def run_graph(
    graph: LayerGraph, inputs: Mapping[str, Array], constants: GraphConstants, run: RunNode = as_called
) -> list[Array]:
    """Return the results of a graph, without waiting. Values that nobody reads any more are dropped on the way."""
    values: dict[str, Array] = dict(inputs)
    last = constants.last_uses
    with np.errstate(all="ignore"):  # models divide by zero and overflow on purpose, as in softmax with masks
        for position, node in enumerate(graph.operations):
            found = run(position, call_of(graph, node, values, constants))
            values.update((name, value) for name, value in zip(node.outputs, found, strict=False) if name)
            for name in last[position]:
                values.pop(name, None)
    return [values[name] if name in values else constants[name] for name in graph.outputs]


def call_of(graph: LayerGraph, node: OpNode, values: Mapping[str, Array], constants: GraphConstants) -> OpCall:
    """Return an operation with its operands."""

    def give(position: int) -> Array:
        name = node.inputs[position]
        return values[name] if name in values else constants[name]

    known = [graph.constants.get(name) if name else None for name in node.inputs]
    return OpCall(node, graph.opset, [graph.types[name] for name in node.outputs if name], known, give)


def _last_uses(graph: LayerGraph) -> list[list[str]]:
    """Return for each operation the values that it is the last to read."""
    last: dict[str, int] = {}
    for position, node in enumerate(graph.operations):
        last.update(dict.fromkeys(node.inputs, position))
    found: list[list[str]] = [[] for _ in graph.operations]
    for name, position in last.items():
        if name not in graph.outputs:
            found[position].append(name)
    return found


def own(values: list[Array], taken: Mapping[str, Any]) -> list[Array]:
    """Return results that share memory with no input, no constant and no other result."""
    seen = {id(value._storage) for value in taken.values()}
    found = []
    for value in values:
        shared = id(value._storage) in seen or value._storage.borrowed
        found.append(value.copy() if shared else value)
        seen.add(id(value._storage))
    return found
