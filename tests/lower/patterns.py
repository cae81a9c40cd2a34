"""Access patterns whose allocations are counted: a stencil on two arrays, and an array that is read ever further."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coexec.geometry import Box, cut, whole
from coexec.program.array import Array
from coexec.program.mapper import fixed, halo
from coexec.testing.graphs import GraphBuilder

Chunks = Sequence[tuple[str, Box]]


def tiles(g: GraphBuilder, shape: tuple[int, ...], *, axes: int, oversubscribe: int) -> Chunks:
    """Divide an index space over all devices along one or two axes, each part into so many chunks again."""
    count = len(g.devices)
    parts = cut(whole(shape), 0, count)
    if axes == 2:
        parts = [tile for row in cut(whole(shape), 0, 2) for tile in cut(row, 1, count // 2)]
    return [
        (device, piece) for device, part in zip(g.devices, parts, strict=True) for piece in cut(part, 0, oversubscribe)
    ]


def wave_sim(g: GraphBuilder, shape: tuple[int, ...], chunks: Chunks, steps: int) -> tuple[Array, Array]:
    """Record a wave equation: each step reads one array and its neighbourhood, and updates the other."""
    u, up = g.array(shape), g.array(shape)
    g.call("begin u", writes=u, chunks=chunks)
    g.call("begin up", writes=up, chunks=chunks)
    for _ in range(steps):
        g.call("step", reads=(u, halo(1)), updates=up, chunks=chunks)
        u, up = up, u
    return u, up


def rsim(g: GraphBuilder, rows: int, columns: int) -> Array:
    """Record radiosity: step t reads all rows before t on every device, and each device writes its part of row t."""
    rad = g.array((rows + 5, columns))  # with room for more, or the last step would need the whole array
    chunks = list(zip(g.devices, cut(whole((columns,)), 0, len(g.devices)), strict=True))
    for t in range(rows):

        def own_part(chunk: Any, t: int = t) -> tuple[slice, slice]:
            return slice(t, t + 1), slice(chunk.lo[0], chunk.hi[0])

        reads = [(rad, fixed(slice(0, t), slice(0, columns)))] if t else []
        g.call("step", reads=reads, writes=[(rad, own_part)], over=columns, chunks=chunks)
    return rad


def growing(g: GraphBuilder, steps: int, size: int = 1000) -> Array:
    """Record steps of which each needs a little more of one array."""
    a = g.array(size, 0.0)
    for step in range(steps):
        g.call("grow", updates=a[: 10 * (step + 1)])
    return a
