from __future__ import annotations

from typing import cast

import numpy as np

import coexec as cx
from coexec.geometry import Box
from coexec.graph.call import describe
from coexec.graph.mapped import mapped, remembered
from coexec.program import session
from coexec.program.call import DEFAULT
from coexec.runtime import Runtime


def task_of(kernel, *args):
    arrays, scalars = kernel.bind(args, {})
    return describe(kernel, arrays, scalars, DEFAULT, cast("Runtime", session.current()))


def test_what_a_part_touches_is_worked_out_once_for_equal_shapes():
    @cx.kernel(split=0, u=cx.read(cx.halo(1)), out=cx.write)
    def smooth(u, out):
        out[...] = u[: len(out)]

    with cx.Runtime("null:1"):
        arrays = [cx.zeros((8, 3)) for _ in range(4)]
        part = Box((2, 0), (4, 3))
        first = mapped(task_of(smooth, arrays[0], arrays[1]), part)
        assert first[0] is not None and first[0].box == Box((1, 0), (5, 3))
        assert mapped(task_of(smooth, arrays[2], arrays[3]), part) is first
        assert mapped(task_of(smooth, cx.zeros((9, 3)), cx.zeros((9, 3))), part) is not first


def test_what_a_user_s_range_mapper_says_is_asked_every_time():
    rows = [1]

    @cx.kernel(split=0, u=cx.read(lambda chunk: slice(0, rows[0])), out=cx.write)
    def head(u, out):
        out[...] = u.sum()

    with cx.Runtime("null:1"):
        u, out = cx.zeros(8), cx.zeros(8)
        assert remembered(task_of(head, u, out)) is None
        for rows[0] in (1, 5):
            found = mapped(task_of(head, u, out), Box((0,), (4,)))[0]
            assert found is not None and found.box == Box((0,), (rows[0],))


def test_boxes_of_views_are_placed_in_the_array_behind_them():
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def copy(x, y):
        y[...] = x

    with cx.Runtime("null:1"):
        base = cx.array(np.zeros((10, 4)))
        view = base[2:8]
        found = mapped(task_of(copy, view, cx.zeros((6, 4))), Box((1, 0), (3, 4)))[0]
        assert found is not None and found.of(view) == (Box((3, 0), (5, 4)), None)
