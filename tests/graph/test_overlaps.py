"""Arguments that share elements are found by element, and each kind of call is told apart from those that are harmless."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.geometry import Box, cut
from coexec.graph.call import describe
from coexec.graph.overlaps import overlaps_of, sees_itself
from coexec.plan.conflicts import find_conflict, however_cut
from coexec.program.call import DEFAULT
from coexec.program.view import extract
from coexec.testing.graphs import GraphBuilder

VIEWS = [
    np.s_[:6], np.s_[6:], np.s_[3:9], np.s_[5::-1], np.s_[::2], np.s_[1::2], np.s_[::-2], np.s_[10::-2], np.s_[:1]
]  # fmt: skip
MAPPERS = {"same": cx.same, "all": cx.all, "halo": cx.halo(1), "few": cx.fixed(slice(1, 3))}


@given(st.data())
def test_overlaps_are_those_of_the_elements_that_are_touched(data) -> None:
    def view():
        chosen = data.draw(st.sampled_from(VIEWS))
        return arrays[data.draw(st.integers(0, 1))][chosen]

    def access():
        kind = data.draw(st.sampled_from([cx.read, cx.update, cx.write]))
        return kind(MAPPERS[data.draw(st.sampled_from(sorted(MAPPERS)))])

    g = GraphBuilder(1)
    arrays = [g.array(12), g.array(12)]
    with g:
        given_ = [view(), view(), view()]
        rows = min(a.shape[0] for a in given_)
        given_ = [a[:rows] for a in given_]

        @cx.kernel(split=0, over=(rows,), x=access(), y=access(), z=cx.update(access().mapper))
        def use(x, y, z):
            pass

        task = describe(use, given_, {}, DEFAULT, g)
    touched = [_elements(task, p, a, task.domain) for p, a in zip(task.accesses, task.arrays, strict=True)]
    writes = [p.access.writes for p in task.accesses]
    pairs = {(i, j) for i in range(3) for j in range(i + 1, 3) if (writes[i] or writes[j]) and touched[i] & touched[j]}
    assert {(o.first, o.second) for o in overlaps_of(task) if o.meet} == pairs
    assert sees_itself(task) == bool(pairs)
    if however_cut(task):
        for parts in (cut(task.domain, 0, 2), cut(task.domain, 0, rows)):
            assert find_conflict(task, parts, [str(i) for i in range(len(parts))]) is None


def _elements(task, param, array, part: Box) -> set[tuple[int, int]]:
    numbers = np.arange(array._storage.box.volume)
    seen = extract(numbers, (0,), array._box, array._cut)
    boxes = param.access.mapper.boxes(part, task.extents, array.shape)
    return {(array._storage.id, int(n)) for box in boxes for n in seen[box.slices((0,))]}


def described(kernel, *arrays):
    return describe(kernel, list(arrays), {}, DEFAULT, arrays[0]._storage.session)


@cx.kernel(split=0, x=cx.read, y=cx.update)
def user(x, y):
    y += x


@pytest.mark.parametrize("harmless", [True, False])
def test_a_ufunc_may_update_in_place_and_a_body_of_the_user_may_not_be_guessed(harmless) -> None:
    with GraphBuilder(1) as g:
        a: Any = g.array(8)
        np.add(a, 1.0, out=a)
        add = g.tasks[-1].kernel
        assert add is not None
        task = described(add if harmless else user, a, a)
    assert [o.same for o in overlaps_of(task)] == [True]
    assert sees_itself(task) is not harmless
    assert however_cut(task)


def test_a_reduction_into_an_array_that_is_read_overlaps_nothing() -> None:
    @cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
    def add(x, total):
        total += x.sum()

    with GraphBuilder(1) as g:
        a = g.array(8)
        assert overlaps_of(described(add, a, a[3, ...])) == []


def test_a_scalar_that_is_an_element_of_an_output_overlaps_it() -> None:
    @cx.kernel(split=0, y=cx.update)
    def scale(y, by):
        y *= by

    with GraphBuilder(1) as g:
        a = g.array(8)
        task = describe(scale, [a], {"by": a[3, ...]}, DEFAULT, g)
        assert sees_itself(task)
        assert not however_cut(task)
        assert not sees_itself(describe(scale, [a[4:]], {"by": a[3, ...]}, DEFAULT, g))


def test_parts_of_two_devices_must_not_write_between_each_other() -> None:
    """What a device writes is taken from its memory with what lies between."""

    @cx.kernel(split=0, p=cx.write, q=cx.write)
    def weave(p, q):
        p[...], q[...] = 1, 2

    with GraphBuilder(1) as g:
        a = g.array(16)
        task = described(weave, a[::2], a[1::2][::-1])
    parts = cut(task.domain, 0, 2)
    assert find_conflict(task, parts) is None
    assert find_conflict(task, parts, ["one", "one"]) is None
    assert find_conflict(task, parts, ["one", "other"]) is not None
    assert not however_cut(task)
    assert not sees_itself(task)
