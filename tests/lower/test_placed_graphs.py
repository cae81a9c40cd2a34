"""Placed calls as graphs: rings, grids and reductions in every memory, run in any order that their edges allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.graph.instruction import Copy
from coexec.testing.graphs import GraphBuilder
from coexec.testing.model_memory import at_random, run_all

DEVICES = [f"dev:{i}" for i in range(4)]


def rows(chunk: Any) -> Any:
    return np.s_[chunk.lo[0] : chunk.hi[0]]


def columns(chunk: Any) -> Any:
    return np.s_[:, chunk.lo[1] : chunk.hi[1]]


@cx.kernel(split=(0, 1), a=cx.read(rows), b=cx.read(columns), out=cx.update)
def product(a: Any, b: Any, out: Any) -> None:
    out += a @ b


@cx.kernel(split=(0, 1), x=cx.read, y=cx.update)
def added(x: Any, y: Any) -> None:
    y += x


@cx.kernel(split=(0, 1), over="x", x=cx.read, s=cx.reduce("sum"))
def summed(x: Any, s: Any) -> None:
    s += x.sum()


@st.composite
def placements(draw: Any) -> cx.Placement:
    grid = draw(st.sampled_from([{0: 4}, {1: 4}, {0: 2, 1: 2}, {0: 3}, {1: 2}, {0: 1}]))
    rotate = draw(st.sampled_from([None, *(axis for axis in (0, 1) if axis not in grid)]))
    count = int(np.prod(list(grid.values())))
    return cx.Placement(draw(st.permutations(DEVICES))[:count], grid, rotate=rotate)


@given(
    calls=st.lists(st.tuples(st.sampled_from(["product", "added", "summed"]), placements()), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    peers=st.booleans(),
    capacity=st.sampled_from([None, 1 << 12]),
)
@settings(max_examples=40)
def test_placed_programs_are_right_in_any_order(
    calls: list[tuple[str, cx.Placement]], seed: int, peers: bool, capacity: int | None
) -> None:
    rng = np.random.default_rng(seed)
    a, b, out = (rng.integers(-3, 4, (8, 8)).astype(float) for _ in range(3))
    total = 0.0
    g = GraphBuilder(4, peers=peers, capacity=capacity)
    x, y, z = (g.array((8, 8), data=values) for values in (a, b, out))
    s = g.array((), 0.0)
    with g:
        for name, placement in calls:
            if name == "product":
                product.using(placement=placement)(x, y, z)
                out = out + a @ b
            elif name == "added":
                added.using(placement=placement)(z, y)
                b = b + out
            else:
                summed.using(placement=placement)(z, s)
                total += out.sum()
    reads = [g.read(array) for array in (y, z, s)]
    g.verify()
    assert run_all(g.emitted, at_random(seed)) == {}
    for read, expected in zip(reads, (b, out, total), strict=True):
        np.testing.assert_array_equal(g.delivered[read.id], expected)


@pytest.mark.parametrize("seed", range(3))
def test_in_a_ring_each_shard_is_copied_once_per_phase_from_whoever_had_it_last(seed: int) -> None:
    g = GraphBuilder(4)
    n = 8
    values = np.arange(float(n * n)).reshape(n, n)
    x, y, z = g.array((n, n), 1.0), g.array((n, n), 0.0), g.array((n, n), 0.0)
    with g:
        added.using(placement=cx.Placement(DEVICES, 1))(g.array((n, n), data=values), y)  # each has a shard of y
        before = len(g.emitted)
        product.using(placement=cx.Placement(DEVICES, 0, rotate=1))(x, y, z)
    moved = [i.step for i in g.emitted[before:] if isinstance(i.step, Copy) and i.step.source.array == y._storage.id]
    pairs = sorted((step.source.memory, step.target.memory) for step in moved)
    memories = [g.platform.device(name).memory for name in DEVICES]
    assert pairs == sorted([(memories[(i + 1) % 4], memories[i]) for i in range(4)] * 3)
    read = g.read(z)
    g.verify()
    assert run_all(g.emitted, at_random(seed)) == {}
    np.testing.assert_array_equal(g.delivered[read.id], np.ones((n, n)) @ values)
