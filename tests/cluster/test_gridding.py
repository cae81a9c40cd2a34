"""Index spaces that ranks cut along two axes, and when that is worth it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.cluster.gridding import MESSAGE, grid_for, received
from coexec.geometry import Box
from coexec.graph.call import describe
from coexec.graph.task import Task
from coexec.plan.split import spread
from coexec.program.call import DEFAULT
from coexec.testing.ranks import RankGraphs


@cx.kernel(split=(0, 1), u=cx.read(cx.halo(1, border="inside")), out=cx.update)
def stencil(u: Any, out: Any) -> None:
    out[...] = u[1:-1, 1:-1]


@cx.kernel(split=(0, 1), u=cx.read, out=cx.write)
def pointwise(u: Any, out: Any) -> None:
    out[...] = u


def parts_of(kernel: Any, shape: tuple[int, int], ranks: int) -> tuple[Task, list[Box], list[Box] | None]:
    with RankGraphs(2).ranks[0] as graph:
        u, out = (cx.zeros(shape, np.float64) for _ in range(2))
        task = describe(kernel, [u, out], {}, DEFAULT, graph)
        rows = spread(task.domain, 0, ranks)
        return task, rows, grid_for(task, task.axes, rows, 1)


@pytest.mark.parametrize(("ranks", "grid"), [(4, (2, 2)), (6, (3, 2)), (16, (4, 4))])
def test_long_edges_are_worth_more_messages(ranks: int, grid: tuple[int, int]) -> None:
    _, _, found = parts_of(stencil, (1_000_002, 1_000_002), ranks)
    assert found is not None and len(found) == ranks
    assert sum(part.volume for part in found) == 1_000_000**2
    assert (len({part.lo[0] for part in found}), len({part.lo[1] for part in found})) in (grid, grid[::-1])


@pytest.mark.parametrize("ranks", [2, 3, 5, 7])
def test_ranks_that_make_no_rectangle_cut_one_axis(ranks: int) -> None:
    assert parts_of(stencil, (1_000_002, 1_000_002), ranks)[2] is None


def test_short_edges_and_calls_without_neighbours_are_cut_along_one_axis() -> None:
    assert parts_of(stencil, (2002, 2002), 16)[2] is None
    assert parts_of(pointwise, (1_000_000, 1_000_000), 16)[2] is None


def test_a_part_in_the_middle_gets_a_row_from_each_side() -> None:
    task, rows, _ = parts_of(stencil, (1602, 802), 16)
    whole, mine = 1602 * 802, 102 * 802
    assert received(task, rows, 8) == pytest.approx((mine - whole / 16) * 8 + 2 * MESSAGE)
