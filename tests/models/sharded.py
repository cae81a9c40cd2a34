"""A sharded convolution in NumPy, message by message: each accelerator has what it holds, and NaN everywhere else.

What it lacks and was not sent shows as NaN in the result; what it was sent is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from coexec.models.loops import WorkLayer
from coexec.models.sharding import (
    BATCH,
    CIN,
    COLUMNS,
    COUT,
    INPUT,
    KH,
    KW,
    OUTPUT,
    ROWS,
    WEIGHTS,
    Sharding,
    copies,
    part,
    placed,
    positions,
    rank_among_holders,
    tensor_dims,
)

Floats = np.ndarray[Any, Any]
Span = tuple[int, int]


def conv2d(x: Floats, w: Floats, stride: tuple[int, int], groups: int = 1) -> Floats:
    """Return the convolution of what needs no padding any more."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    windows = windows[:, :, :: stride[0], :: stride[1]]
    if groups == 1:
        return np.asarray(np.einsum("bchwij,ocij->bohw", windows, w))
    parts = zip(np.split(windows, groups, 1), np.split(w, groups, 0), strict=True)
    return np.concatenate([np.einsum("bchwij,ocij->bohw", a, b) for a, b in parts], 1)


class Sent(NamedTuple):
    """Elements that each accelerator received."""

    halo: list[int]
    ring: list[int]
    sums: list[float]


class Box(NamedTuple):
    """What an accelerator computes: spans of batch, output channels, rows, columns, input channels and taps."""

    batch: Span
    cout: Span
    cin: Span
    rows: Span
    columns: Span
    kh: Span
    kw: Span

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""
        return any(lo >= hi for lo, hi in self)


class ShardedConv:
    """Runs one convolution on as many pretended accelerators as the sharding has parts."""

    def __init__(self, layer: WorkLayer, sharding: Sharding, x: Floats, w: Floats, pad: int) -> None:
        self.layer, self.sharding, self.w, self.pad = layer, sharding, w, pad
        self.x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        self.inner = x.shape[2:]
        self.at = positions(sharding.factors)
        self.boxes = [self.box(c) for c in self.at]
        count = len(self.at)
        self.sent = Sent([0] * count, [0] * count, [0.0] * count)
        self.held = [self.holding(d) for d in range(count)]

    def box(self, at: Sequence[int]) -> Box:
        """Return what one accelerator computes of the whole layer."""
        f, loops = self.sharding.factors, self.layer.loops
        spans = [part(size, n, i) for size, n, i in zip(loops, f, at, strict=True)]
        if self.layer.groups > 1:
            lo, hi = part(self.layer.groups, f[COUT], at[COUT])
            each = loops.cout // self.layer.groups
            spans[COUT] = (lo * each, hi * each)
        return Box(spans[BATCH], spans[COUT], spans[CIN], spans[ROWS], spans[COLUMNS], spans[KH], spans[KW])

    def holding(self, device: int) -> Floats:
        """Return the input as one accelerator sees it before the layer: NaN where it holds nothing; padding is known."""
        lies = placed(self.layer, self.sharding, INPUT)
        shape = (self.x.shape[0], self.x.shape[1], *self.inner)
        spans = [part(size, n, i) for size, n, i in zip(shape, lies.factors, lies.at[device], strict=True)]
        if self.layer.groups > 1:
            lo, hi = part(self.layer.groups, lies.factors[1], lies.at[device][1])
            spans[1] = (lo * self.layer.loops.cin, hi * self.layer.loops.cin)
        p = self.pad
        seen = np.full(self.x.shape, np.nan)
        seen[:, :, :p], seen[:, :, self.x.shape[2] - p :] = 0.0, 0.0
        seen[:, :, :, :p], seen[:, :, :, self.x.shape[3] - p :] = 0.0, 0.0
        index = (slice(*spans[0]), slice(*spans[1]), *(slice(lo + p, hi + p) for lo, hi in spans[2:]))
        seen[index] = self.x[index]
        return seen

    def reads(self, box: Box) -> tuple[slice, ...]:
        """Return the elements of the padded input that a box needs."""
        s = self.layer.stride
        spans = [(lo * t + k[0], (hi - 1) * t + k[1]) for (lo, hi), t, k in
                 zip((box.rows, box.columns), s, (box.kh, box.kw), strict=True)]  # fmt: skip
        channels = box.cin
        if self.layer.groups > 1:
            each = self.layer.loops.cout // self.layer.groups
            channels = (box.cout[0] // each * self.layer.loops.cin, box.cout[1] // each * self.layer.loops.cin)
        return slice(*box.batch), slice(*channels), slice(*spans[0]), slice(*spans[1])

    def fetch(self, device: int, box: Box) -> None:
        """Send an accelerator what it lacks of a box's input, and count it."""
        if box.empty:
            return
        index = self.reads(box)
        lacks = np.isnan(self.held[device][index])
        self.sent.halo[device] += int(lacks.sum())
        self.held[device][index] = np.where(lacks, self.x[index], self.held[device][index])

    def compute(self, box: Box, seen: Floats, w: Floats) -> Floats:
        """Return the part of the sums that a box consists of."""
        groups = 1
        if self.layer.groups > 1:
            groups = (box.cout[1] - box.cout[0]) // (self.layer.loops.cout // self.layer.groups)
        taps = w[slice(*box.cout), slice(*box.cin), slice(*box.kh), slice(*box.kw)]
        return conv2d(seen[self.reads(box)], taps, self.layer.stride, groups)

    def run(self) -> Floats:
        """Return the output, put together from what the accelerators have at the end."""
        loops = self.layer.loops
        sums = [np.zeros((loops.batch, loops.cout, loops.rows, loops.columns)) for _ in self.at]
        rotation = self.sharding.rotation
        if rotation is None:
            for d, box in enumerate(self.boxes):
                self.fetch(d, box)
                self.add(sums[d], box, self.held[d], self.w)
        else:
            self.rotate(sums)
        self.reduce(sums)
        return self.assemble(sums)

    def add(self, sums: Floats, box: Box, seen: Floats, w: Floats) -> None:
        """Compute a box and add it to what the accelerator has of the sums."""
        if box.empty:
            return
        value = self.compute(box, seen, w)
        sums[slice(*box.batch), slice(*box.cout), slice(*box.rows), slice(*box.columns)] += value

    def rotate(self, sums: list[Floats]) -> None:
        """Compute in phases; between two of them everybody passes its part on to the holder before it."""
        rotation = self.sharding.rotation
        assert rotation is not None
        ranks = rank_among_holders(self.layer, self.sharding.factors, rotation.tensor)
        phases = copies(self.layer, self.sharding.factors, rotation.tensor)
        name = ("batch", "cout", "cin", "rows", "columns")[rotation.dim]
        pieces = [[self.piece(box, name, j, phases) for j in range(phases)] for box in self.boxes]
        for d, rank in enumerate(ranks):
            if rotation.tensor == INPUT:
                self.fetch(d, pieces[d][rank])
            else:
                for piece in pieces[d]:
                    self.fetch(d, piece)
        group = self.groups(rotation.tensor)
        holds = {d: (ranks[d], self.carried(d, pieces[d][ranks[d]], rotation.tensor)) for d in range(len(self.at))}
        for phase in range(phases):
            for d in range(len(self.at)):
                index, carried = holds[d]
                piece = pieces[d][index]
                seen, w = (carried, self.w) if rotation.tensor == INPUT else (self.held[d], carried)
                self.add(sums[d], piece, seen, w)
            if phase < phases - 1:
                holds = {d: holds[group[d][(ranks[d] + 1) % phases]] for d in range(len(self.at))}
                for d, (_, carried) in holds.items():
                    self.sent.ring[d] += int((~np.isnan(carried)).sum()) - self.known(rotation.tensor)

    def known(self, tensor: str) -> int:
        """Return how many elements of the padded input nobody needs to send: the padding itself."""
        return 0 if tensor == WEIGHTS else self.x.size - int(np.prod((*self.x.shape[:2], *self.inner)))

    def piece(self, box: Box, name: str, index: int, phases: int) -> Box:
        lo, hi = getattr(box, name)
        begin, end = part(hi - lo, phases, index)
        return box._replace(**{name: (lo + begin, lo + end)})

    def carried(self, device: int, piece: Box, tensor: str) -> Floats:
        """Return what an accelerator brings into the ring: its part and NaN."""
        if tensor == INPUT:
            carried: Floats = np.full(self.x.shape, np.nan)
            p = self.pad
            carried[:, :, :p], carried[:, :, self.x.shape[2] - p :] = 0.0, 0.0
            carried[:, :, :, :p], carried[:, :, :, self.x.shape[3] - p :] = 0.0, 0.0
            if not piece.empty:
                carried[self.reads(piece)] = self.held[device][self.reads(piece)]
            return carried
        carried = np.full(self.w.shape, np.nan)
        index = slice(*piece.cout), slice(*piece.cin), slice(*piece.kh), slice(*piece.kw)
        carried[index] = self.w[index]
        return carried

    def groups(self, tensor: str) -> list[list[int]]:
        """Return for each accelerator those that hold the same part of a tensor, by their rank."""
        dims = tensor_dims(self.layer, tensor)
        ranks = rank_among_holders(self.layer, self.sharding.factors, tensor)
        keys = [tuple(c[d] for d in dims) for c in self.at]
        return [
            sorted((e for e in range(len(self.at)) if keys[e] == keys[d]), key=lambda e: ranks[e])
            for d in range(len(self.at))
        ]

    def reduce(self, sums: list[Floats]) -> None:
        """Add up partial sums among those that have the same part of the output: a ring, in two rounds."""
        totals = [np.sum([sums[e] for e in group], axis=0) for group in self.groups(OUTPUT)]
        for d, group in enumerate(self.groups(OUTPUT)):
            b = self.boxes[d]
            size = np.prod([hi - lo for lo, hi in (b.batch, b.cout, b.rows, b.columns)])
            self.sent.sums[d] += float(2 * (len(group) - 1) / len(group) * size)
            sums[d] = totals[d]

    def assemble(self, sums: list[Floats]) -> Floats:
        whole = np.full(sums[0].shape, np.nan)
        for d, box in enumerate(self.boxes):
            index = slice(*box.batch), slice(*box.cout), slice(*box.rows), slice(*box.columns)
            whole[index] = sums[d][index]
        return whole
