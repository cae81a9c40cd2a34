"""Reductions as instructions: private slots, one combination, the old value. B37 and B38 of the Celerity reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coexec.geometry import Box, Region
from coexec.machine.platform import HOST
from coexec.program.access import reduce
from coexec.program.array import Array
from coexec.testing.every_order import every_order
from coexec.testing.graphs import GraphBuilder
from coexec.testing.model_memory import at_random, run_all


def add_sum(x: Any, total: Any) -> None:
    total += x.sum()


def span(lo: int, hi: int) -> Box:
    return Box((lo,), (hi,))


def value(g: GraphBuilder, array: Array, seed: int = 0) -> Any:
    """Return what a host read gets, in some legal order."""
    task = g.read(array)
    assert run_all(g.emitted, at_random(seed)) == {}
    return g.delivered[task.id]


def test_a_single_contribution_is_a_slot_of_its_own_too() -> None:
    """B37. Ours is no plain write: a body finds the identity, whether divided or not, and the old value is added once."""
    g = GraphBuilder(1, shared=True)
    x, total = g.array(10, data=np.arange(10.0)), g.array((), 100.0)
    task = g.call("sum", reads=x, reduces=total, over=(10,), body=lambda x, total: total.fill(x.sum()))
    assert g.of(task).of("alloc", "kernel", "reduce", "free").kinds.count("reduce") == 1
    assert len(g.instructions.of("copy")) == 0  # the device works in host memory: nothing is gathered
    assert value(g, total) == 145.0
    g.verify()


def test_slots_lie_in_the_order_of_the_index_space_whichever_devices_have_them() -> None:
    """B38."""
    g = GraphBuilder(3)
    x, total = g.array(30, 1.0), g.array((), 0.0)
    parts = [("dev:2", span(0, 10)), ("dev:0", span(10, 20)), ("dev:1", span(20, 30))]
    task = g.call("sum", reads=x, reduces=total, over=(30,), chunks=parts)
    slots = {kernel.step.chunk.box: kernel.step.bindings[-1].box for kernel in g.kernels(task)}
    assert [slots[part] for _, part in parts] == [span(0, 1), span(1, 2), span(2, 3)]
    assert g.of(task).of("reduce").only().step.partials.box == span(0, 3)


@pytest.mark.parametrize("devices", [["dev:0"] * 4, ["dev:3", "dev:1", "dev:0", "dev:2"]])
def test_sums_have_the_same_bits_in_every_order_and_on_all_devices(devices: list[str]) -> None:
    """B38: in another order of adding, or with other slots, the small terms would be lost or kept."""
    terms = np.array([1e16, 1.0, -1e16, 1.0])
    g = GraphBuilder(4)
    x, total = g.array(4, data=terms), g.array((), 0.0)
    parts = [(device, span(i, i + 1)) for i, device in enumerate(devices)]
    g.call("sum", reads=x, reduces=total, over=(4,), chunks=parts, body=add_sum)
    task = g.read(total)
    for seed in range(8):
        assert run_all(g.emitted, at_random(seed)) == {}
        assert g.delivered[task.id] == ((1e16 + 1.0) - 1e16) + 1.0 == 1.0


def test_each_device_sends_its_slot_and_the_copies_do_not_wait_for_each_other() -> None:
    """Number 53 of the reference's list: one copy per device, behind its own kernel; one combination."""
    g = GraphBuilder(4)
    x, total = g.array(40, 1.0), g.array((), 0.0)
    task = g.call("sum", reads=x, reduces=total, over=(40,), on="all")
    gathered = g.of(task).of("copy", to=HOST)
    assert [i.step.source.memory for i in gathered] == [2, 3, 4, 5] and gathered.nbytes == 4 * 8
    assert gathered.all_concurrent()
    for kernel, copy in zip(g.kernels(task), gathered, strict=True):
        assert kernel.id in copy.needs and g.emitted_graph.ordered(copy, g.of(task).of("reduce").only())
    g.verify()


def test_only_devices_that_take_part_contribute() -> None:
    """Number 57."""
    g = GraphBuilder(4)
    x, total = g.array(40, 2.0), g.array((), 1.0)
    task = g.call("sum", reads=x, reduces=total, over=(40,), on=["dev:1", "dev:3"], body=add_sum)
    touched = {allocation.memory for i in g.of(task).of("alloc") for allocation in [i.step.allocation]}
    assert touched == {HOST, 3, 5} and g.of(task).of("reduce").only().step.partials.box == span(0, 2)
    assert value(g, total) == 81.0


def test_the_old_value_is_brought_from_where_it_is_and_counts_once() -> None:
    """Numbers 52 and 56: include-current. The kernels do not wait for it."""
    g = GraphBuilder(3)
    x, total = g.array(30, 1.0), g.array(())
    start = g.kernels(g.call("start", writes=total, on="dev:2", body=lambda t: t.fill(100.0))).only()
    task = g.call("sum", reads=x, reduces=total, over=(30,), on=["dev:0", "dev:1"], body=add_sum)
    assert [i.step.source.memory for i in g.of(task).of("copy", array=total)] == [4]
    assert g.emitted_graph.ordered(start, g.of(task).of("reduce").only())
    assert all(g.emitted_graph.concurrent(start, kernel) for kernel in g.kernels(task))
    assert value(g, total) == 130.0
    g.verify()


def test_a_fresh_reduction_neither_moves_nor_waits_to_read_the_old_value() -> None:
    g = GraphBuilder(2)
    x, total = g.array(30, 1.0), g.array(())
    g.call("start", writes=total, on="dev:1", body=lambda t: t.fill(100.0))
    task = g.call("sum", reads=x, reduces=(total, reduce("sum", fresh=True)), over=(30,), on="all", body=add_sum)
    assert len(g.instructions.of("copy", array=total)) == 0
    assert value(g, total) == 30.0
    assert g.of(task).of("reduce").only().step.operator.fresh
    g.verify()


def test_a_fresh_reduction_needs_nobody_who_wrote_before_it() -> None:
    """Ours: so it heals what a failed writer has poisoned; on top of the old value it would fail with it."""
    g = GraphBuilder(1, shared=True)
    x, total = g.array(30, 1.0), g.array((), 0.0)
    bad = g.kernels(g.call("bad", writes=total)).only()
    on_top, afresh = (
        g.of(g.call("sum", reads=x, reduces=(total, reduce("sum", fresh=fresh)), over=(30,))).of("reduce").only()
        for fresh in (False, True)
    )
    assert bad.id in on_top.needs
    assert on_top.id not in afresh.needs and on_top.id in afresh.after


def test_copies_of_the_old_value_are_out_of_date_after_a_reduction() -> None:
    g = GraphBuilder(2)
    x, total = g.array(30, 1.0), g.array((), 5.0)
    out = g.array(())
    g.call("use", reads=total, writes=out, on="dev:1", body=lambda t, o: o.fill(t))
    g.call("sum", reads=x, reduces=total, over=(30,), on="all", body=add_sum)
    g.call("use", reads=total, writes=out, on="dev:1", body=lambda t, o: o.fill(t))
    assert [i.step.source.memory for i in g.instructions.of("copy", array=total, to=3)] == [HOST]
    assert value(g, out) == 35.0
    g.verify()


def test_a_result_that_is_overwritten_unread_is_not_moved_again() -> None:
    """B63 on one machine. Ours combines at once, not when somebody reads; nothing of the result leaves the host."""
    g = GraphBuilder(2)
    x, total = g.array(30, 1.0), g.array((), 0.0)
    reduced = g.of(g.call("sum", reads=x, reduces=total, over=(30,), on="all")).of("reduce").only()
    before = len(g.instructions.of("copy"))
    over = g.kernels(g.call("over", writes=total, on="dev:1")).only()
    g.call("use", reads=total, writes=g.array(()), on="dev:1")
    assert len(g.instructions.of("copy")) == before
    assert g.emitted_graph.concurrent(reduced, over)  # other memory: not even an order
    g.verify()


def test_reductions_into_one_array_are_combined_in_order_and_computed_at_the_same_time() -> None:
    g = GraphBuilder(2)
    x, total = g.array(20, 1.0), g.array((), 0.0)
    tasks = [g.call("sum", reads=x, reduces=total, over=(20,), on="all", body=add_sum) for _ in range(3)]
    assert g.emitted_graph.chain([g.of(task).of("reduce").only() for task in tasks])
    assert all(g.emitted_graph.concurrent(a, b) for a in g.kernels(tasks[0]) for b in g.kernels(tasks[2]))
    assert value(g, total, seed=3) == 60.0
    g.verify()


def count(x: Any, bins: Any) -> None:
    bins += np.bincount(x.astype(int), minlength=len(bins))


def test_arrays_are_outputs_of_reductions_too() -> None:
    """Beyond the reference, whose reductions are scalars: a histogram, in whole slots."""
    g = GraphBuilder(3)
    data = np.array([0.0, 1, 1, 3, 3, 3, 0, 2, 2])
    x, bins = g.array(9, data=data), g.array(4, 10.0)
    task = g.call("count", reads=x, reduces=bins, over=(9,), on="all", body=count)
    assert [i.step.bindings[-1].box for i in g.kernels(task)] == [Box((n, 0), (n + 1, 4)) for n in range(3)]
    assert g.of(task).of("copy", to=HOST).nbytes == 3 * 4 * 8
    np.testing.assert_array_equal(value(g, bins, seed=1), 10.0 + np.bincount(data.astype(int)))
    g.verify()


def test_a_reduction_into_a_strided_view_keeps_the_elements_between() -> None:
    g = GraphBuilder(2)
    x, out = g.array(8, 1.0), g.array(6, data=np.arange(6.0))
    task = g.call("count", reads=x, reduces=out[::2], over=(8,), on="all", body=lambda x, t: np.add(t, len(x), out=t))
    assert g.instructions.of("copy", array=out).copied == Region()  # it was on the host already
    assert g.of(task).of("reduce").only().step.target.box.lo == (0,)
    np.testing.assert_array_equal(value(g, out), [8, 1, 10, 3, 12, 5])
    g.verify()


def test_a_fresh_reduction_into_a_strided_view_fetches_the_elements_between() -> None:
    g = GraphBuilder(2)
    x, out = g.array(8, 1.0), g.array(6)
    g.call("make", writes=out, on="dev:1", body=lambda o: np.copyto(o, np.arange(6.0)))
    into = (out[::2], reduce("sum", fresh=True))
    g.call("count", reads=x, reduces=into, over=(8,), on="all", body=lambda x, t: np.add(t, len(x), out=t))
    assert g.instructions.of("copy", array=out).copied == Region([span(0, 5)])
    np.testing.assert_array_equal(value(g, out), [8, 1, 8, 3, 8, 5])
    g.verify()


def test_a_divided_reduction_beside_a_write_of_its_input_is_right_in_every_order() -> None:
    g = GraphBuilder(2, peers=False)
    x, total = g.array(4, data=np.arange(4.0)), g.array((), 1.0)
    g.call("sum", reads=x, reduces=total, over=(4,), on="all", body=add_sum)
    g.call("over", writes=x, on="dev:1", body=lambda x: x.fill(-1.0))
    task = g.read(total)
    every_order(g.emitted, limit=20_000)
    assert g.delivered[task.id] == 7.0


def test_an_empty_part_adds_nothing() -> None:
    g = GraphBuilder(2)
    x, total = g.array(4, 1.0), g.array((), 0.0)
    parts = [("dev:0", span(0, 4)), ("dev:1", span(4, 4))]
    g.call("sum", reads=x, reduces=total, over=(4,), chunks=parts, body=add_sum)
    assert value(g, total) == 4.0
    g.verify()
