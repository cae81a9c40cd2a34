"""Parts that are cut again: pieces of equal work that tile each device's part, and calls that may not have them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import ArgumentError
from coexec.geometry import Box, Region, bounding, whole
from coexec.graph.command import Chunk
from coexec.plan.split import cut_again, even
from coexec.program.mapper import halo
from coexec.testing.graphs import GraphBuilder
from coexec.testing.model_memory import at_random, run_all
from tests.devices import TWO
from tests.plan.planning import Planning, unlike


@cx.kernel(split=(0, 1), x=cx.read, y=cx.write)
def flat(x, y):
    y[...] = x


@cx.kernel(split=0, x=cx.read, y=cx.write)
def double(x, y):
    y[...] = 2 * x


@cx.kernel(split=0, x=cx.read, y=cx.write, weight=lambda rows: rows + 1.0)
def triangle(x, y):
    y[...] = 3 * x


@pytest.mark.parametrize("kernel", [flat, double, triangle])
@given(st.integers(1, 50), st.integers(1, 20), st.integers(1, 6), st.integers(1, 9), st.integers(1, 5))
def test_pieces_tile_the_part_of_each_device(kernel, rows, columns, devices, count, granule) -> None:
    """B31, B62."""
    planning = Planning()
    task = planning.task(kernel, planning.array(rows, columns), planning.array(rows, columns))
    chunks = even(task.domain, kernel.split, [f"dev:{i}" for i in range(devices)], granule)
    pieces = cut_again(task, chunks, count, lambda device: granule)
    assert [piece.chunk.slot for piece in pieces] == list(range(len(pieces)))
    for number, chunk in enumerate(chunks):
        mine = [piece for piece in pieces if piece.of == (number,)]
        boxes = [piece.chunk.box for piece in mine]
        assert not any(box.empty for box in boxes) and {piece.chunk.device for piece in mine} == {chunk.device}
        assert Region(boxes) == Region([chunk.box]) and sum(box.volume for box in boxes) == chunk.box.volume
        most = max(-(-chunk.box.shape[axis] // granule) for axis in kernel.split)
        assert len(mine) == min(count, most)
        assert all((box.lo[a] - chunk.box.lo[a]) % granule == 0 for box in boxes for a in kernel.split)
        assert sum(piece.part for piece in mine) == pytest.approx(1.0)


def test_a_part_that_was_cut_already_is_one_part() -> None:
    planning = Planning()
    task = planning.task(double, planning.array(12), planning.array(12))
    chunks = [Chunk("dev:0", Box((0,), (4,))), Chunk("dev:0", Box((4,), (8,))), Chunk("dev:1", Box((8,), (12,)))]
    pieces = cut_again(task, chunks, 4, lambda device: 1)
    assert [(p.chunk.device, p.chunk.box.lo[0], p.chunk.box.hi[0]) for p in pieces] == [
        *[("dev:0", i, i + 2) for i in range(0, 8, 2)],
        *[("dev:1", i, i + 1) for i in range(8, 12)],
    ]
    assert pieces[0].of == (0, 1)


def test_pieces_of_weighted_rows_are_equal_work() -> None:
    planning = Planning(platform=unlike(), policy="even")
    x, y = planning.on_host(400_000), planning.on_host(400_000)
    chunks = planning.plan(triangle, x, y, oversubscribe=4).command.chunks
    assert len(chunks) == 8
    for device in ("dev:0", "dev:1"):
        work = [float(c.box.hi[0]) ** 2 - float(c.box.lo[0]) ** 2 for c in chunks if c.device == device]
        assert max(work) == pytest.approx(min(work), rel=0.01)


@pytest.mark.parametrize("policy", ["static", "even"])
@pytest.mark.parametrize("own", [(False, False), (False, True)])
def test_each_device_gets_as_many_kernels_as_asked(policy, own) -> None:
    """B31. Predictions and loads are those of the parts."""
    planning = Planning(platform=unlike(own=own, granule=4), policy=policy)
    x, y = planning.on_host(100_000), planning.on_host(100_000)
    planning.teach(double, [x, y], {"dev:0": 1e6, "dev:1": 5e5})
    whole_parts = planning.rows(double, x, y)
    seconds = dict(planning.loads.seconds)
    planned = planning.plan(double, x, y, oversubscribe=3)
    chunks = planned.command.chunks
    for device in ("dev:0", "dev:1"):
        mine = [chunk.box for chunk in chunks if chunk.device == device]
        assert len(mine) == 3 and bounding(mine).shape == (whole_parts[device],)
        assert all(box.shape[0] % 4 == 0 for box in mine[:-1])
        given_seconds = sum(s.seconds or 0 for c, s in zip(chunks, planned.shares, strict=True) if c.device == device)
        assert given_seconds == pytest.approx(seconds[device], rel=0.3)
    assert "each part in 3 pieces" in planned.command.why
    for chunk, share in zip(chunks, planned.shares, strict=True):
        planning.loads.remove(chunk.device, share.seconds)
    assert min(planning.loads.tasks.values()) >= 0


def test_one_device_is_oversubscribed_too() -> None:
    planning = Planning(1)
    planned = planning.plan(double, planning.on_host(64), planning.on_host(64), oversubscribe=4)
    assert [chunk.box.shape for chunk in planned.command.chunks] == [(16,)] * 4


def test_pieces_that_would_conflict_are_not_made() -> None:
    @cx.kernel(split=0, over=8, x=cx.update(cx.all))
    def everything(x):
        x += 1

    planning = Planning(1)
    with pytest.warns(cx.CoexecWarning, match="undivided"):
        assert len(planning.plan(everything, planning.on_host(8), oversubscribe=4).command.chunks) == 1


def test_calls_that_cannot_be_oversubscribed_say_why() -> None:
    """B31."""

    @cx.kernel(x=cx.update)
    def indivisible(x):
        x += 1

    @cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
    def reduction(x, total):
        total += x.sum()

    @cx.host_task(x=cx.read)
    def outside(x):
        pass

    cases: list[tuple[cx.Kernel, Any, str]] = [
        (indivisible, 2, "no split="),
        (reduction, 2, "blocks are fixed"),
        (outside, 2, "host tasks"),
        (double, 0, "whole number from 1"),
        (double, 2.0, "whole number from 1"),
    ]
    for kernel, count, why in cases:
        with pytest.raises(ArgumentError, match=f"cannot have oversubscribe={count!r}: .*{why}"):
            kernel.using(oversubscribe=count)
    indivisible.using(oversubscribe=1)


def test_a_neighbourhood_of_oversubscribed_parts_is_copied_once_and_waits_for_its_producer_only() -> None:
    """B31. Four pieces on either of two devices: each rim moves once, behind the piece that made it."""
    g = GraphBuilder(2)
    u, v = g.array(64), g.array(64)
    g.call("make", writes=u, on="all", oversubscribe=4)
    step = g.call("step", reads=(u, halo(1)), writes=v, on="all", oversubscribe=4)
    assert len(g.kernels(step)) == 8
    copies = g.of(step).of("copy", reason="coherence")
    assert len(copies) == 2 and sum(box.volume for i in copies for box in i.step.boxes) == 2
    assert all(len(copy.needs) == 1 for copy in copies)
    g.verify()


@given(st.integers(1, 5), st.integers(1, 4), st.booleans(), st.integers(0, 2**16))
def test_oversubscribed_stencils_on_tiles_compute_what_numpy_computes(devices, count, axes, seed) -> None:
    g = GraphBuilder(devices)
    values = np.random.default_rng(seed).integers(0, 50, (7, 9)).astype(float)
    u, v = g.array((7, 9), data=values), g.array((7, 9), 0.0)

    def step(u, v):
        v[...] = u[:-2, 1:-1] + u[2:, 1:-1] + 2 * u[1:-1, :-2] + 3 * u[1:-1, 2:] - u[1:-1, 1:-1]

    mapper = halo(1, "wrap", shape="axes" if axes else "box")
    expected = values.copy()
    for _ in range(3):
        g.call("step", reads=(u, mapper), writes=v, on="all", split=(0, 1), oversubscribe=count, body=step)
        after = np.empty_like(expected)
        step(np.pad(expected, 1, mode="wrap"), after)
        expected, u, v = after, v, u
    read = g.read(u)
    g.verify()
    assert run_all(g.emitted, at_random(seed)) == {}
    np.testing.assert_array_equal(g.delivered[read.id], expected)


@pytest.mark.parametrize("policy", ["static", "even", "auto", "dynamic"])
def test_oversubscribed_calls_are_right_end_to_end(policy) -> None:
    with cx.Runtime(TWO):
        x, y = cx.array(np.arange(30_000.0)), cx.zeros(30_000)
        for _ in range(3):
            double.using(devices=TWO, policy=policy, oversubscribe=3)(x, y)
            triangle.using(devices=TWO, policy=policy, oversubscribe=5)(y, x)
        expected = np.arange(30_000.0) * 6**3
        np.testing.assert_array_equal(np.asarray(x), expected)
        if policy == "even":
            plan = double.using(devices=TWO, policy=policy, oversubscribe=3).plan(x, y)
            assert len(plan.parts) == 3 * len(TWO.split(","))
            assert Region([Box(part.lo, part.hi) for part in plan.parts]) == Region([whole((30_000,))])


def test_oversubscribed_calls_run_on_null_devices(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    with cx.Runtime("null:4", trace=file):
        x, y = cx.ones((64, 64)), cx.empty((64, 64))
        task = flat.using(policy="even", devices="null:0,null:1,null:2,null:3", oversubscribe=2)(x, y)
        task.result()
    ran = Counter(row["device"] for row in cx.Trace.load(file).ran if row["name"] == "flat")
    assert ran == {f"null:{i}": 2 for i in range(4)}
