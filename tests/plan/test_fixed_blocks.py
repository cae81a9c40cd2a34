"""Fixed blocks: they depend on shapes and declarations alone, and parts are runs of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import InvariantError
from coexec.geometry import Box, whole
from coexec.graph.call import describe
from coexec.graph.task import Task
from coexec.plan.conflicts import Conflicts
from coexec.plan.fixed_blocks import BLOCKS, SHARED, boxes_of, set_grain
from coexec.plan.split import tiles
from coexec.program.call import DEFAULT


@cx.kernel(split=(0, 1), x=cx.read, out=cx.write)
def plain(x: Any, out: Any) -> None:
    out[...] = x


@cx.kernel(split=0, granule=7, a=cx.read(cx.axis(1)), b=cx.read(cx.all), out=cx.write)
def product(a: Any, b: Any, out: Any) -> None:
    out[...] = a @ b


@cx.kernel(split=0, x=cx.read, out=cx.update(cx.halo(1)))
def spilling(x: Any, out: Any) -> None:
    out[: len(x)] += x


def task_of(kernel: Any, *shapes: tuple[int, ...]) -> Task:
    with cx.Runtime("null:1") as runtime:
        arrays, scalars = kernel.bind([cx.zeros(shape, np.float32) for shape in shapes], {})
        task = describe(kernel, arrays, scalars, DEFAULT, runtime)
        set_grain(task, Conflicts().independent)
    return task


@given(rows=st.integers(1, 400), columns=st.integers(1, 4000))
def test_blocks_make_up_the_index_space(rows: int, columns: int) -> None:
    task = task_of(plain, (rows, columns), (rows, columns))
    if task.grain is None:
        assert rows == columns == 1
        return
    blocks = boxes_of(task.domain, task.domain, task.grain)
    assert tiles(task.domain, blocks)
    assert len(blocks) <= BLOCKS


def test_a_long_axis_is_cut_if_the_first_one_is_short() -> None:
    assert task_of(plain, (3, 90_000), (3, 90_000)).axes == (1,)
    assert task_of(plain, (300, 90_000), (300, 90_000)).axes == (0,)


def test_what_every_block_reads_whole_is_not_read_too_often() -> None:
    task = task_of(product, (4096, 500), (500, 2000), (4096, 2000))
    assert task.grain is not None and task.granule % 7 == 0
    assert len(boxes_of(task.domain, task.domain, task.grain)) <= SHARED


def test_blocks_that_would_touch_what_others_write_are_one_block() -> None:
    task = task_of(spilling, (90_000,), (90_000,))
    assert task.grain == (0, 90_000)


@given(st.data())
def test_parts_are_runs_of_blocks_or_refused(data: st.DataObject) -> None:
    rows, step = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 20))
    low = data.draw(st.integers(0, rows))
    high = data.draw(st.integers(low, rows))
    box = whole((3, rows))
    if low % step or (high % step and high != rows):
        with pytest.raises(InvariantError, match="not made of blocks"):
            boxes_of(Box((0, low), (3, high)), box, (1, step))
    else:
        found = boxes_of(Box((0, low), (3, high)), box, (1, step))
        assert all(block.lo[1] % step == 0 for block in found)
        assert sum(block.volume for block in found) == 3 * (high - low)
