"""How one layer is cut over a set of accelerators: exclusive parts, shared parts that rotate, and what that moves.

Before: models/loops.py.  After: models/tables.py, models/mapping.py, models/shortest.py.  Knows shapes, no time.

Exclusive shards (ES) cut loop dimensions into p parts, one for each accelerator. A tensor without some cut dimension is held
in copies; shared shards (SS) cut one such tensor among its holders too, who pass the parts around a ring, one per phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import NamedTuple

from .loops import LSTM, WorkLayer

DIMS = ("batch", "cout", "cin", "rows", "columns", "kh", "kw")
BATCH, COUT, CIN, ROWS, COLUMNS, KH, KW = range(7)
INPUT, WEIGHTS, OUTPUT = "input", "weights", "output"
REDUCED = (CIN, KH, KW)
"""Dimensions that are summed over: who has a part of them has a part of each sum."""

Factors = tuple[int, int, int, int, int, int, int]  # into how many parts each dimension is cut
Coordinates = tuple[int, ...]


class Rotation(NamedTuple):
    """A tensor that is shared among those who would each hold a copy, and the dimension along which it is cut."""

    tensor: str
    dim: int

    def __str__(self) -> str:
        return f"{self.tensor} by {DIMS[self.dim]}"


class Sharding(NamedTuple):
    """Exclusive cuts of a layer, and what rotates, if anything does."""

    factors: Factors
    rotation: Rotation | None = None

    @property
    def parts(self) -> int:
        """How many accelerators take part."""
        return prod(self.factors)

    def __str__(self) -> str:
        cuts = " ".join(f"{DIMS[d]}/{n}" for d, n in enumerate(self.factors) if n > 1) or "whole"
        return cuts if self.rotation is None else f"{cuts} ring {self.rotation}"


WHOLE = Sharding((1,) * 7)


class Placed(NamedTuple):
    """How a tensor of (batch, channels, rows, columns) lies on the accelerators of a set: whose part each one has."""

    factors: tuple[int, int, int, int]
    at: tuple[tuple[int, int, int, int], ...]  # per accelerator: which part along each axis

    @property
    def copies(self) -> int:
        """How many accelerators have the same part."""
        return len(self.at) // prod(self.factors)


def tensor_dims(layer: WorkLayer, tensor: str) -> tuple[int, ...]:
    """Return the loop dimensions of a tensor. With several groups, output channels cut the input's channels too."""
    if tensor == OUTPUT:
        return BATCH, COUT, ROWS, COLUMNS
    if tensor == INPUT:
        return BATCH, COUT if layer.groups > 1 else CIN, ROWS, COLUMNS
    stored = layer.stored > 0
    return (COUT, CIN, KH, KW) if stored else (BATCH, COUT, CIN, KH, KW)


def copies(layer: WorkLayer, factors: Factors, tensor: str) -> int:
    """Return in how many copies a tensor is held. Of the output, they are partial sums."""
    return prod(factors) // prod(factors[d] for d in tensor_dims(layer, tensor))


def extents(layer: WorkLayer) -> tuple[int, ...]:
    """Return into how many parts each dimension can be cut at most."""
    most = list(layer.loops)
    if layer.groups > 1:
        most[COUT], most[CIN] = layer.groups, 1
    if layer.kind == LSTM:
        most[CIN] = 1
    return tuple(most)


@cache
def factorisations(parts: int, places: int) -> tuple[tuple[int, ...], ...]:
    """Return every way to write a number as a product of so many factors, in order."""
    if places == 1:
        return ((parts,),)
    found = []
    for first in range(1, parts + 1):
        if parts % first == 0:
            found += [(first, *rest) for rest in factorisations(parts // first, places - 1)]
    return tuple(found)


def shardings(layer: WorkLayer, parts: int, *, rotate: bool = True) -> list[Sharding]:
    """Return every legal sharding of a layer over so many accelerators.

    No dimension is cut into more parts than it has elements, unless there is no other way.
    """
    most = extents(layer)
    ways = factorisations(parts, len(DIMS))
    fitting = [f for f in ways if all(n <= m for n, m in zip(f, most, strict=True))]
    if not fitting:
        fitting = [f for f in ways if all(n == 1 or m > 1 for n, m in zip(f, most, strict=True))]
    if not fitting:
        cut = COUT if layer.groups == 1 else ROWS
        fitting = [tuple(parts if d == cut else 1 for d in range(len(DIMS)))]
    found = []
    for way in fitting:
        factors: Factors = way  # type: ignore[assignment]
        found.append(Sharding(factors))
        if rotate:
            found += [Sharding(factors, rotation) for rotation in rotations(layer, factors)]
    return found


def rotations(layer: WorkLayer, factors: Factors) -> Iterator[Rotation]:
    """Yield what may rotate under some exclusive cuts: one tensor that has copies, cut along a dimension that is whole.

    Of a layer in groups only a computed right operand rotates, within each head: that is ring attention.
    """
    loops, grouped = layer.loops, layer.groups > 1
    if layer.kind == LSTM or (grouped and layer.stored):
        return
    same_taps = factors[KH] == factors[KW] == 1  # holders with other taps need other rows of the input
    whole = {d: factors[d] == 1 for d in (CIN, ROWS, COLUMNS)}
    whole[COUT] = factors[COUT] == 1 or grouped
    room = {COUT: loops.cout // layer.groups, CIN: loops.cin, ROWS: loops.rows, COLUMNS: loops.columns}
    for tensor, dim in ((WEIGHTS, COUT), (WEIGHTS, CIN), (INPUT, CIN), (INPUT, ROWS), (INPUT, COLUMNS)):
        held = copies(layer, factors, tensor)
        if held > 1 and whole[dim] and room[dim] >= held and (tensor == WEIGHTS or (same_taps and not grouped)):
            yield Rotation(tensor, dim)


# Parts --------------------------------------------------------------------------------------------------------------------------


def part(size: int, parts: int, index: int) -> tuple[int, int]:
    """Return where part `index` of `parts` begins and ends; sizes differ by at most one."""
    return index * size // parts, (index + 1) * size // parts


def largest(size: int, parts: int) -> int:
    """Return the size of the largest part."""
    return -(-size // parts)


@cache
def positions(factors: Sequence[int]) -> tuple[Coordinates, ...]:
    """Return the coordinates of each accelerator in the grid of cuts; the last dimension varies fastest."""
    found: list[Coordinates] = [()]
    for factor in factors:
        found = [(*begin, i) for begin in found for i in range(factor)]
    return tuple(found)


def rank_among_holders(layer: WorkLayer, factors: Factors, tensor: str) -> tuple[int, ...]:
    """Return each accelerator's number among those that hold the same part of a tensor."""
    dims = tensor_dims(layer, tensor)
    others = [d for d in range(len(DIMS)) if d not in dims]
    ranks = []
    for at in positions(factors):
        rank = 0
        for d in others:
            rank = rank * factors[d] + at[d]
        ranks.append(rank)
    return tuple(ranks)


def placed(layer: WorkLayer, sharding: Sharding, tensor: str) -> Placed:
    """Return how the input lies when the layer begins, or the output when it is over."""
    dims = tensor_dims(layer, tensor)
    factors = [sharding.factors[d] for d in dims]
    at = [[c[d] for d in dims] for c in positions(sharding.factors)]
    rotation = sharding.rotation
    if rotation is not None and rotation.tensor == tensor:
        axis = dims.index(rotation.dim)
        factors[axis] = copies(layer, sharding.factors, tensor)
        for where, rank in zip(at, rank_among_holders(layer, sharding.factors, tensor), strict=True):
            where[axis] = rank
    return Placed((factors[0], factors[1], factors[2], factors[3]), tuple((a, b, c, d) for a, b, c, d in at))


def right_operand(layer: WorkLayer, sharding: Sharding) -> Placed:
    """Return how a computed right operand must lie: cut by batch and, with groups, by the channels of its heads."""
    grouped = layer.groups > 1
    f = sharding.factors
    factors = (f[BATCH], f[COUT] if grouped else 1, 1, 1)
    at = tuple((c[BATCH], c[COUT] if grouped else 0, 0, 0) for c in positions(f))
    return Placed(factors, at)


# Volumes ------------------------------------------------------------------------------------------------------------------------


class Volumes(NamedTuple):
    """What one accelerator, the one with the largest part, computes, stores and receives, in elements."""

    nest: Factors  # loop sizes of one phase
    phases: int
    ring: int  # elements that it passes on after each phase but the last
    reduced: float  # elements that it receives to add up partial sums
    halo: int  # elements next to its part that it receives
    steps: int  # exchanges of a recurrent layer, each of `halo` elements
    weights: int  # elements that it stores
    input: int
    output: int
    sum_group: int  # accelerators that add up partial sums together


def volumes(layer: WorkLayer, sharding: Sharding) -> Volumes:
    """Return what a sharding makes one accelerator compute, store and receive."""
    factors, rotation = sharding.factors, sharding.rotation
    sizes = [largest(size, n) for size, n in zip(layer.loops, factors, strict=True)]
    if layer.groups > 1:
        sizes[COUT] = largest(layer.groups, factors[COUT]) * (layer.loops.cout // layer.groups)
    rows, columns = (
        largest(size, n) for size, n in zip(layer.read, (factors[ROWS], factors[COLUMNS]), strict=True)
    )  # fmt: skip
    channels = _channels(layer, factors)
    given = sizes[BATCH] * channels * rows * columns
    weights = sizes[COUT] * sizes[CIN] * sizes[KH] * sizes[KW]
    output = sizes[BATCH] * sizes[COUT] * sizes[ROWS] * sizes[COLUMNS]
    edges = [max(k - s, 0) for k, s in zip(layer.loops[KH:], layer.stride, strict=True)]
    halo = (factors[ROWS] > 1) * edges[0] * columns * channels * sizes[BATCH]
    halo += (factors[COLUMNS] > 1) * edges[1] * rows * channels * sizes[BATCH]
    phases, ring = 1, 0
    if rotation is not None:
        phases = copies(layer, factors, rotation.tensor)
        heads = largest(layer.groups, factors[COUT]) if rotation.dim == COUT else 1
        whole = sizes[rotation.dim]
        sizes[rotation.dim] = heads * largest(whole // heads, phases)
        if rotation.tensor == WEIGHTS:
            ring = weights = weights // whole * sizes[rotation.dim]
        else:
            ring = given = _rotating_input(layer, rotation.dim, given, rows, columns, phases, edges)
    sums = copies(layer, factors, OUTPUT)
    reduced = 2 * (sums - 1) / sums * output
    steps = 1
    if layer.kind == LSTM and factors[COUT] > 1:
        steps, halo = layer.steps, (factors[COUT] - 1) * sizes[BATCH] * sizes[COUT]
    stored = layer.stored * weights // max(layer.weights, 1) if layer.stored else 0
    return Volumes(tuple(sizes), phases, ring, reduced, halo, steps, stored, given, output, sums)  # type: ignore[arg-type]


def _channels(layer: WorkLayer, factors: Factors) -> int:
    if layer.groups > 1:
        return largest(layer.groups, factors[COUT]) * layer.loops.cin
    return largest(layer.loops.cin, factors[CIN])


def _rotating_input(
    layer: WorkLayer, dim: int, given: int, rows: int, columns: int, phases: int, edges: Sequence[int]
) -> int:
    """Return the elements of one rotating part of the input, with the rows or columns next to it that it needs."""
    if dim == CIN:
        channels = layer.loops.cin
        return given // channels * largest(channels, phases)
    if dim == ROWS:
        return given // rows * min(rows, largest(rows, phases) + edges[0])
    return given // columns * min(columns, largest(columns, phases) + edges[1])
