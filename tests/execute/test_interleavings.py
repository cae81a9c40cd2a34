"""Every interleaving of small programs, and random ones of larger: real engine, executor and bodies, no threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import InvariantError, TaskCancelled, TaskFailed
from coexec.geometry import Box
from coexec.graph.task import Task
from coexec.program.array import Array
from coexec.program.mapper import halo
from coexec.testing.graphs import GraphBuilder
from coexec.testing.interleave import Drive, Scene, every_choice, explore, sample
from tests.lower.programs import lowered, programs

Checked = tuple[GraphBuilder, Callable[[Drive], None]]


def double(x: Any) -> None:
    x *= 2.0


def add(x: Any, y: Any) -> None:
    y += x


def blur(u: Any, out: Any) -> None:
    out[...] = u[:-2] + u[1:-1] + u[2:]


def fail(*arrays: Any) -> None:
    arrays[-1][...] = -1.0  # half-way done
    raise ValueError("the body says no")


def expecting(g: GraphBuilder, wanted: list[tuple[Array, Any]]) -> Checked:
    """Read arrays in the end and compare."""
    reads = [(g.read(array), values) for array, values in wanted]

    def check(drive: Drive) -> None:
        for task, values in reads:
            np.testing.assert_array_equal(g.delivered[task.id], values)
        assert all(task.finished and task.failure is None for task in g.tasks)

    return g, check


def chain() -> Checked:
    g = GraphBuilder(2)
    x = g.array(4, data=np.arange(4.0))
    for number in range(3):
        g.call("double", updates=x, on=f"dev:{number % 2}", body=double)
    return expecting(g, [(x, 8.0 * np.arange(4))])


def diamond() -> Checked:
    g = GraphBuilder(2, shared=True)
    x, left, right = (g.array(4, data=values) for values in (np.ones(4), np.zeros(4), np.zeros(4)))
    g.call("double", updates=x, on="dev:0", body=double)
    g.call("left", reads=x, updates=left, on="dev:0", body=add)
    g.call("right", reads=x, updates=right, on="dev:1", body=add)
    g.call("join", reads=left, updates=right, on="dev:1", body=add)
    g.call("over", updates=x, on="dev:0", body=double)
    return expecting(g, [(right, np.full(4, 4.0)), (x, np.full(4, 4.0))])


def exchange(devices: int, steps: int) -> Checked:
    """A stencil on two arrays: every step waits for its neighbours' halo, and overwrites what they have read."""
    g = GraphBuilder(devices)
    size = 2 * devices
    u, v = g.array(size, data=np.arange(float(size))), g.array(size)
    plain = np.arange(float(size))
    for _ in range(steps):
        g.call("blur", reads=(u, halo(1, border="wrap")), writes=v, on="all", body=blur)
        plain = np.roll(plain, 1) + plain + np.roll(plain, -1)
        u, v = v, u
    return expecting(g, [(u, plain)])


def total() -> Checked:
    g = GraphBuilder(2)
    x, result = g.array(4, data=np.arange(4.0), borrowed=True), g.array((), data=10.0)
    g.call("sum", reads=x, reduces=result, over=(4,), on="all", body=lambda x, out: out.__iadd__(x.sum()))
    return expecting(g, [(result, 16.0)])


def scenes() -> dict[str, Scene]:
    return {"chain": chain, "diamond": diamond, "two devices": lambda: exchange(2, 1), "reduction": total}


@pytest.mark.parametrize("across", [False, True], ids=["host orders lanes", "devices order lanes"])
@pytest.mark.parametrize("name", scenes())
def test_every_interleaving_is_right(name: str, across: bool) -> None:
    assert explore(scenes()[name], across=across) > 1


@pytest.mark.parametrize(("devices", "steps"), [(2, 2), (3, 1)])
def test_every_interleaving_of_a_halo_exchange_is_right(devices: int, steps: int) -> None:
    """Everything is submitted first, so the choices are those of the lanes."""
    assert explore(lambda: exchange(devices, steps), all_at_once=True) > 10


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("policy", ["disjoint+reuse", "same-as-parent+always-new"])
def test_longer_exchanges_are_right_in_random_interleavings(policy: str, across: bool) -> None:
    for devices in (2, 3, 4):
        sample(partial(exchange, devices, 4), seed=devices, runs=25, policy=policy, across=across, limit=3)


@settings(max_examples=80)
@given(programs(most=8), st.integers(0, 2**16), st.booleans(), st.integers(1, 4))
def test_random_programs_are_right_in_random_interleavings(
    program: dict[str, Any], seed: int, across: bool, limit: int
) -> None:
    def scene() -> Checked:
        twin = lowered(program)
        return twin.g, lambda drive: twin.check()

    sample(scene, seed, across=across, limit=limit)


# The explorer itself ------------------------------------------------------------------------------------------------------


def without_an_edge(scene: Scene, index: int) -> Scene:
    """Return the scene with the edges of one kernel to other kernels and copies taken away."""

    def broken() -> Checked:
        g, check = scene()
        kernel = g.instructions.of("kernel")[index]
        quiet = {i.id for i in g.instructions.of("alloc", "epoch", "fill")}
        kernel.needs = tuple(id for id in kernel.needs if id in quiet)
        kernel.after = tuple(id for id in kernel.after if id in quiet)
        return g, check

    return broken


@pytest.mark.parametrize("index", [1, 2, 3, 4])
def test_a_missing_edge_is_found(index: int) -> None:
    with pytest.raises(AssertionError):
        explore(without_an_edge(diamond, index))


def test_all_sequences_of_choices_are_tried_once() -> None:
    seen = []
    count = every_choice(lambda choose: seen.append((choose(2), choose(3))))
    assert count == 6 and sorted(seen) == [(a, b) for a in range(2) for b in range(3)]


def test_a_program_with_too_many_interleavings_is_refused() -> None:
    with pytest.raises(InvariantError, match="more than 5"):
        explore(diamond, limit=5)


# Failures -----------------------------------------------------------------------------------------------------------------


def outcome(task: Task) -> str:
    assert task.finished
    return "done" if task.failure is None else "cancelled" if isinstance(task.failure, TaskCancelled) else "failed"


def test_a_failing_kernel_poisons_what_it_would_have_written_and_nothing_else() -> None:
    def scene() -> Checked:
        g = GraphBuilder(2)
        x, y = g.array(4, data=np.ones(4)), g.array(4, data=np.ones(4))
        bad = g.call("bad", updates=x[:2], on="dev:0", body=fail)
        child = g.call("child", reads=x, updates=y[:4], on="dev:1", body=add)
        good = g.call("good", updates=x[2:], on="dev:1", body=double)
        heal = g.call("heal", writes=x[:2], on="dev:1", body=lambda out: out.fill(5.0))
        poisoned, healed = g.read(y), g.read(x)

        def check(drive: Drive) -> None:
            assert [outcome(t) for t in (bad, child, good, heal)] == ["failed", "failed", "done", "done"]
            assert isinstance(bad.failure, TaskFailed) and isinstance(bad.failure, ValueError)
            assert child.failure is bad.failure and poisoned.failure is bad.failure
            assert drive.executor.failures == [bad.failure]
            assert poisoned.id not in g.delivered
            np.testing.assert_array_equal(g.delivered[healed.id], [5.0, 5.0, 2.0, 2.0])

        return g, check

    assert explore(scene, all_at_once=True) > 1
    sample(scene, seed=0, runs=100)


def test_one_failing_chunk_leaves_the_results_of_its_siblings() -> None:
    def scene() -> Checked:
        g = GraphBuilder(2)
        x = g.array(4, data=np.zeros(4))

        def body(out: Any) -> None:
            if out[0] == 0.0 and len(out) == 1:
                raise ValueError("the short chunk fails")
            out += 1.0

        uneven = [("dev:0", Box((0,), (1,))), ("dev:1", Box((1,), (4,)))]
        task = g.call("half", updates=x, chunks=uneven, body=body)
        left, right = g.read(x[:1]), g.read(x[1:])

        def check(drive: Drive) -> None:
            assert outcome(task) == "failed" and outcome(left) == "failed"
            np.testing.assert_array_equal(g.delivered[right.id], [1.0, 1.0, 1.0])

        return g, check

    assert explore(scene) > 1


def test_a_task_that_only_moves_poisoned_data_does_not_fail() -> None:
    """A growing allocation carries the poison along; the task that made it grow is not touched by it."""

    def scene() -> Checked:
        g = GraphBuilder(1)
        x = g.array(6)
        bad = g.call("bad", writes=x[:2], body=fail)
        fine = g.call("fine", writes=x[2:3], body=lambda out: out.fill(3.0))
        both = g.call("both", writes=x[1:4], body=lambda out: out.fill(4.0))
        poisoned, rest = g.read(x[:1]), g.read(x[1:4])

        def check(drive: Drive) -> None:
            assert [outcome(t) for t in (bad, fine, both)] == ["failed", "done", "done"]
            assert outcome(poisoned) == "failed"
            np.testing.assert_array_equal(g.delivered[rest.id], [4.0, 4.0, 4.0])

        return g, check

    assert explore(scene) > 1


def test_a_cancelled_task_runs_before_it_was_cancelled_or_not_at_all() -> None:
    results = set()

    def one(choose: Callable[[int], int]) -> None:
        g = GraphBuilder(2, shared=True)
        x, y = g.array(2, data=np.ones(2)), g.array(2, data=np.ones(2))
        first = g.call("first", updates=x, on="dev:0", body=double)
        second = g.call("second", reads=x, updates=y, on="dev:1", body=add)
        other = g.call("other", updates=x, on="dev:0", body=double)
        read_x, read_y = g.read(x), g.read(y)
        drive = Drive(g, choose)
        for _ in range(choose(8)):
            drive.step()
        drive.cancel(second)
        drive.run()
        assert outcome(first) == outcome(other) == "done"
        np.testing.assert_array_equal(g.delivered[read_x.id], [4.0, 4.0])
        results.add(outcome(second))
        if second.failure is None:
            np.testing.assert_array_equal(g.delivered[read_y.id], [3.0, 3.0])
        else:
            assert read_y.failure is second.failure and second.name not in [
                i.task.name for i in drive.backend.ran if i.task
            ]

    assert every_choice(one) > 8
    assert results == {"done", "cancelled"}
