"""How much is remembered, and when it is let go: B64 and B65 of the Celerity reference."""

from __future__ import annotations

import pytest

from coexec.geometry import Box
from coexec.lower.state import ArrayState
from coexec.program.mapper import all as map_all, halo
from coexec.testing.graphs import GraphBuilder


@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_last_writers_of_a_growing_array_are_exactly_those_of_two_horizons_and_one_for_all_before(
    step: int,
) -> None:
    """B64: rows are written one by one, each from all before it."""
    g = GraphBuilder(1, shared=True)
    a = g.array((100, 4), 0.0)
    for row in range(100):
        g.call("row", reads=(a[:row], map_all), writes=a[row : row + 1])
        done = row + 1
        if done % step == 0:
            g.horizon()
        if done >= step:
            state: ArrayState = a._storage.state
            (backing,) = state.all_backings()
            for tracker in (backing.tracker, a._storage.tracker):
                assert len({id for _, id in tracker.writers(a._box)}) == 1 + step + done % step
    known = {*g.lowering.ids(), g.lowering.emitter.epoch}
    assert len([i for i in g.instructions.of("horizon") if i.id in known]) <= 3
    g.verify()


def test_what_is_remembered_of_a_program_that_goes_on_does_not_grow() -> None:
    """B64: boxes of every size, on two devices."""
    g = GraphBuilder(2)
    u, v = g.array(64, 1.0), g.array(64, 1.0)
    sizes = []
    for _ in range(12):
        for lo in range(0, 64, 8):
            g.call("boxes", updates=u[lo : lo + 8], on="dev:0")
        g.call("step", reads=(u, halo(1)), writes=v, on="all")
        g.horizon()
        u, v = v, u
        sizes.append((g.lowering.live(), g.graph.live()))
    assert max(sizes[4:8]) == max(sizes[8:12])
    g.verify()


def test_arrays_that_come_and_go_leave_nothing_behind() -> None:
    """B64: temporaries, each dropped after its use."""
    g = GraphBuilder(2)
    x = g.array(64, 1.0)
    sizes = []
    for _ in range(10):
        for _ in range(5):
            temporary = g.array(64)
            g.call("make", reads=x, writes=temporary, on="all")
            g.call("use", reads=temporary, updates=x, on="all")
            g.drop(temporary)
        g.horizon()
        sizes.append((g.lowering.live(), g.graph.live(), len(g.lowering.states())))
    assert sizes[3] == sizes[-1] and sizes[-1][2] == 1


def test_the_need_of_a_horizon_grows_with_every_task_and_horizons_and_epochs_end_it() -> None:
    """B65. Ours counts tasks: that bounds the longest path and the widest front alike."""
    g = GraphBuilder(2)
    a, b = g.array(10, 1.0), g.array(10, 1.0)
    for number in range(1, 4):
        g.call("chain", updates=a, on="all")
        assert g.graph.since_horizon == number
    g.call("beside", updates=b)
    g.host_task("host", updates=b)
    g.read(a)
    assert g.graph.since_horizon == 6
    g.horizon()
    assert g.graph.since_horizon == 0
    g.call("more", updates=a)
    g.epoch()
    assert g.graph.since_horizon == 0
    g.drop(a)  # arrays that come and go are no tasks
    g.array(10)
    assert g.graph.since_horizon == 0


@pytest.mark.parametrize("wide", [False, True])
def test_a_horizon_comes_after_the_whole_front_and_is_the_front_then(wide: bool) -> None:
    """B65."""
    g = GraphBuilder(1, shared=True)
    arrays = [g.array(10, 1.0) for _ in range(6)]
    tasks = [g.call("work", updates=arrays[number if wide else 0]) for number in range(6)]
    horizon = g.horizon()
    assert set(horizon.after) == ({task.id for task in tasks} if wide else {tasks[-1].id})
    emitted = g.instructions.of("horizon").only()
    assert all(g.emitted_graph.ordered(kernel, emitted) for task in tasks for kernel in g.kernels(task))
    second = g.horizon()
    assert second.after == (horizon.id,)


def test_boxes_from_before_a_horizon_become_one_again() -> None:
    """B64: an array cut in a hundred is one entry again when two horizons have passed."""
    g = GraphBuilder(1, shared=True)
    a = g.array(100, 1.0)
    for at in range(100):
        g.call("point", updates=a[at : at + 1])
    (backing,) = a._storage.state.all_backings()
    assert len(backing.tracker) == 100
    g.horizon()
    assert len(backing.tracker) == 100
    g.horizon()
    assert [box for box, _ in backing.tracker.writers(a._box)] == [Box((0,), (100,))] and len(backing.tracker) == 1
