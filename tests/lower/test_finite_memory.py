"""Memories that are full: what waits, what goes, what is divided further, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, DoesNotFit
from coexec.geometry import Box, Region
from coexec.plan.candidate import Share
from coexec.program.access import read, update, write
from coexec.program.array import Array
from coexec.program.kernel import kernel
from coexec.program.mapper import all as map_all, halo
from coexec.program.storage import Storage
from coexec.testing.graphs import GraphBuilder
from coexec.testing.model_memory import at_random, run_all
from coexec.testing.verify import check_capacities, check_edges
from tests.lower.programs import Twin, programs


def span(lo: int, hi: int) -> Box:
    return Box((lo,), (hi,))


def whole_on(*devices: str, rows: int = 1000) -> list[tuple[str, Box]]:
    """Return the chunks of a task that is divided evenly."""
    cuts = [rows * i // len(devices) for i in range(len(devices) + 1)]
    return [(device, span(cuts[i], cuts[i + 1])) for i, device in enumerate(devices)]


def test_a_task_larger_than_memory_is_divided_further_and_every_part_is_copied_once() -> None:
    g = GraphBuilder(1, capacity=8 * 400)
    x, y = g.array(1000, data=np.arange(1000.0)), g.array(1000)
    task = g.call("copy", reads=x, writes=y, chunks=whole_on("dev:0"), body=lambda x, y: y.__setitem__(..., x))
    kernels = g.kernels(task)
    assert len(kernels) == 10 and Region(kernels.chunks) == Region([span(0, 1000)])
    assert [k.step.more for k in kernels] == [True] * 9 + [False]
    copied = g.instructions.of("copy", reason="coherence")
    assert copied.copied == Region([span(0, 1000)]) and copied.nbytes == 8000
    g.verify()
    result = g.read(y)
    assert run_all(g.emitted, at_random(3)) == {}
    np.testing.assert_array_equal(g.delivered[result.id], np.arange(1000.0))


def test_the_next_part_is_copied_while_the_one_before_is_computed() -> None:
    g = GraphBuilder(1, capacity=8 * 400)
    x, y = g.array(1000, data=np.arange(1000.0)), g.array(1000)
    kernels = g.kernels(g.call("copy", reads=x, writes=y, chunks=whole_on("dev:0")))
    copies = g.instructions.of("copy", reason="coherence")
    for kernel_of_part, next_copy in zip(kernels, copies[1:], strict=False):
        assert g.emitted_graph.concurrent(kernel_of_part, next_copy)


def test_devices_work_on_their_parts_of_a_divided_task_beside_each_other() -> None:
    g = GraphBuilder(2, capacity=8 * 200)
    x, y = g.array(1000, data=np.arange(1000.0)), g.array(1000)
    task = g.call("copy", reads=x, writes=y, chunks=whole_on("dev:0", "dev:1"))
    by_device = [[k for k in g.kernels(task) if k.device == name] for name in g.devices]
    assert all(g.emitted_graph.concurrent(a, b) for a, b in zip(*by_device, strict=True))
    g.verify()


def test_parts_keep_their_halos() -> None:
    g = GraphBuilder(1, capacity=8 * 100)
    x, y = g.array(200, data=np.arange(200.0)), g.array(200)
    task = g.call(
        "blur", reads=(x, halo(1, border="edge")), writes=y, chunks=whole_on("dev:0", rows=200),
        body=lambda u, out: out.__setitem__(..., u[:-2] + u[2:]),
    )  # fmt: skip
    assert len(g.kernels(task)) > 1
    result = g.read(y)
    g.verify()
    assert run_all(g.emitted, at_random(1)) == {}
    padded = np.pad(np.arange(200.0), 1, mode="edge")
    np.testing.assert_array_equal(g.delivered[result.id], padded[:-2] + padded[2:])


def test_a_small_operand_that_every_part_needs_stays() -> None:
    g = GraphBuilder(1, capacity=8 * 100)
    small, big = g.array(40, data=np.ones(40)), g.array(400)
    g.call("use", reads=(small, map_all), writes=big, chunks=whole_on("dev:0", rows=400))
    assert len([i for i in g.instructions.of("copy") if i.step.source.array == small._storage.id]) == 1
    g.verify()


def test_a_task_that_is_divided_along_two_axes_fits_where_one_row_does_not() -> None:
    g = GraphBuilder(1, capacity=8 * 10)

    @kernel(split=(0, 1), x=read, y=write)
    def double(x, y):
        y[...] = 2 * x

    x, y = g.array((4, 30), data=np.ones((4, 30))), g.array((4, 30))
    with g:
        double(x, y)
    assert len(g.instructions.of("kernel")) > 4
    result = g.read(y)
    g.verify()
    assert run_all(g.emitted, at_random(1)) == {}
    assert (g.delivered[result.id] == 2).all()


def test_a_reduction_larger_than_memory_is_divided_into_more_slots() -> None:
    g = GraphBuilder(1, capacity=8 * 50)
    x, total = g.array(400, data=np.arange(400.0)), g.array((), 0.0)

    def add(x: Any, total: Any) -> None:
        total += x.sum()

    task = g.call("sum", reads=x, reduces=total, over=(400,), chunks=whole_on("dev:0", rows=400), body=add)
    assert len(g.kernels(task)) > 8
    result = g.read(total)
    g.verify()
    assert run_all(g.emitted, at_random(1)) == {}
    assert g.delivered[result.id] == np.arange(400.0).sum()


def test_parts_that_would_read_what_others_write_are_not_divided() -> None:
    g = GraphBuilder(1, capacity=8 * 50)
    x = g.array(100, data=np.ones(100))
    with pytest.raises(
        DoesNotFit,
        match=r"task 'shift', in which some parts touch what others write, needs 800 bytes .* write to another",
    ):
        g.call("shift", reads=x[:-1], writes=x[1:], chunks=whole_on("dev:0", rows=99))
    assert g.instructions.kinds == ["epoch"]


def test_using_split_false_forbids_division_here_too() -> None:
    g = GraphBuilder(1, capacity=8 * 50)

    @kernel(split=0, y=update)
    def touch(y):
        y += 1

    y = g.array(100, data=np.ones(100))
    with g, pytest.raises(DoesNotFit, match="let the call be divided"):
        touch.using(split=False)(y)
    with g:
        touch(y)
    assert len(g.instructions.of("kernel")) > 1
    g.verify()


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_thousands_of_temporaries_in_a_memory_of_a_few_wait_for_each_other_and_leave_nothing(count) -> None:
    g = GraphBuilder(1, capacity=8 * 100)
    task = g.call("make", writes=(first := g.array(40)))
    g.drop(first)
    assert task.kernel is not None
    lowering, command, shares = g.lowering, g.commands[0], [Share(task.kernel.variants[0], None, None, None)]
    (account,) = lowering.coherence.budget.open
    for number in range(2, count):
        storage = Storage(g, (40,), first.dtype, None)
        storage.id = number
        lowering.register(storage)
        task.arrays = (Array(storage, storage.box, None),)
        kinds = [instruction.kind for instruction in lowering.lower(command, shares) + lowering.drop(number)]
        assert kinds == ["alloc", "kernel", "free"]
        if number % 256 == 0:
            lowering.horizon(task)
            assert account.held == 0 and len(account.freed) <= 3 and lowering.live() == 0
    assert account.evictions == 0 and account.waits > 0.9 * count


# Temporaries ----------------------------------------------------------------------------------------------------------


def scratchy(**options: Any) -> Any:
    @kernel(split=0, y=update, **options)
    def busy(y):
        y += 1

    return busy


def test_room_for_temporaries_is_made_and_kept_while_the_kernel_runs() -> None:
    g = GraphBuilder(1, capacity=8 * 100)
    busy = scratchy(scratch=8)
    a, b = g.array(40, data=np.ones(40)), g.array(40, data=np.ones(40))
    with g:
        busy(a)
        busy(b)
    assert len(g.instructions.of("kernel")) == 2
    assert len(g.instructions.of("copy", reason="evict")) == 1, "40 rows each and 40 of temporaries are too much"
    first, second = g.instructions.of("kernel")
    assert first.step.scratch == second.step.scratch == (2, 320)
    g.verify()


def test_temporaries_may_be_a_function_of_the_part() -> None:
    g = GraphBuilder(1, capacity=8 * 100)
    busy = scratchy(scratch=lambda y: 2 * y.nbytes)
    y = g.array(60, data=np.ones(60))
    with g:
        busy(y)
    kernels = g.instructions.of("kernel")
    assert len(kernels) > 1
    assert all(k.step.scratch[1] == 16 * k.step.chunk.box.volume for k in kernels)
    g.verify()


def test_kernels_wait_for_the_temporaries_of_others() -> None:
    g = GraphBuilder(1, capacity=8 * 100)
    busy = scratchy(scratch=lambda y: 8 * 60)
    a, b = g.array(10, data=np.ones(10)), g.array(10, data=np.ones(10))
    with g:
        busy(a)
        busy(b)
    first, second = g.instructions.of("kernel")
    assert g.emitted_graph.ordered(first, second)
    g.verify()


def test_temporaries_that_no_memory_holds_are_refused() -> None:
    g = GraphBuilder(1, capacity=8 * 100)
    y = g.array(10, data=np.ones(10))
    with g, pytest.raises(DoesNotFit, match=r"needs 8,008 bytes in memory 'dev:0', which has 800 bytes"):
        scratchy(scratch=lambda y: 8000)(y)
    with pytest.raises(ArgumentError, match="scratch=-1 per point"):
        scratchy(scratch=-1)


# Random programs ------------------------------------------------------------------------------------------------------


def attempted(program: dict[str, Any]) -> tuple[Twin, int]:
    """Return the program, lowered, without the steps that were refused; and how many those were."""
    twin, refused = Twin(program), 0
    for step in program["steps"]:
        try:
            twin.step(step)
        except DoesNotFit:
            refused += 1
    twin.finish()
    return twin, refused


@st.composite
def limited_programs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a program for devices whose memories hold a few rows, or nearly everything."""
    program = draw(programs(most=14))
    return {**program, "shared": False, "capacity": 8 * draw(st.integers(1, 80))}


@st.composite
def limited_hosts(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a program whose host memory holds little more than what the program gives it."""
    program = draw(programs(most=14))
    program["arrays"] = ["filled" if kind == "given" else kind for kind in program["arrays"]]
    program["steps"] = [step for step in program["steps"] if step[0] != "drop"]
    return {**program, "capacity": 8 * draw(st.integers(20, 120)), "host": 8 * draw(st.integers(20, 160))}


@settings(max_examples=250)
@given(limited_programs(), st.integers(0, 2**16))
def test_any_legal_order_in_limited_memories_computes_what_numpy_computes(program: dict[str, Any], seed: int) -> None:
    twin, _ = attempted(program)
    assert run_all(twin.g.emitted, at_random(seed)) == {}
    twin.check()


@settings(max_examples=250)
@given(limited_programs())
def test_no_legal_order_exceeds_a_memory_and_all_invariants_hold(program: dict[str, Any]) -> None:
    attempted(program)[0].g.verify()


def test_parts_that_are_cut_for_lack_of_memory_keep_to_granules() -> None:
    """Pairs are swapped: a part that began between the two of a pair would be wrong."""

    @cx.kernel(split=0, granule=2, x=cx.read, y=cx.write)
    def swap(x, y):
        y[0::2], y[1::2] = x[1::2], x[0::2]

    g = GraphBuilder(1, capacity=8 * 14)
    values = np.arange(30.0)
    x, y = g.array(30, data=values), g.array(30)
    with g:
        task = swap(x, y)
    seen = g.read(y)
    g.verify()
    assert len(g.kernels(task)) > 4
    assert run_all(g.emitted, at_random(1)) == {}
    assert g.delivered[seen.id].reshape(15, 2).tolist() == values.reshape(15, 2)[:, ::-1].tolist()


@settings(max_examples=250)
@given(limited_hosts())
def test_no_legal_order_exceeds_a_limited_host_either(program: dict[str, Any]) -> None:
    """Reads may be refused, and outputs of refused tasks are undefined; what is emitted stays legal."""
    twin = Twin(program)
    for step in program["steps"]:
        try:
            twin.step(step)
        except DoesNotFit:
            continue
    g = twin.g
    g.epoch()
    check_edges(g.emitted)
    capacities = {id: m.capacity for id, m in enumerate(g.platform.memories) if m.capacity is not None}
    check_capacities(g.emitted_graph, g.given, capacities)
    assert run_all(g.emitted, at_random(1)) == {}


@seed(19)  # has a piece for two devices that lies in two allocations of the host: it was looked for in one, for ever
@settings(max_examples=250, database=None, derandomize=False)
@given(limited_hosts())
def test_what_lies_in_several_allocations_of_a_small_host_goes_through_it(program: dict[str, Any]) -> None:
    twin = Twin(program)
    for step in program["steps"]:
        with suppress(DoesNotFit):
            twin.step(step)
    assert run_all(twin.g.emitted, at_random(1)) == {}


def test_what_a_refused_task_would_have_written_is_used_after_everything_that_was_emitted_for_it() -> None:
    """The host has room for three rows of 'cross', not for the fourth: what was done for them is under way."""
    nothing = (0,) * 14
    steps = [
        ("mix", (2, *nothing[1:])),
        ("epoch", nothing),
        ("inside", (22, 23, *nothing[2:])),
        ("mix", (*nothing[:8], 23, *nothing[9:])),
        ("cross", (0, 0, 0, 0, 17, 0, 6, *nothing[7:])),
        ("mix", nothing),
        ("mix", (19, *nothing[1:])),
    ]
    program = {
        "devices": 1, "shared": True, "peers": False, "paged": True, "shape": (6, 6), "arrays": ["filled"] * 3,
        "steps": steps, "capacity": 160, "host": 592,
    }  # fmt: skip
    twin = Twin(program)
    for step in steps[:4]:
        twin.step(step)
    with pytest.raises(DoesNotFit):
        twin.step(steps[4])
    for step in steps[5:]:
        twin.step(step)
    twin.g.epoch()
    check_edges(twin.g.emitted)
    assert run_all(twin.g.emitted, at_random(1)) == {}


def test_a_host_too_small_for_all_that_passes_through_it_passes_it_on_in_turns() -> None:
    """The device asks for 200 bytes over a host of 192, which holds a part of them already and gives it up for the rest."""
    nothing = (0,) * 14
    steps = [
        *[("mix", nothing)] * 6,
        ("halo", nothing),
        ("read", (1, *nothing[:9], 4, 0, 0, 0)),
        ("woven", (1, *nothing[1:])),
        ("halo", (1, 0, 0, 0, 0, 1, *nothing[6:])),
    ]
    program = {
        "devices": 2, "shared": False, "peers": False, "paged": False, "shape": (5, 5), "arrays": ["filled", "filled"],
        "steps": steps, "capacity": 400, "host": 192,
    }  # fmt: skip
    twin = Twin(program)
    for step in steps:
        twin.step(step)
    twin.g.epoch()
    check_edges(twin.g.emitted)
    assert run_all(twin.g.emitted, at_random(1)) == {}
