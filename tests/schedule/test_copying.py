"""A copy of a scheduler goes on as the original would, and neither notices the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings, strategies as st

from coexec.program.array import Array
from coexec.program.mapper import halo
from coexec.testing.graphs import GraphBuilder

SIZE = 24


def act(g: GraphBuilder, arrays: list[Array], step: tuple[int, int, int]) -> None:
    """Do one of several things with three arrays."""
    kind, first, second = step
    a, b = arrays[first], arrays[second]
    on = ["all", "dev:0", "dev:1"][(kind + first) % 3]
    if kind == 0:
        g.call("update", updates=a, on=on)
    elif kind == 1 and first != second:
        g.call("near", reads=(a, halo(1)), writes=b, on="all")
    elif kind == 2:
        g.call("part", updates=a[: SIZE // 2], on=on)
    elif kind == 3:
        g.call("even", updates=a[::2])
    elif kind == 4:
        g.read(a)
    elif kind == 5:
        g.horizon()
    elif kind == 6:
        g.host_task("look", reads=a)
    else:
        g.epoch()


def seen(g: GraphBuilder, since: int) -> list[Any]:
    """Return all that instructions say, by number."""
    found = []
    for i in g.emitted[since:]:
        task = None if i.task is None else (i.task.id, i.task.name, i.task.after)
        what = [str(getattr(i.step, name, None)) for name in ("device", "box", "boxes", "chunk")]
        places = [getattr(getattr(i.step, name, None), "id", None) for name in ("allocation", "source", "target")]
        found.append((i.id, i.kind, sorted(set(i.needs)), sorted(set(i.after) - set(i.needs)), what, places, task))
    return found


STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2), st.integers(0, 2)), max_size=14)


@settings(max_examples=60)
@example([(0, 2, 0), (2, 1, 0)], [(0, 0, 0), (1, 0, 0), (2, 0, 0)], [], True, 8 * 2 * SIZE)
@given(STEPS, STEPS, STEPS, st.booleans(), st.sampled_from([None, 8 * 2 * SIZE, 8 * 5 * SIZE]))
def test_a_copy_becomes_what_the_original_would_and_neither_notices_the_other(
    before: list[Any], there: list[Any], here: list[Any], replay: bool, capacity: int | None
) -> None:
    builders = []
    for _ in range(2):  # one that is copied, and one that nobody touches
        g = GraphBuilder(2, paged=False, replay=replay, capacity=capacity)
        arrays = [g.array(SIZE, data=np.arange(SIZE)), g.array(SIZE, 1.0), g.array(SIZE, data=np.ones(SIZE))]
        for step in before:
            act(g, arrays, step)
        builders.append((g, arrays))
    (g, arrays), (untouched, theirs) = builders
    copy, twins = g.copy(arrays)
    begin, begun = len(copy.emitted), len(untouched.emitted)
    for step in there:
        act(copy, twins, step)
        act(untouched, theirs, step)
    assert seen(copy, begin) == seen(untouched, begun)
    fresh = GraphBuilder(2, paged=False, replay=replay, capacity=capacity)
    others = [fresh.array(SIZE, data=np.arange(SIZE)), fresh.array(SIZE, 1.0), fresh.array(SIZE, data=np.ones(SIZE))]
    for step in (*before, *here):
        act(fresh, others, step)
    for step in here:
        act(g, arrays, step)
    assert seen(g, 0) == seen(fresh, 0)


def test_a_copy_knows_only_the_arrays_that_it_was_asked_for_and_costs_as_much_as_they_do() -> None:
    g = GraphBuilder(2)
    arrays = [g.array(SIZE, 0.0) for _ in range(50)]
    for array in arrays:
        g.call("update", updates=array, on="all")
    copy, (twin,) = g.copy(arrays[7:8])
    assert list(copy.lowering.states()) == [arrays[7]._storage.id] == [twin._storage.id]
    assert twin._storage is not arrays[7]._storage
    assert copy.lowering.live() < g.lowering.live() / 10


def test_an_array_that_is_made_in_a_copy_has_the_number_that_it_would_have_had() -> None:
    g = GraphBuilder(1)
    first = g.array(SIZE, 0.0)
    copy, _ = g.copy([first])
    assert copy.array(SIZE)._storage.id == g.array(SIZE)._storage.id
