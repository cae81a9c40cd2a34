"""From operations to layers: the loop nests of a graph, what each reads, and what is alive between two of them.

Before: models/values.py.  After: models/loops.py.  Knows operations by name, no values.

Operations without sums (activations, pools, additions, changes of shape) belong to the layer with sums that comes last
before them: they run where that one runs. What crosses from one layer's operations to a later layer's is alive between.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from .loops import CONV, FC, LSTM, Alive, Loops, WorkLayer, Workload
from .values import LayerGraph, OpNode, ValueType

HEAVY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU"})
"""Operations whose work is counted."""
GATES = {"LSTM": 4, "GRU": 3}


def workload(graph: LayerGraph) -> Workload:
    """Return the layers of a graph, in its order."""
    heavy = [i for i, operation in enumerate(graph.operations) if operation.kind in HEAVY]
    group = layer_numbers(graph)
    made = {name: group[i] for i, operation in enumerate(graph.operations) for name in operation.outputs}
    reach = _reach(graph)
    layers = tuple(
        _layer(graph, graph.operations[i], tuple(sorted({j for n in graph.operations[i].inputs for j in reach[n]})))
        for i in heavy
    )
    return Workload(graph.name, layers, _alive(graph, made, group, len(heavy)), graph.notes)


def layer_numbers(graph: LayerGraph) -> list[int]:
    """Return for each operation the layer that it belongs to; what comes before the first belongs to that."""
    heavy = accumulate(operation.kind in HEAVY for operation in graph.operations)
    return [max(count - 1, 0) for count in heavy]


def _reach(graph: LayerGraph) -> dict[str, frozenset[int]]:
    """Return for each value the layers whose results it is made of, without another layer between."""
    reach: dict[str, frozenset[int]] = {name: frozenset() for name in (*graph.inputs, *graph.constants, "")}
    count = 0
    for operation in graph.operations:
        if operation.kind in HEAVY:
            found, count = frozenset({count}), count + 1
        else:
            found = frozenset().union(*(reach[name] for name in operation.inputs))
        reach.update(dict.fromkeys(operation.outputs, found))
    return reach


def _alive(graph: LayerGraph, made: dict[str, int], group: Sequence[int], layers: int) -> tuple[tuple[Alive, ...], ...]:
    """Return what crosses each cut. Within its group, an operation with sums comes first; what others read is `later`."""
    left: dict[str, set[int]] = {}
    right: dict[str, set[int]] = {}
    other: dict[str, set[int]] = {name: {layers} for name in graph.outputs}
    for i, operation in enumerate(graph.operations):
        heavy = operation.kind in HEAVY
        for position, name in enumerate(operation.inputs):
            if name and name not in graph.constants:
                use = other if not heavy else left if not position else right
                use.setdefault(name, set()).add(group[i])
    cuts: list[list[Alive]] = [[] for _ in range(layers + 1)]
    for name in dict.fromkeys([*graph.inputs, *made]):
        reads, besides, others = (use.get(name, set()) for use in (left, right, other))
        begin, every = made.get(name, -1), reads | besides | others
        for cut in range(begin + 1, max(every, default=begin) + 1):
            later = cut in others or any(end > cut for end in every)
            cuts[cut].append(Alive(four(graph.types[name]), cut in reads, cut in besides, later))
    return tuple(map(tuple, cuts))


def four(type: ValueType) -> tuple[int, int, int, int]:
    """Return a shape as (batch, channels, rows, columns): images as they are, sequences as rows of channels."""
    shape = type.shape
    match len(shape):
        case 0:
            return 1, 1, 1, 1
        case 1:
            return 1, shape[0], 1, 1
        case 2:
            return 1, shape[1], shape[0], 1
        case 3:
            return shape[0], shape[2], shape[1], 1
        case 4:
            return shape[0], shape[1], shape[2], shape[3]
        case _:
            return shape[0], shape[1], shape[2], prod(shape[3:])


def _layer(graph: LayerGraph, operation: OpNode, after: tuple[int, ...]) -> WorkLayer:
    types = [graph.types[name] if name else None for name in operation.inputs]
    out = graph.types[operation.outputs[0]].shape if operation.outputs[0] else ()
    read, weights = types[0], types[1]
    assert read is not None and weights is not None, "an operation with sums has two operands"
    stored = sum(graph.types[name].elements for name in operation.inputs[1:2] if name in graph.constants)
    match operation.kind:
        case "Conv":
            return _conv(operation, read.shape, weights.shape, out, stored, after)
        case "ConvTranspose":
            return _transposed(operation, read.shape, weights.shape, out, stored, after)
        case "Gemm" | "MatMul":
            return _product(graph, operation, out, after)
        case _:
            return _recurrent(operation, read.shape, types, after)


def _conv(
    operation: OpNode,
    read: tuple[int, ...],
    taps: tuple[int, ...],
    out: tuple[int, ...],
    stored: int,
    after: tuple[int, ...],
) -> WorkLayer:
    strides = tuple(operation.attributes.get("strides", ())) or (1,) * (len(read) - 2)
    rows, columns = _two(out[2:])
    loops = Loops(out[0], out[1], taps[1], rows, columns, *_two(taps[2:]))
    group = int(operation.attributes.get("group", 1))
    return WorkLayer(operation.name, CONV, loops, after, _two(strides), group, _two(read[2:]), stored)


def _transposed(
    operation: OpNode,
    read: tuple[int, ...],
    taps: tuple[int, ...],
    out: tuple[int, ...],
    stored: int,
    after: tuple[int, ...],
) -> WorkLayer:
    """Return a transposed convolution as the products it consists of: each input point with each tap."""
    group = int(operation.attributes.get("group", 1))
    rows, columns = _two(read[2:])
    loops = Loops(read[0], out[1], taps[0] // group, rows, columns, *_two(taps[2:]))
    return WorkLayer(operation.name, CONV, loops, after, (1, 1), group, (rows, columns), stored)


def _product(graph: LayerGraph, operation: OpNode, out: tuple[int, ...], after: tuple[int, ...]) -> WorkLayer:
    left, right = (graph.types[name].shape for name in operation.inputs[:2])
    inner = left[0] if operation.attributes.get("transA") else left[-1]
    stored = sum(graph.types[name].elements for name in operation.inputs[:2] if name in graph.constants)
    if len(right) <= 2:  # one matrix for all rows of the left operand
        columns = out[-1] if len(right) == 2 else 1
        rows = prod(out) // max(columns, 1)
        return WorkLayer(
            operation.name, FC, Loops(1, columns, inner, rows, 1), after, inputs=(rows, 1), parameters=stored
        )
    heads = prod(out[1:-2]) if len(out) > 3 else prod(out[:-2])
    batch = out[0] if len(out) > 3 else 1
    loops = Loops(batch, heads * out[-1], inner, out[-2] if len(left) > 1 else 1, 1)
    return WorkLayer(operation.name, FC, loops, after, groups=heads, inputs=(loops.rows, 1), parameters=stored)


def _recurrent(
    operation: OpNode, read: tuple[int, ...], types: list[ValueType | None], after: tuple[int, ...]
) -> WorkLayer:
    steps, batch, width = read if not operation.attributes.get("layout") else (read[1], read[0], read[2])
    hidden, gates = int(operation.attributes["hidden_size"]), GATES[operation.kind]
    both = 2 if operation.attributes.get("direction") == "bidirectional" else 1
    loops = Loops(batch, both * gates * hidden, hidden + width, 1, 1)
    stored = sum(type.elements for type in types[1:4] if type is not None)
    return WorkLayer(operation.name, LSTM, loops, after, inputs=(1, 1), parameters=stored, steps=steps)


def _two(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Return spatial sizes as two: one axis as rows, more than two with the last ones together."""
    if len(sizes) == 1:
        return sizes[0], 1
    return sizes[0], prod(sizes[1:])
