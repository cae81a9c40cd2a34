"""The graphs of several ranks: who computes what, who sends what to whom, and that all of it meets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.cluster.dealing import Dealing
from coexec.cluster.roster import of_platform
from coexec.geometry import Box, Region
from coexec.graph.call import describe
from coexec.graph.message import Receive, Send
from coexec.program.call import DEFAULT
from coexec.testing.model_memory import at_random
from coexec.testing.ranks import RankGraphs


def line(lo: int, hi: int) -> Box:
    return Box((lo,), (hi,))


def deals(tasks):
    return [task.deal for task in tasks]


# Dealing --------------------------------------------------------------------------------------------------------------


def test_a_task_is_dealt_evenly_and_in_order():
    g = RankGraphs(3)
    tasks = g.call("make", writes=g.array(9), on=["dev:0", "dev:0"])
    assert [deal.box for deal in deals(tasks)] == [line(0, 3), line(3, 6), line(6, 9)]
    assert [task.round for task in tasks] == [1, 1, 1]


def test_ranks_without_a_part_compute_nothing():
    g = RankGraphs(4)
    tasks = g.call("make", writes=g.array(2), on=["dev:0", "dev:0"])
    assert [deal.box for deal in deals(tasks)] == [line(0, 1), line(1, 2), None, None]
    assert [len(rank.kernels(task)) for rank, task in zip(g.ranks, tasks, strict=True)] == [1, 1, 0, 0]


def test_weights_and_granules_move_the_cuts():
    with RankGraphs(2).ranks[0] as g:
        dealing = Dealing(2, of_platform(g.platform))

        @cx.kernel(split=0, y=cx.update, weight=lambda rows: rows + 1.0)
        def triangle(y):
            y += 1

        @cx.kernel(split=0, y=cx.update, granule=4)
        def coarse(y):
            y += 1

        cuts = []
        for kernel in (triangle, coarse):
            task = describe(kernel, [g.array(10)], {}, DEFAULT, g)
            cuts.append([hand.box.hi[0] for hand in dealing.task(task).hands.values()])
        assert cuts[0] == [7, 10]
        assert cuts[1][0] % 4 == 0


def test_an_undivided_task_goes_to_the_rank_that_holds_most_of_what_it_reads():
    g = RankGraphs(3)
    a, b = g.array(9), g.array(9)
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    tasks = g.call("use", reads=(a, cx.fixed(slice(4, 9))), writes=(b, cx.all), on="dev:0")
    assert [deal.box is not None for deal in deals(tasks)] == [False, False, True]


def test_independent_undivided_tasks_of_some_size_are_dealt_in_turn():
    g = RankGraphs(3)
    dealt = [deals(g.call("one", writes=g.array(1 << 14), on="dev:0")) for _ in range(3)]
    assert [[deal.box is not None for deal in row].index(True) for row in dealt] == [0, 1, 2]


def test_host_tasks_run_on_the_first_rank():
    g = RankGraphs(2)
    a = g.array(4)
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    tasks = [rank.host_task("note", reads=array) for rank, array in zip(g.ranks, a, strict=True)]
    assert [deal.box is None for deal in deals(tasks)] == [False, True]
    assert len(g.ranks[1].of(tasks[1]).of("send")) == 1


def test_parts_that_would_conflict_are_dealt_as_one():
    g = RankGraphs(2)
    a = g.array(8)
    tasks = g.call("shift", updates=(a, cx.halo(1)), on=["dev:0", "dev:0"])
    assert [deal.box for deal in deals(tasks)] == [line(0, 8), None]


# Messages -------------------------------------------------------------------------------------------------------------


def test_one_push_per_array_lists_all_targets_and_one_await_all_sources():
    g = RankGraphs(3, devices=2)
    a, b = g.array(12), g.array(12)
    g.call("make", writes=a)
    tasks = g.call("use", reads=(a, cx.all), writes=b)
    for rank, deal in enumerate(deals(tasks)):
        (push,), (awaited,) = deal.pushes, deal.awaits
        assert push.argument == awaited.argument == 0
        assert [target for target, _ in push.targets] == [other for other in range(3) if other != rank]
        assert [source for source, _ in awaited.sources] == [other for other in range(3) if other != rank]
        assert Region(awaited.boxes) == Region((line(0, 12),)) - Region((line(4 * rank, 4 * rank + 4),))


def test_a_version_is_sent_to_a_rank_at_most_once():
    g = RankGraphs(2)
    a, b = g.array(8), g.array(8)
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    first = g.call("use", reads=(a, cx.halo(1)), writes=b, on=["dev:0", "dev:0"])
    again = g.call("use", reads=(a, cx.halo(1)), writes=b, on=["dev:0", "dev:0"])
    assert [len(deal.pushes) for deal in deals(first)] == [1, 1]
    assert [len(deal.pushes) for deal in deals(again)] == [0, 0]
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    assert [len(deal.pushes) for deal in deals(g.call("use", reads=(a, cx.all), writes=b, on="dev:0"))].count(1) == 1


def test_every_send_has_one_receive_with_the_same_key_and_box():
    g = RankGraphs(3)
    a, b = g.array((9, 4)), g.array((9, 4))
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    g.call("use", reads=(a, cx.halo(1, border="wrap")), writes=b, on=["dev:0", "dev:0"])
    g.read(b)
    sends = {i.step.key(i.task): i.step.box for rank in g.ranks for i in rank.emitted if isinstance(i.step, Send)}
    receives = {i.step.key(i.task): i.step.box for rank in g.ranks for i in rank.emitted if isinstance(i.step, Receive)}
    assert sends == receives and len(sends) > 6
    assert {i.device for rank in g.ranks for i in rank.emitted if isinstance(i.step, Send | Receive)} == {"network"}


def test_messages_of_one_task_are_not_ordered_among_themselves():
    g = RankGraphs(3)
    a, b = g.array(9), g.array(9)
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    middle = g.call("use", reads=(a, cx.halo(1)), writes=b, on=["dev:0", "dev:0"])[1]
    rank = g.ranks[1]
    messages = [*rank.of(middle).of("send"), *rank.of(middle).of("receive")]
    assert len(messages) == 4 and rank.emitted_graph.all_concurrent(messages)


def test_a_receive_comes_after_readers_of_what_it_overwrites_and_after_nobody_else():
    g = RankGraphs(2)
    a, b, c = g.array(8, data=np.arange(8.0)), g.array(8), g.array(8)
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    g.call("use", reads=(a, cx.halo(1)), writes=b, on=["dev:0", "dev:0"])
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    tasks = g.call("use", reads=(a, cx.halo(1)), writes=c, on=["dev:0", "dev:0"])
    rank = g.ranks[0]
    (second,) = rank.of(tasks[0]).of("receive")
    first = rank.instructions.of("receive")[0]
    copied = [i for i in rank.instructions.of("copy") if first.id in i.needs]
    assert copied and all(rank.emitted_graph.ordered(copy, second) for copy in copied)
    sends = rank.instructions.of("send")
    assert not any(rank.emitted_graph.ordered(send, second) for send in sends)


def test_far_apart_pieces_are_received_apart():
    g = RankGraphs(3, paged=False)
    a, b = g.array(300), g.array(300)
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    tasks = g.call("use", reads=(a, cx.halo(1)), writes=b, on=["dev:0", "dev:0"])
    allocated = [i.step.allocation.box for i in g.ranks[1].of(tasks[1]).of("alloc") if i.step.allocation.memory == 1]
    assert [box.volume for box in allocated] and all(box.volume <= 100 for box in allocated)


# Reductions -----------------------------------------------------------------------------------------------------------


def test_ranks_exchange_partial_results_and_all_combine_them():
    g = RankGraphs(2)
    x, total = g.array((4, 1 << 15), 1.0), g.array((), 0.0)
    tasks = g.call("sum", reads=x, reduces=total, over=(4, 1 << 15), on=["dev:0", "dev:0"])
    assert [deal.slots for deal in deals(tasks)] == [4, 4]
    assert [deal.first for deal in deals(tasks)] == [0, 2]
    for rank, task in zip(g.ranks, tasks, strict=True):
        assert [len(rank.of(task).of(kind)) for kind in ("send", "receive", "reduce")] == [1, 1, 1]
    assert not any(deal.pushes for deal in deals(g.read(total)))


def test_ranks_without_blocks_send_nothing_and_still_combine():
    g = RankGraphs(3)
    x, total = g.array((2, 1 << 15), 1.0), g.array((), 0.0)
    tasks = g.call("sum", reads=x, reduces=total, over=(2, 1 << 15), on=["dev:0", "dev:0"])
    last, task = g.ranks[2], tasks[2]
    assert [len(last.of(task).of(kind)) for kind in ("kernel", "send", "receive", "reduce")] == [0, 0, 2, 1]
    assert [len(rank.of(t).of("send")) for rank, t in zip(g.ranks, tasks, strict=True)] == [2, 2, 0]


@pytest.mark.parametrize(("ranks", "messages"), [(2, 2), (4, 9), (8, 28), (16, 75)])
def test_partial_results_are_passed_on_in_steps_that_double(ranks, messages):
    g = RankGraphs(ranks)
    x, total = g.array((2 * ranks, 1 << 15), 1.0), g.array((), 0.0)
    tasks = g.call("sum", reads=x, reduces=total, over=(2 * ranks, 1 << 15), on=["dev:0", "dev:0"])
    steps = (ranks - 1).bit_length()
    sent = [len(rank.of(task).of("send")) for rank, task in zip(g.ranks, tasks, strict=True)]
    # P log2 P, and one more wherever blocks of the last ranks and of the first travel together
    assert sum(sent) == messages <= ranks * steps + ranks - 1
    assert [len(deal.pushes) for deal in deals(tasks)] == [steps] * ranks
    received = [sum(i.step.box.volume for i in r.of(t).of("receive")) for r, t in zip(g.ranks, tasks, strict=True)]
    assert received == [2 * (ranks - 1)] * ranks  # every block of others once


def test_on_more_ranks_than_small_reductions_have_blocks_nothing_but_edges_and_sums_is_sent():
    """A step of conjugate gradients: two reductions and a call by rows, which are cut at the same places."""
    ranks, rows, columns = 64, 1 << 16, 1 << 12
    g = RankGraphs(ranks)
    p, q, total = g.array((rows, columns), 0.0), g.array((rows, columns), 0.0), g.array((), 0.0)
    over, on = (rows, columns), ["dev:0", "dev:0"]
    for step in range(2):
        apply = g.call("apply", reads=(p, cx.halo(1)), updates=q, reduces=total, over=over, on=on)
        advance = g.call("advance", reads=p, updates=q, reduces=total, over=over, on=on)
        turn = g.call("turn", reads=q, updates=p, over=over, on=on)
        for tasks, rows_sent in ((apply, 2 * (ranks - 1) * step), (advance, 0), (turn, 0)):
            pushes = [push for deal in deals(tasks) for push in deal.pushes if not push.partial]
            boxes = [parcel.box for push in pushes for _, parcels in push.targets for parcel in parcels]
            assert sum(box.volume for box in boxes) == rows_sent * columns
        for tasks in (apply, advance):
            assert all(deal.box is not None and len(deal.blocks) == 2 for deal in deals(tasks))
            sent = [push for deal in deals(tasks) for push in deal.pushes if push.partial]
            assert len(sent) == ranks * 6  # log2(64) steps


def test_partial_results_are_freed_when_they_are_sent():
    g = RankGraphs(2)
    x, total = g.array((4, 1 << 15), 1.0), g.array((), 0.0)
    tasks = g.call("sum", reads=x, reduces=total, over=(4, 1 << 15), on=["dev:0", "dev:0"])
    rank = g.ranks[0]
    (send,) = rank.of(tasks[0]).of("send")
    (free,) = [i for i in rank.of(tasks[0]).of("free") if i.step.allocation is send.step.allocation]
    assert rank.emitted_graph.ordered(send, free)


def test_a_result_that_is_overwritten_before_it_is_read_is_not_sent():
    g = RankGraphs(3)
    a = g.array(9)
    g.call("make", writes=a, on=["dev:0", "dev:0"])
    tasks = g.call("make", writes=a, on=["dev:0", "dev:0"])
    assert not any(deal.pushes or deal.awaits for deal in deals(tasks))


# Values ---------------------------------------------------------------------------------------------------------------


def spread(u, out):
    out[...] = u[:-2] + 2 * u[1:-1] - u[2:]


@pytest.mark.parametrize("devices", [1, 2])
@given(st.integers(2, 7), st.lists(st.sampled_from("sswtu"), max_size=6), st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_in_every_legal_order_every_rank_reads_what_numpy_computes(devices, ranks, program, seed):
    g = RankGraphs(ranks, devices)
    start = np.arange(13.0)
    a, b, total = g.array(13, data=start), g.array(13, 0.0), g.array((), 0.0)
    x, y, expected = start.copy(), np.zeros(13), 0.0
    on = ["dev:0", f"dev:{devices - 1}"]
    for step in program:
        if step == "s":
            border = cx.halo(1, border="wrap")
            g.call("spread", reads=(a, border), writes=b, body=spread, on=on)
            padded = np.pad(x, 1, mode="wrap")
            y = padded[:-2] + 2 * padded[1:-1] - padded[2:]
            (a, x), (b, y) = (b, y), (a, x)
        elif step == "w":
            g.call("one", updates=a, body=lambda v: np.add(v, 1, out=v), on="dev:0")
            x = x + 1
        elif step == "t":
            g.call("sum", reads=a, reduces=total, over=(13,), body=lambda v, t: np.add(t, v.sum(), out=t), on=on)
            expected += x.sum()
        else:
            g.call("copy", reads=(a, cx.all), writes=b, body=_reversed, on=on)
            y = np.full(13, x[::-1].sum())
    reads = [(g.read(array), value) for array, value in ((a, x), (b, y), (total, expected))]
    assert g.run(at_random(seed)) == {}
    for tasks, value in reads:
        for rank, task in zip(g.ranks, tasks, strict=True):
            np.testing.assert_array_equal(rank.delivered[task.id], value)


def _reversed(u, out):
    out[...] = u[::-1].sum()


# Replay ---------------------------------------------------------------------------------------------------------------


@cx.kernel(split=0, u=cx.read(cx.halo(1)), out=cx.write)
def near(u, out):
    """Stand for a body: nothing runs here."""


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
def summed(x, total):
    """Stand for a body: nothing runs here."""


@cx.kernel(y=cx.update)
def alone(y):
    """Stand for a body: nothing runs here."""


def streams(g):
    """Return what every rank emits, each instruction named by its place: a replay that is left leaves numbers out."""
    found = []
    for rank in g.ranks:
        place = {i.id: n for n, i in enumerate(rank.emitted)}
        found.append([_seen(i, place) for i in rank.emitted])
    return found


def _seen(instruction, place):
    needs, after = [{place[id] for id in ids} for ids in (instruction.needs, instruction.after)]
    edges = needs, after - needs
    what = [getattr(instruction.step, name, None) for name in ("device", "route", "box", "boxes")]
    task = instruction.task
    return instruction.kind, edges, what, None if task is None else (task.name, task.round)


def looped(g, steps, extra):
    a, b, c = g.array(24, data=np.arange(24.0)), g.array(24, 0.0), g.array(24, 0.0)
    total = g.array((), 0.0)
    for number, step in enumerate(steps):
        for _ in range(step):
            g.submit(near, a, b)
            g.submit(near, b, c)
            if extra == 1:
                g.submit(summed, c, total)
            elif extra == 2:
                g.submit(alone, total)
            a, b = b, a
        if number + 1 < len(steps):
            g.read(c)
    return g


@given(st.integers(2, 6), st.integers(1, 2), st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(0, 2))
@settings(max_examples=25, deadline=None)
def test_replayed_steps_are_what_analysis_would_have_made(ranks, devices, steps, extra):
    once = looped(RankGraphs(ranks, devices), steps, extra)
    again = looped(RankGraphs(ranks, devices, replay=True), steps, extra)
    assert streams(once) == streams(again)


def test_every_rank_replays_a_loop():
    g = looped(RankGraphs(3, replay=True), [30], 0)
    assert all(rank.recipes.recalled > 5 and rank.recipes.recalled > 25 for rank in g.ranks)
