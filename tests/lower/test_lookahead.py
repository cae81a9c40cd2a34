"""Lookahead: what is held, what lets it go, and how many allocations are left. B41 to B47 of the Celerity reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import PlanError
from coexec.geometry import Box
from coexec.graph.command import Command
from coexec.machine.platform import HOST
from coexec.program.mapper import all as map_all, fixed, halo
from coexec.schedule.events import HELD, Settle
from coexec.schedule.hold import LEVELS, MOST_HELD, TASKS
from coexec.testing.graphs import GraphBuilder
from coexec.testing.model_memory import at_random, run_all
from tests.lower.patterns import growing
from tests.lower.programs import lowered, programs

MODES = ("auto", "none", "infinite")


def names(g: GraphBuilder) -> list[str]:
    return [i.task.name for i in g.instructions.of("kernel", "host task")]


# What passes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_command_that_allocates_nothing_is_lowered_at_once(mode: str) -> None:
    """B41."""
    g = GraphBuilder(2, lookahead=mode)
    a = g.array(100)
    g.call("make", writes=a, on="all")
    g.flush()
    for _ in range(3):
        g.call("use", updates=a, on="all")
        assert not g.lookahead.holding
    assert len(g.instructions.of("kernel", task="use")) == 6
    g.call("nothing", over=10)
    assert names(g)[-1] == "nothing"


@pytest.mark.parametrize("mode", MODES)
def test_whole_arrays_and_paged_memory_are_never_held(mode: str) -> None:
    for g in (GraphBuilder(2, lookahead=mode), GraphBuilder(2, shared=True, lookahead=mode)):
        a, b = g.array(100, 1.0), g.array(100)
        g.call("whole", reads=a, writes=b)
        g.host_task("print", reads=b[:50])
        assert names(g) == ["whole", "print"]
    g = GraphBuilder(2, shared=True, lookahead=mode)
    a = g.array(100, 1.0)
    g.call("part", updates=a, on="all")
    assert g.lookahead.off and len(names(g)) == 2


@pytest.mark.parametrize("mode", ["auto", "infinite"])
def test_a_part_that_grows_to_the_whole_array_is_held_no_longer(mode: str) -> None:
    g = GraphBuilder(lookahead=mode)
    a = g.array(100)
    g.call("part", writes=a[:50])
    assert names(g) == []
    g.call("whole", updates=a)
    assert names(g) == ["part", "whole"]
    assert g.instructions.of("alloc").allocated == [a._box]


# What is held -------------------------------------------------------------------------------------------------------------


def test_automatic_holds_an_allocating_command_until_the_critical_path_has_grown_by_two_steps() -> None:
    """B42."""
    g = GraphBuilder(2, lookahead="auto")
    a, b = g.array(100, 0.0), g.array(100)
    g.call("make", writes=b, on="all")
    g.call("use", reads=(b, halo(1)), updates=a, on="all")
    for step in range(1, LEVELS):
        g.call("again", updates=a, on="all")
        assert names(g) == [], step
    g.call("again", updates=a, on="all")
    assert len(names(g)) == 2 * len(g.tasks)
    assert len(g.instructions.of("alloc", array=b)) == 2
    assert not g.instructions.of("copy", reason="resize")
    g.verify()


def test_automatic_holds_an_allocating_command_until_many_independent_tasks_have_come() -> None:
    """B42."""
    g = GraphBuilder(lookahead="auto")
    a = g.array(100)
    g.call("make", writes=a[:10])
    others = [g.array(10) for _ in range(TASKS)]
    for other in others[:-1]:
        g.call("other", writes=other)
    assert names(g) == []
    g.call("other", writes=others[-1])
    assert len(names(g)) == 1 + TASKS


def test_without_lookahead_every_step_that_grows_allocates() -> None:
    """B43."""
    g = GraphBuilder(lookahead="none")
    growing(g, 20)
    assert len(g.instructions.of("alloc")) == 20
    assert len(g.instructions.of("copy", reason="resize")) == 19
    g.verify()


def test_infinite_emits_nothing_before_a_flush_an_epoch_or_a_read() -> None:
    """B43."""
    for let_go in (GraphBuilder.flush, GraphBuilder.epoch, lambda g: g.read(g.array(3, 0.0))):
        g = GraphBuilder(lookahead="infinite")
        growing(g, 20)
        for _ in range(3 * TASKS):
            g.call("other", over=10)
        assert names(g) == []
        let_go(g)
        assert len(names(g)) == 20 + 3 * TASKS
        assert g.instructions.of("alloc", to=2).allocated == [Box((0,), (200,))]
        g.verify()


def test_automatic_emits_no_kernel_while_accesses_keep_growing_and_one_allocation_after_a_flush() -> None:
    """B44."""
    g = GraphBuilder(lookahead="auto")
    growing(g, 20)
    assert names(g) == []
    g.flush()
    assert len(names(g)) == 20
    assert g.instructions.of("alloc").allocated == [Box((0,), (200,))]
    assert not g.instructions.of("copy")
    g.verify()


def test_an_array_that_keeps_growing_does_not_hold_what_came_before_it() -> None:
    g = GraphBuilder(lookahead="auto")
    a, b = g.array(1000), g.array(1000, 0.0)
    g.call("make", writes=a[:100])
    for step in range(LEVELS + 1):
        g.call("grow", updates=b[: 10 * (step + 1)])
    assert names(g) == ["make"]


@pytest.mark.parametrize("let_go", ["epoch", "read", "flush"])
def test_an_epoch_a_read_and_a_flush_empty_the_queue(let_go: str) -> None:
    """B45."""
    g = GraphBuilder(2, lookahead="auto")
    a, b = g.array(100), g.array(100)
    g.call("make", writes=a, on="all")
    g.call("use", reads=(a, halo(1)), writes=b, on="all")
    assert names(g) == []
    {"epoch": g.epoch, "read": lambda: g.read(b[:3]), "flush": g.flush}[let_go]()
    assert len(names(g)) == 4 and not g.lookahead.holding
    g.verify()


def test_a_horizon_waits_in_its_turn() -> None:
    g = GraphBuilder(lookahead="infinite")
    a = g.array(100)
    g.call("make", writes=a[:10])
    horizon = g.horizon()
    g.call("use", updates=a[:20])
    assert g.instructions.kinds == ["epoch"]
    g._send(Settle(HELD, horizon))
    assert g.instructions.kinds == ["epoch", "alloc", "kernel", "horizon"]
    assert g.instructions.of("alloc").allocated == [Box((0,), (20,))]
    g.flush()
    g.verify()


def test_infinite_survives_ten_times_the_run_ahead() -> None:
    """The program passes a horizon only when the one before is over: that one, and all before it, is released."""
    g = GraphBuilder(2, lookahead="infinite")
    a = g.array(100_000)
    before = g.horizon()
    most = 0
    step = 64
    for task in range(10 * 2 * step):
        g.call("grow", writes=a[: task + 1])
        if task % step == step - 1:
            g._send(Settle(HELD, before))
            before = g.horizon()
        most = max(most, len(g.lookahead))
    assert most <= 2 * (step + 1)
    g.epoch()
    assert len(names(g)) == 10 * 2 * step
    assert len(g.instructions.of("alloc")) <= 21


def test_automatic_holds_no_more_than_so_many_commands() -> None:
    g = GraphBuilder(lookahead="auto")
    for _ in range(3):
        growing(g, MOST_HELD, 10 * MOST_HELD + 1)
        assert len(g.lookahead) <= MOST_HELD
        g.call("grow", updates=g.array(100, 0.0)[:10])
    assert len(names(g)) >= 2 * MOST_HELD


# Order --------------------------------------------------------------------------------------------------------------------


def test_an_array_dropped_while_its_commands_are_held_is_freed_after_them() -> None:
    g = GraphBuilder(2, lookahead="infinite")
    a, b = g.array(100), g.array(100)
    g.call("make", writes=a, on="all")
    g.call("use", reads=(a, map_all), writes=b, on="all")
    assert g.drop(a) == []
    g.flush()
    kernels, frees = g.instructions.of("kernel"), g.instructions.of("free")
    assert len(frees) == 2
    assert all(free.id > kernel.id for free in frees for kernel in kernels)
    g.verify()


def test_a_dropped_array_does_not_grow_any_more() -> None:
    g = GraphBuilder(2, lookahead="auto")
    a = g.array(100)
    g.call("make", writes=a, on="all")
    g.drop(a)
    assert len(names(g)) == 2 and not g.lookahead.holding


def test_new_arrays_are_there_at_once() -> None:
    g = GraphBuilder(lookahead="infinite")
    a = g.array(100)
    g.call("make", writes=a[:10])
    b = g.array(100, data=range(100))
    assert b._storage.state.held_by(b._box) == 1 << HOST
    g.call("use", reads=b, updates=a)
    assert names(g) == ["make", "use"]
    g.verify()


def test_plans_see_where_held_commands_will_leave_their_data() -> None:
    g = GraphBuilder(2, lookahead="infinite")
    a = g.array(100, data=range(100))
    total = g.array((), 0.0)
    half = Box((0,), (50,))
    g.call("write", updates=a, on="all")
    state = a._storage.state
    assert state.valid.uniform == 1 << HOST
    assert state.held_by(half) == 1 << 2
    g.call("read", reads=(a, fixed(slice(0, 10))), over=10, on="dev:1")
    assert state.held_by(Box((0,), (10,))) == 0b1100
    assert [part for part, mask in state.places(half) if not mask >> 3 & 1] == [Box((10,), (50,))]
    g.call("sum", reads=a, reduces=total, over=100, on="all")
    assert total._storage.state.held_by(total._box) == 1 << HOST
    g.flush()
    assert state.expected is None and state.held_by(half) == 1 << 2


def test_what_goes_wrong_with_a_held_command_is_told_to_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    g = GraphBuilder(2, peers=False, lookahead="infinite")
    g.raises = False
    a = g.array(100)
    g.call("make", writes=a[:50])
    task = g.call("next", updates=a[:60])
    lower = g.recipes.lower

    def without_room(command: Command, *others: Any, **more: Any) -> Any:
        if command.task is task:
            raise PlanError("no room")
        return lower(command, *others, **more)

    monkeypatch.setattr(g.recipes, "lower", without_room)
    g.call("after", updates=a[:50])
    g.flush()
    ((refused, failure),) = g.refused
    assert refused is task and str(failure.__cause__) == "no room" and names(g) == ["make", "after"]


def test_an_error_of_something_without_a_task_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    g = GraphBuilder(lookahead="infinite")
    g.call("make", writes=g.array(100)[:50])
    dropped = g.array(3)

    def wrong(array: int) -> Any:
        raise ZeroDivisionError(array)

    monkeypatch.setattr(g.lowering, "drop", wrong)
    g.drop(dropped)
    with pytest.raises(ZeroDivisionError):
        g.flush()
    assert not g.lookahead.holding


def test_levels_are_forgotten_while_something_is_always_held() -> None:
    g = GraphBuilder(lookahead="auto")
    a = [g.array(100, 0.0) for _ in range(4000)]
    u = g.array(50, 0.0)
    for size, array in enumerate(a):
        g.call("use", reads=u, updates=array[: 10 + size % 80])
        assert len(g.lookahead._levels) <= 2049
        assert len(g.lookahead) <= MOST_HELD


# Any program --------------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(programs(most=20), st.sampled_from(("auto", "infinite")), st.integers(0, 2**16))
def test_any_program_computes_the_same_with_lookahead(program: dict[str, Any], mode: str, seed: int) -> None:
    twin = lowered(program, lookahead=mode)
    twin.g.verify()
    assert run_all(twin.g.emitted, at_random(seed)) == {}
    twin.check()


@settings(max_examples=100)
@given(programs(most=20))
def test_lookahead_never_makes_more_allocations(program: dict[str, Any]) -> None:
    """But for boxes that stood apart when a later one would have joined them."""
    counts = {mode: len(lowered(program, lookahead=mode).g.instructions.of("alloc")) for mode in MODES}
    assert counts["infinite"] <= counts["none"]
    assert counts["auto"] <= counts["none"]
