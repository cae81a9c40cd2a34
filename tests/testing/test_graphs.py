"""The graph builder and its queries: they go the way of the runtime, and they notice what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import coexec as cx
from coexec.errors import InvariantError
from coexec.geometry import Box, Region, whole
from coexec.graph.instruction import Allocation, Free, Instruction, Join
from coexec.machine.platform import HOST
from coexec.testing import GraphBuilder, at_random, invented_platform, run_all, verify
from coexec.testing.verify import check_edges


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.write)
def spread(x, y, k):
    y[...] = k * x[: len(y)]


@cx.kernel(x=cx.read, returns=cx.like("x"))
def square(x):
    return x * x


def program() -> GraphBuilder:
    g = GraphBuilder(2)
    a, b = g.array(10, data=np.arange(10.0)), g.array(10)
    g.call("double", updates=a, on="dev:0", body=lambda x: x.__imul__(2.0))
    g.call("copy", reads=a, writes=b, on="all", body=lambda x, y: np.copyto(y, x))
    g.call("again", updates=a, on="dev:0", body=lambda x: x.__imul__(2.0))
    g.read(b)
    g.drop(a)
    return g


# The builder ----------------------------------------------------------------------------------------------------------


def test_an_invented_platform_has_memories_and_links_as_asked() -> None:
    own, apart, shared = invented_platform(2), invented_platform(2, peers=False), invented_platform(2, shared=True)
    assert [d.memory for d in own.devices] == [2, 3] and own.link(2, 3) is not None
    assert apart.link(2, 3) is None and apart.link(2, HOST) is not None
    assert [d.memory for d in shared.devices] == [HOST, HOST]
    assert not invented_platform(paged=False).memories[HOST].paged


def test_calls_become_tasks_commands_and_instructions() -> None:
    g = program()
    assert [task.name for task in g.tasks] == ["double", "copy", "again", "read"]
    assert [len(command.chunks) for command in g.commands] == [1, 2, 1]
    assert g.instructions.of("kernel").names == ["double", "copy", "copy", "again"]
    assert [i for batch in g.batches for i in batch] == g.emitted
    g.verify()


def test_real_kernels_and_numpy_manners_go_through_the_builder() -> None:
    g = GraphBuilder(2)
    with g:
        x = cx.array(np.arange(6.0))
        y = cx.zeros(6)
        spread.using(devices="dev:0,dev:1")(x, y, 2.0)
        y[0] = 7.0
        z = square(y)
        x[2:4] = z[2:4]
    task = g.read(z)
    assert g.instructions.of("kernel", task="spread").chunks == [Box((0,), (3,)), Box((3,), (6,))]
    assert run_all(g.emitted, at_random(1)) == {}
    np.testing.assert_array_equal(g.delivered[task.id], np.square([7.0, 0.0, 2.0, 4.0, 6.0, 8.0]))
    g.verify()


def test_chunks_can_be_given_exactly() -> None:
    g = GraphBuilder(2)
    a = g.array(10)
    parts = [("dev:1", Box((0,), (7,))), ("dev:0", Box((7,), (10,)))]
    task = g.call("make", writes=a, chunks=parts)
    assert [(i.device, i.step.chunk.box) for i in g.kernels(task)] == parts


def test_delivered_values_are_those_of_the_host_reads() -> None:
    g = program()
    read = g.tasks[-1]
    assert run_all(g.emitted, at_random(3)) == {}
    np.testing.assert_array_equal(g.delivered[read.id], 2.0 * np.arange(10))


# Queries --------------------------------------------------------------------------------------------------------------


def test_selections_narrow_by_kind_task_device_array_and_memory() -> None:
    g = program()
    instructions = g.instructions
    assert len(instructions.of("kernel", device="dev:1")) == 1
    assert instructions.of("copy", to=3) == instructions.of("copy").where(lambda i: i.step.target.memory == 3)
    assert instructions.of("copy", source=HOST).only().step.target.memory == 2
    assert set(instructions.of(task="copy").kinds) == {"alloc", "copy", "kernel"}
    assert instructions.of("copy", reason="coherence") == instructions.of("copy")
    assert len(instructions - instructions.of("copy")) == len(instructions) - len(instructions.of("copy"))
    assert (instructions.of("kernel") | instructions.of("kernel")[:1]) == instructions.of("kernel")
    with pytest.raises(AssertionError, match="expected one instruction"):
        instructions.of("kernel").only()


def test_selections_know_their_neighbours() -> None:
    g = program()
    double, copies = g.kernels(g.tasks[0]), g.kernels(g.tasks[1])
    assert copies[0] in double.successors() and double[0] in copies[:1].predecessors()
    assert double[0] in copies.ancestors() and copies[1] in double.descendants()
    assert copies.all_concurrent() and not (double | copies).all_concurrent()
    assert (double | copies[:1]).chain()
    graph = g.emitted_graph
    assert graph.concurrent(*copies) and not graph.concurrent(double[0], double[0])


def test_selections_sum_up_boxes_and_bytes() -> None:
    g = program()
    moved = g.instructions.of("copy", task="copy")
    assert moved.copied == Region([Box((5,), (10,))]) and moved.nbytes == 5 * 8
    assert g.instructions.of("kernel", task="double").chunks == [whole((10,))]
    assert repr(g.instructions.of("horizon")) == "<nothing>"


# verify -------------------------------------------------------------------------------------------------------------------


def broken(change: Callable[[GraphBuilder], None], message: str) -> None:
    g = program()
    change(g)
    with pytest.raises(InvariantError, match=message):
        g.verify()


def test_a_list_that_is_right_passes() -> None:
    program().verify()


def test_a_kernel_that_does_not_wait_for_its_copy_is_found() -> None:
    def change(g: GraphBuilder) -> None:
        kernel = g.kernels(g.tasks[1])[1]
        copies = {i.id for i in g.instructions.of("copy")}
        kernel.needs = tuple(id for id in kernel.needs if id not in copies)

    broken(change, "does not wait for I")


def test_a_write_that_does_not_wait_for_a_reader_is_found() -> None:
    def change(g: GraphBuilder) -> None:
        kernel = g.kernels(g.tasks[2]).only()
        kernel.after = ()

    broken(change, "writes .* and does not wait for")


def test_a_read_of_an_old_value_is_found() -> None:
    def change(g: GraphBuilder) -> None:
        copy = g.instructions.of("copy", task="copy").only()
        copy.step.boxes = (Box((5,), (6,)),)

    broken(change, "holds what nobody wrote; the present value is that of I")


def test_a_use_before_the_allocation_is_over_is_found() -> None:
    def change(g: GraphBuilder) -> None:
        copy = g.instructions.of("copy", task="double").only()
        copy.after = ()

    broken(change, "does not wait for I.* alloc")


def test_a_use_without_allocation_is_found() -> None:
    broken(lambda g: g.emitted.remove(g.instructions.of("alloc")[0]), "was not emitted before it")
    broken(lambda g: g.given.clear(), "was never allocated")


def test_a_free_that_does_not_wait_for_every_use_is_found() -> None:
    def change(g: GraphBuilder) -> None:
        for free in g.instructions.of("free"):
            free.after = (1,)

    broken(change, "frees .* and does not wait for")


def test_a_second_free_is_found() -> None:
    def change(g: GraphBuilder) -> None:
        last = g.instructions.of("free")[-1]
        g.emitted.append(Instruction(1000, Free(last.step.allocation), None, (), (last.id,)))

    broken(change, "which is not allocated")


def test_a_use_after_the_free_is_found() -> None:
    def change(g: GraphBuilder) -> None:
        copy, free = g.instructions.of("copy", task="copy").only(), g.instructions.of("free")[-1]
        g.emitted.append(Instruction(1000, copy.step, copy.task, copy.needs, (free.id,)))

    broken(change, "has freed")


def test_an_allocation_made_twice_is_found() -> None:
    def change(g: GraphBuilder) -> None:
        alloc = g.instructions.of("alloc")[0]
        g.emitted.append(Instruction(1000, alloc.step, None, (), (1,)))

    broken(change, "is allocated twice")


def test_edges_must_lead_backwards_to_known_instructions() -> None:
    def make(id: int, *after: int) -> Instruction:
        return Instruction(id, Join(), None, (), after)

    check_edges([make(1), make(2, 1)])
    for wrong, message in [
        ([make(1), make(2)], "comes after nothing"),
        ([make(1), make(2, 3), make(3, 1)], "not emitted before"),
        ([make(1), make(1, 1)], "emitted twice"),
    ]:
        with pytest.raises(InvariantError, match=message):
            check_edges(wrong)


def test_what_was_never_written_may_hold_anything() -> None:
    g = GraphBuilder()
    a = g.array(4)
    g.call("use", reads=a, writes=g.array(4))
    verify(g.emitted)


# run_all -------------------------------------------------------------------------------------------------------------------


def test_a_run_keeps_the_edges_and_runs_everything() -> None:
    g = program()
    order: list[int] = []

    def last(ready):
        order.append(ready[-1].id)
        return ready[-1]

    assert run_all(g.emitted, last) == {}
    place = {id: number for number, id in enumerate(order)}
    assert sorted(order) == sorted(i.id for i in g.emitted)
    assert all(place[id] < place[i.id] for i in g.emitted for id in (*i.needs, *i.after))


def test_a_run_says_who_failed_and_spares_what_needs_it() -> None:
    g = GraphBuilder(1, shared=True)
    a, b = g.array(4, data=np.zeros(4)), g.array(4, data=np.zeros(4))

    def fail(x):
        raise ValueError("no")

    bad = g.kernels(g.call("bad", updates=a, body=fail)).only()
    child = g.kernels(g.call("child", reads=a, updates=b)).only()
    g.call("heal", writes=a)
    failed = run_all(g.emitted)
    assert set(failed) == {bad.id, child.id} and failed[child.id] is failed[bad.id]


def test_instructions_that_wait_for_each_other_are_an_error() -> None:
    first, second = (Instruction(id, Join(), None, (), (3 - id,)) for id in (1, 2))
    with pytest.raises(InvariantError, match="wait for each other"):
        run_all([first, second])


def test_a_new_allocation_holds_nothing_useful() -> None:
    from coexec.testing.model_memory import allocate, release

    for dtype in (float, np.int32, bool, "S4"):
        allocation = Allocation(1, HOST, 1, whole((3,)), np.dtype(dtype))
        allocate(allocation)
        assert allocation.data.shape == (3,)
        release(allocation)
        assert allocation.data is None
    allocate(allocation := Allocation(1, HOST, 1, whole((3,)), np.dtype(float)))
    assert np.isnan(allocation.data).all()
