"""What common loops cost in allocations, copies and analysis, counted exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.geometry import Box
from coexec.graph.instruction import Alloc, Copy
from coexec.testing.graphs import GraphBuilder
from coexec.testing.model_memory import at_random, run_all

DEVICES, ROWS = 4, 64
PLENTY = 1 << 20


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.write)
def smooth(x: Any, y: Any) -> None:
    y[...] = 0.5 * (x[:-2] + x[2:])


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="wrap")), y=cx.write)
def ring(x: Any, y: Any) -> None:
    y[...] = 0.5 * (x[:-2] + x[2:])


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def half(x: Any) -> Any:
    return x / 2


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
def total(x: Any, total: Any) -> None:
    total += x.sum()


def add_sum(x: Any, total: Any) -> None:
    total += x.sum()


def on(g: GraphBuilder) -> str:
    return ",".join(g.devices)


def allocations(g: GraphBuilder, array: Any) -> list[int]:
    """Return how often each device's memory allocated something for an array, which may be private."""
    made = [i.step.allocation for i in g.emitted if isinstance(i.step, Alloc)]
    mine = [a.memory for a in made if (a.array < 0 if array is None else a.array == array._storage.id)]
    return [mine.count(memory) for memory in range(2, 2 + DEVICES)]


def test_a_step_that_allocates_in_a_limited_memory_is_replayed() -> None:
    g = GraphBuilder(DEVICES, capacity=PLENTY, replay=True)
    x = g.array(ROWS, data=np.arange(float(ROWS)))
    with g:
        for _ in range(20):
            g.drop(half.using(devices=on(g))(x))
    assert g.recipes.recalled >= 10


def test_a_step_with_a_reduction_in_a_limited_memory_is_replayed() -> None:
    g = GraphBuilder(DEVICES, capacity=PLENTY, replay=True)
    x, norm = g.array(ROWS, data=np.arange(float(ROWS))), g.array((), 0.0)
    with g:
        for _ in range(20):
            total.using(devices=on(g))(x, norm)
    assert g.recipes.recalled >= 10


@pytest.mark.parametrize("capacity", [None, PLENTY])
def test_partial_results_of_a_reduction_are_one_allocation_and_one_copy_per_device(capacity: int | None) -> None:
    g = GraphBuilder(DEVICES, capacity=capacity)
    x, norm = g.array(ROWS, data=np.arange(float(ROWS))), g.array((), 0.0)
    blocks = [(g.devices[lo * DEVICES // ROWS], Box((lo,), (lo + 2,))) for lo in range(0, ROWS, 2)]
    task = g.call("sum", reads=x, reduces=norm, over=(ROWS,), chunks=blocks, body=add_sum)
    assert len(g.kernels(task)) == 8 * DEVICES
    assert allocations(g, None) == [1] * DEVICES
    back = [i for i in g.emitted if isinstance(i.step, Copy) and i.step.source.array < 0]
    assert len(back) == DEVICES and sum(copy.nbytes for copy in back) == 8 * 8 * DEVICES
    result = g.read(norm)
    g.verify()
    assert run_all(g.emitted, at_random(1)) == {}
    assert g.delivered[result.id] == np.arange(ROWS).sum()


def test_a_border_that_wraps_does_not_back_the_whole_axis() -> None:
    g = GraphBuilder(DEVICES)
    x, y = g.array(ROWS, data=np.arange(float(ROWS))), g.array(ROWS)
    with g:
        ring.using(devices=on(g))(x, y)
    made = [
        i.step.allocation for i in g.emitted if isinstance(i.step, Alloc) and i.step.allocation.array == x._storage.id
    ]
    for memory in range(2, 2 + DEVICES):
        assert sum(a.box.volume for a in made if a.memory == memory) == ROWS // DEVICES + 2


def test_a_norm_that_is_read_in_each_step_does_not_make_fields_grow() -> None:
    g = GraphBuilder(DEVICES, lookahead="auto")
    x, y, norm = g.array(ROWS, 1.0), g.array(ROWS, 0.0), g.array((), 0.0)
    with g:
        for _ in range(6):
            smooth.using(devices=on(g))(x, y)
            total.using(devices=on(g))(y, norm)
            g.read(norm)
            x, y = y, x
    assert allocations(g, x) == allocations(g, y) == [1] * DEVICES
