"""Run layers as a plan shards them: every part of a layer is an ordinary call on views, placed on its device.

Before: models/sharding.py, models/operators/.  After: models/deploying.py.  Dependencies and copies follow from the boxes.

Exclusive cuts become parts of the output, or partial sums where a summed dimension is cut; shared shards become phases, in
which each device computes with the shard whose turn it is, so that shards travel around a ring. Partial sums are added up
in as many pieces as there are summands, one on each device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvariantError
from ..ops.matmul import product_kernel
from ..program import array as arrays
from ..program.array import Array
from ..program.call import placed as placed_calls
from ..program.placement import Placement
from .loops import WorkLayer
from .operators.calls import OpCall
from .operators.layout import with_shape
from .operators.windows import Geometry, conv_kernel, geometry
from .sharding import BATCH, CIN, COLUMNS, COUT, KH, KW, OUTPUT, ROWS, Sharding, copies, positions, rank_among_holders

Span = tuple[int, int]
Spans = dict[int, Span]  # per loop dimension
IMAGE = (BATCH, COUT, ROWS, COLUMNS)
"""The dimensions that are axes of a convolution's result, in their order."""


class LayerCut(NamedTuple):
    """How a layer is cut: which device has which part, and the sizes of the parts of each dimension, which may differ."""

    layer: WorkLayer
    sharding: Sharding
    devices: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]  # per loop dimension

    def span(self, dim: int, part: int) -> Span:
        """Return where a part of a dimension begins and ends."""
        ends = list(accumulate(self.sizes[dim]))
        return ends[part] - self.sizes[dim][part], ends[part]


def even_sizes(layer: WorkLayer, sharding: Sharding) -> tuple[tuple[int, ...], ...]:
    """Return parts that differ by one at most; output channels of a layer in groups are cut between groups."""
    found = []
    for dim, (size, parts) in enumerate(zip(layer.loops, sharding.factors, strict=True)):
        unit = size // layer.groups if dim == COUT and layer.groups > 1 else 1
        count = size // unit
        found.append(tuple(((i + 1) * count // parts - i * count // parts) * unit for i in range(parts)))
    return tuple(found)


class ShardTurn(NamedTuple):
    """One part of a layer in one phase: its device, what it computes, and what that is added to."""

    device: str
    member: int
    spans: Spans
    first: bool  # whether it is the first that is added to its sum


def turns(cut: LayerCut) -> Iterator[ShardTurn]:
    """Yield all parts of a layer, phase by phase."""
    layer, (factors, rotation) = cut.layer, cut.sharding
    grid = positions(factors)
    phases, ranks = 1, [0] * len(grid)
    if rotation is not None:
        phases = copies(layer, factors, rotation.tensor)
        ranks = list(rank_among_holders(layer, factors, rotation.tensor))
    for phase in range(phases):
        for member, at in enumerate(grid):
            spans = {dim: cut.span(dim, part) for dim, part in enumerate(at)}
            if rotation is None:
                yield ShardTurn(cut.devices[member], member, spans, first=True)
                continue
            shard = (ranks[member] + phase) % phases
            for part in shards_of(layer, rotation.dim, spans[rotation.dim], phases, shard):
                summed = rotation.dim == CIN
                yield ShardTurn(
                    cut.devices[member], member, {**spans, rotation.dim: part}, first=not summed or phase == 0
                )


def shards_of(layer: WorkLayer, dim: int, span: Span, shards: int, shard: int) -> list[Span]:
    """Return the part of a span that a rotating shard has; of a layer in groups, one part of each group."""
    lo, hi = span
    groups = 1
    if dim == COUT and layer.groups > 1:
        groups = (hi - lo) // (layer.loops.cout // layer.groups)
    width = (hi - lo) // groups if groups else 0
    begin, end = shard * width // shards, (shard + 1) * width // shards
    return [(lo + g * width + begin, lo + g * width + end) for g in range(groups)]


# What all layers have in common ---------------------------------------------------------------------------------------------


class LayerRunner(ABC):
    """Runs the parts of one layer. Kinds of layers say how a part is computed and which box of the result it is."""

    def __init__(self, cut: LayerCut, result: Array) -> None:
        self.cut, self.result = cut, result
        self.summands = copies(cut.layer, cut.sharding.factors, OUTPUT)
        self.partial: dict[int, Array] = {}

    def run(self) -> None:
        """Call every part, then add up partial sums."""
        for turn in turns(self.cut):
            if all(hi > lo for lo, hi in turn.spans.values()):
                self.part(turn)
            elif self.summands > 1 or not turn.first:
                self.nothing(turn)
        if self.summands > 1:
            self.add_up()

    def part(self, turn: ShardTurn) -> None:
        target = self.target(turn)
        if turn.first:
            self.compute(turn, target)
            return
        added = arrays.empty(target.shape, target.dtype)
        self.compute(turn, added)
        with placed_calls(Placement(turn.device)):
            target[...] = target + added

    def nothing(self, turn: ShardTurn) -> None:
        """Note a part without elements: its sum begins with zeros."""
        box = [turn.spans[d] for d in (BATCH, COUT, ROWS, COLUMNS)]
        if turn.first and all(hi > lo for lo, hi in box):
            with placed_calls(Placement(turn.device)):
                self.target(turn)[...] = 0

    def target(self, turn: ShardTurn) -> Array:
        """Return where a part goes: its box of the result, or an array of partial sums of its own."""
        if self.summands == 1:
            return self.result[self.box(turn.spans)]
        if turn.member not in self.partial:
            at = positions(self.cut.sharding.factors)[turn.member]
            whole = {dim: self.cut.span(dim, part) for dim, part in enumerate(at)}
            self.partial[turn.member] = arrays.empty(self.result[self.box(whole)].shape, self.result.dtype)
        at = positions(self.cut.sharding.factors)[turn.member]
        whole = {dim: self.cut.span(dim, part) for dim, part in enumerate(at)}
        outer, inner = self.box(whole), self.box(turn.spans)
        key = tuple(slice(i.start - o.start, i.stop - o.start) for i, o in zip(inner, outer, strict=True))
        return self.partial[turn.member][key]

    def add_up(self) -> None:
        """Add partial sums: those who have parts of the same sums add a piece each."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for member, at in enumerate(positions(self.cut.sharding.factors)):
            groups.setdefault(tuple(at[d] for d in (BATCH, COUT, ROWS, COLUMNS)), []).append(member)
        for at, members in groups.items():
            spans = {d: self.cut.span(d, part) for d, part in zip((BATCH, COUT, ROWS, COLUMNS), at, strict=True)}
            target = self.result[self.box(spans)]
            if target.size:
                self.add_group(target, members)

    def add_group(self, target: Array, members: Sequence[int]) -> None:
        axis = int(np.argmax(target.shape))
        length = target.shape[axis]
        for number, member in enumerate(members):
            begin, end = number * length // len(members), (number + 1) * length // len(members)
            key = (*(slice(None),) * axis, slice(begin, end))
            if end > begin:
                with placed_calls(Placement(self.cut.devices[member])):
                    total: Any = self.partial[members[0]][key]
                    for other in members[1:]:
                        total = total + self.partial[other][key]
                    target[key] = total

    @abstractmethod
    def box(self, spans: Spans) -> tuple[slice, ...]:
        """Return the box of the result that a part computes."""

    @abstractmethod
    def compute(self, turn: ShardTurn, target: Array) -> None:
        """Compute a part."""


# Convolutions ---------------------------------------------------------------------------------------------------------------


class ConvRunner(LayerRunner):
    """Runs the parts of a convolution along two axes."""

    def __init__(self, cut: LayerCut, x: Array, w: Array, shape: Geometry, groups: int, result: Array) -> None:
        super().__init__(cut, result)
        self.x, self.w, self.shape, self.groups = x, w, shape, groups

    def box(self, spans: Spans) -> tuple[slice, ...]:
        return tuple(slice(*spans[d]) for d in (BATCH, COUT, ROWS, COLUMNS))

    def compute(self, turn: ShardTurn, target: Array) -> None:
        spans = turn.spans
        seen, before = [], []
        for axis, (dim, taps) in enumerate(((ROWS, KH), (COLUMNS, KW))):
            lo, hi = self.seen(axis, spans[dim], spans[taps])
            size = self.x.shape[2 + axis]
            seen.append(slice(min(max(lo, 0), size), max(min(hi, size), 0)))
            before.append(max(0, -lo))
        if any(s.stop <= s.start for s in seen):
            with placed_calls(Placement(turn.device)):
                target[...] = 0
            return
        for channels, filters, out in self.in_groups(spans):
            x = self.x[(slice(*spans[BATCH]), channels, *seen)]
            w = self.w[(filters, slice(*spans[CIN]), slice(*spans[KH]), slice(*spans[KW]))]
            groups = max(1, (channels.stop - channels.start) // max(1, w.shape[1]))
            shape = self.shape._replace(taps=w.shape[2:], before=tuple(before))
            kernel, scalars = conv_kernel(x, w, shape, groups)
            with placed_calls(Placement(turn.device)):
                kernel(x, w, target[:, out], *scalars)

    def seen(self, axis: int, span: Span, taps: Span) -> Span:
        """Return the rows or columns under some taps of some output rows or columns, padding included."""
        stride, dilation = self.shape.strides[axis], self.shape.dilations[axis]
        first = span[0] * stride - self.shape.before[axis] + taps[0] * dilation
        return first, (span[1] - 1) * stride - self.shape.before[axis] + (taps[1] - 1) * dilation + 1

    def in_groups(self, spans: Spans) -> Iterator[tuple[slice, slice, slice]]:
        """Yield input channels, filters and output channels of a part, whole groups together."""
        lo, hi = spans[COUT]
        if self.groups == 1:
            yield slice(*spans[CIN]), slice(lo, hi), slice(0, hi - lo)
            return
        per_out, per_in = self.w.shape[0] // self.groups, self.w.shape[1]
        if lo % per_out == 0 and hi % per_out == 0:
            yield slice(lo // per_out * per_in, hi // per_out * per_in), slice(lo, hi), slice(0, hi - lo)
            return
        for group in range(lo // per_out, -(-hi // per_out)):
            begin, end = max(lo, group * per_out), min(hi, (group + 1) * per_out)
            yield slice(group * per_in, (group + 1) * per_in), slice(begin, end), slice(begin - lo, end - lo)


def run_conv(call: OpCall, cut: LayerCut) -> Array:
    """Return a convolution along one or two axes, computed as it is cut."""
    x, w = call.array(0), call.array(1)
    shape = geometry(call, w.shape[2:], x.shape[2:])
    result = arrays.empty(call.shape, x.dtype)
    target = result
    if len(shape.taps) == 1:  # rows of one column each
        x, w, target = x[..., None], w[..., None], result[..., None]
        shape = Geometry(*((*given, fill) for fill, given in zip((1, 1, 1, 0, 0), shape, strict=True)))
    ConvRunner(cut, x, w, shape, int(call.attribute("group", 1)), target).run()
    with cut_calls(cut):
        return finished(call, result)


def finished(call: OpCall, result: Any) -> Array:
    """Return sums of a convolution with its bias and with what was fused to it."""
    if call.has(2):
        result = result + call.array(2)[(slice(None), *(None,) * (len(call.shape) - 2))]
    if call.has(3):
        result = result + call.array(3)
    low, high = call.attribute("bounds", (None, None))
    result = result if low is None else np.maximum(result, result.dtype.type(low))
    return result if high is None else np.minimum(result, result.dtype.type(high))  # type: ignore[no-any-return]


# Products -------------------------------------------------------------------------------------------------------------------


class ProductRunner(LayerRunner):
    """Runs the parts of a product of matrices: arrays of (batch, head, row, column), of which one batch or head may serve all."""

    def __init__(self, cut: LayerCut, x: Array, w: Array, result: Array) -> None:
        super().__init__(cut, result)
        self.x, self.w = x, w
        self.columns = result.shape[3]  # of one head

    def box(self, spans: Spans) -> tuple[slice, ...]:
        heads, columns = self.heads(spans[COUT])
        return slice(*spans[BATCH]), heads, slice(*spans[ROWS]), columns

    def heads(self, span: Span) -> tuple[slice, slice]:
        """Return output channels as heads and columns: whole heads, or some columns of one."""
        lo, hi = span
        n = self.columns
        if lo % n == 0 and hi % n == 0:
            return slice(lo // n, hi // n), slice(0, n)
        head = lo // n
        if hi > (head + 1) * n:
            raise InvariantError(f"channels {lo} to {hi} are parts of several heads of {n}")
        return slice(head, head + 1), slice(lo - head * n, hi - head * n)

    def compute(self, turn: ShardTurn, target: Array) -> None:
        batch, heads, rows, columns = self.box(turn.spans)
        inner = slice(*turn.spans[CIN])
        x = self.x[(_some(self.x, 0, batch), _some(self.x, 1, heads), rows, inner)]
        w = self.w[(_some(self.w, 0, batch), _some(self.w, 1, heads), inner, columns)]
        with placed_calls(Placement(turn.device)):
            product_kernel(target.dtype.name, 4)(x, w, target)


def _some(operand: Array, axis: int, part: slice) -> slice:
    return slice(0, 1) if operand.shape[axis] == 1 else part


def run_product(call: OpCall, cut: LayerCut) -> Array | None:
    """Return a product computed as it is cut, or None if its shapes are none of matrices, heads or batches of heads."""
    x, w = call.array(0), call.array(1)
    gemm = call.node.kind == "Gemm"
    x = x.T if gemm and call.flag("transA") else x
    w = w.T if gemm and call.flag("transB") else w
    if x.ndim < 2 or w.ndim < 2 or x.ndim > 4 or w.ndim > 4 or x.dtype.name not in ("float32", "float64"):
        return None
    shape = (*np.broadcast_shapes(x.shape[:-2], w.shape[:-2]), x.shape[-2], w.shape[-1])
    if w.ndim == 2:  # one matrix for all rows
        rows = int(np.prod(shape[:-1]))
        left = with_shape(x, (rows, x.shape[-1]))[None, None]
        right, four = w[None, None], (1, 1, rows, shape[-1])
    else:
        left, right = (v[(None,) * (4 - v.ndim)] for v in (x, w))
        four = (*(1,) * (4 - len(shape)), *shape)
    result = arrays.empty(four, x.dtype)
    ProductRunner(cut, left, right, result).run()
    found: Any = with_shape(result, shape)
    with cut_calls(cut):
        return scaled(call, found) if gemm else found


def scaled(call: OpCall, result: Any) -> Array:
    """Return what Gemm makes of a product: times alpha, plus beta times its third operand."""
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    result = result if alpha == 1.0 else result * result.dtype.type(alpha)
    if call.has(2):
        c: Any = call.array(2)
        result = result + (c if beta == 1.0 else c * c.dtype.type(beta))
    return result  # type: ignore[no-any-return]


def cut_calls(cut: LayerCut) -> Any:
    """Return a block whose calls are cut as a layer's output is, where they can be."""
    return placed_calls(Placement(cut.devices, output_cut(cut)))


def output_cut(cut: LayerCut) -> dict[int, tuple[int, ...]] | None:
    """Return how images are cut as the layer leaves its output: the rows of each part of each axis; None if not by parts alone."""
    sizes = {axis: cut.sizes[dim] for axis, dim in enumerate(IMAGE) if len(cut.sizes[dim]) > 1}
    if not sizes or prod(len(s) for s in sizes.values()) != len(cut.devices):
        return None
    return sizes


def in_one_call(cut: LayerCut) -> bool:
    """Tell whether a convolution of images is one call with a placement: only axes of its kernel are cut, and no part is empty."""
    cuts = output_cut(cut)
    known = cuts is not None and cut.sharding.rotation is None and IMAGE.index(COLUMNS) not in cuts
    return known and all(size > 0 for sizes in cut.sizes for size in sizes)
