"""The engine: behaviours B49 to B54 of the Celerity reference, priorities, failures and cancellation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from coexec.errors import TaskCancelled
from coexec.execute.engine import Engine
from coexec.execute.lanes import DeviceLanes, LanePolicy
from coexec.machine.platform import HOST, USER
from coexec.testing.graphs import GraphBuilder
from tests.execute.stage import Stage


@pytest.mark.parametrize("alone", [True, False], ids=["as one batch", "one by one"])
def test_a_chain_on_one_device_is_issued_at_once_into_one_lane(alone: bool) -> None:
    """B49."""
    stage = Stage()
    stage.submit("a", alone=alone)
    for parent, name in pairwise("abcd"):
        stage.submit(name, parent, alone=alone)
    stage.issue()
    assert stage.order == ["a", "b", "c", "d"]
    assert stage.assigned("abcd") == [0, 0, 0, 0]
    assert [stage.issues[n].instruction.eager for n in "abcd"] == [False, True, True, True]


def test_chains_on_different_devices_use_lanes_of_their_own() -> None:
    """B49."""
    stage = Stage()
    for device in ("dev:0", "dev:1"):
        stage.submit(f"a {device}", device=device)
        stage.submit(f"b {device}", f"a {device}", device=device)
    assert [stage.issues[n].lane.device for n in stage.order] == ["dev:0", "dev:0", "dev:1", "dev:1"]
    assert stage.opened("dev:0") == stage.opened("dev:1") == 1


def test_independent_work_on_one_device_uses_several_lanes() -> None:
    stage = Stage()
    for name in "abc":
        stage.submit(name)
    assert stage.assigned("abc") == [0, 1, 2]


def test_a_copy_to_the_host_is_issued_behind_its_kernel_and_one_between_devices_on_its_target() -> None:
    """B50. Ours decides the lane of a copy when it is lowered: the target's device, else the source's, else the host."""
    g = GraphBuilder(2)
    a = g.array(10)
    g.call("make", writes=a, on="dev:0")
    g.call("use", reads=a, writes=g.array(10), on="dev:1")
    g.call("more", updates=a, on="dev:1")
    g.read(a)
    copies = g.instructions.of("copy")
    assert [(i.step.source.memory, i.step.target.memory, i.device) for i in copies] == [
        (2, 3, "dev:1"),
        (3, HOST, "dev:1"),
    ]
    lanes = {n: DeviceLanes(n, 64, LanePolicy(), across=False) for n in ("dev:0", "dev:1", "host")}
    engine = Engine(lanes)
    issued = []
    for instruction in g.emitted:
        engine.submit([instruction])
        while (issue := engine.next()) is not None:
            issued.append((issue.instruction.kind, issue.lane.device, issue.instruction.eager))
            if issue.lane.number < 0 or issue.instruction.id <= copies[0].id:
                engine.finish(issue.instruction)
    assert issued[-1] == ("copy", "dev:1", True)  # behind "more", which has not finished
    assert [kind for kind, _, _ in issued].count("fence") == 0  # the host's lane waits for the copy's end


def test_a_copy_within_the_host_goes_to_a_host_lane_or_to_its_reader() -> None:
    """B50."""
    g = GraphBuilder(1, shared=True, paged=False)
    a, b = g.array(100), g.array(100, data=np.zeros(100), borrowed=True)
    g.call("some", writes=a[:50])
    g.call("more", updates=a[40:60])
    g.call("change", updates=b)
    resize, own = g.instructions.of("copy")
    assert (resize.step.reason, resize.device) == ("resize", "host")
    assert (own.step.source.memory, own.step.target.memory, own.device) == (
        USER,
        HOST,
        "dev:0",
    )  # warm for who reads it next


def test_allocations_take_no_lane_and_nothing_is_issued_behind_one() -> None:
    """B51."""
    stage = Stage()
    alloc = stage.submit("alloc", device="")
    assert stage.lane("alloc") == -1 and alloc.device == ""
    stage.submit("kernel", "alloc")
    assert stage.order == ["alloc"]
    assert stage.finish("alloc") == ["kernel"]
    stage.submit("free", "kernel", device="", priority=-1)
    assert stage.order == ["alloc", "kernel"]
    assert stage.finish("kernel") == ["free"]


def test_an_allocation_that_is_over_does_not_hinder_eager_issue() -> None:
    """B49, with the instructions of one command: both allocations are over when the copy is under way."""
    g = GraphBuilder(2)
    a = g.array(10)
    g.call("make", writes=a, on="dev:0")
    use = g.call("use", reads=a, writes=g.array(10), on="dev:1")
    lanes = {n: DeviceLanes(n, 64, LanePolicy(), across=False) for n in ("dev:0", "dev:1", "host")}
    engine = Engine(lanes)
    issued = []
    for batch in g.batches:
        for instruction in batch:
            engine.submit([instruction])
        while (issue := engine.next()) is not None:
            issued.append(issue.instruction)
            if issue.lane.number < 0 or issue.instruction.device == "dev:0":
                engine.finish(issue.instruction)
    assert g.kernels(use).only() in issued and g.kernels(use).only().eager


def test_ready_work_leaves_by_decreasing_priority_and_then_by_age() -> None:
    """B52."""
    stage = Stage()
    for name, priority in [("a", 4), ("b", 6), ("c", 1), ("d", 6), ("e", 9)]:
        stage.submit(name, priority=priority, alone=True)
    assert stage.issue() == ["e", "b", "d", "a", "c"]


class Walk:
    """Random graphs on a stage: lanes finish in order, and each issue is checked against what is still open."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.queues: dict[tuple[str, int], list[str]] = {}
        self.seen = 0

    def heads(self) -> list[list[str]]:
        return [queue for queue in self.queues.values() if queue]

    def check_issues(self) -> None:
        stage = self.stage
        for name in stage.order[self.seen :]:
            issue = stage.issues[name]
            lane = (issue.lane.device, issue.lane.number)
            still_open = {n for queue in self.queues.values() for n in queue}
            still_open |= {n for n, i in stage.named.items() if i in stage.engine.waiting()}
            behind = {n for n, i in stage.named.items() if i in issue.waits} | set(self.queues.get(lane, []))
            parents = {n for n, i in stage.named.items() if i.id in issue.instruction.after}
            assert parents & still_open <= behind, "issued before a parent that nothing orders it behind"
            self.queues.setdefault(lane if lane[1] >= 0 else ("", -int(name) - 1), []).append(name)
        self.seen = len(stage.order)


@given(st.data())
def test_everything_is_issued_exactly_once_and_only_when_it_may(data: st.DataObject) -> None:
    """B52 and B53: completions in any order between lanes, and in order within one."""
    policy = data.draw(st.sampled_from(["disjoint+reuse", "same-as-parent+reuse", "disjoint+always-new"]))
    stage = Stage(policy, across=data.draw(st.booleans()), limit=data.draw(st.integers(1, 4)))
    walk = Walk(stage)
    count = data.draw(st.integers(1, 25))
    while len(stage.named) < count or not stage.engine.idle:
        number = len(stage.named)
        if number < count and (not walk.heads() or data.draw(st.booleans())):
            parents = data.draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
            device, priority = data.draw(st.sampled_from(["dev:0", "dev:1", ""])), data.draw(st.integers(0, 8))
            alone = data.draw(st.booleans())
            stage.submit(str(number), *map(str, parents), device=device, priority=priority, alone=alone)
        elif walk.heads():
            stage.finish(data.draw(st.sampled_from(walk.heads())).pop(0))
        else:
            assert stage.issue(), "nothing can go on"
        walk.check_issues()
    assert sorted(stage.order, key=int) == [str(i) for i in range(count)]


def test_completions_may_come_in_any_order() -> None:
    """B53."""
    stage = Stage()
    stage.submit("a")
    stage.submit("b", "a")  # behind a, on its lane
    stage.submit("c", device="dev:1")
    stage.submit("d", "b", "c", device="dev:1")
    stage.finish("b")  # a device may report the later one first
    stage.finish("a")
    stage.finish("c")
    stage.finish("d")
    assert stage.engine.idle and stage.order == ["a", "b", "c", "d"]


def test_eager_issue_needs_all_open_parents_on_one_lane_and_one_of_them_last() -> None:
    """B54."""
    stage = Stage()
    stage.submit("a")
    stage.submit("b")
    stage.submit("c", "a", "b")  # two lanes
    assert "c" not in stage.issues
    assert stage.finish("a") == []
    assert stage.finish("b") == ["c"]
    stage.submit("d", "c")
    stage.submit("e", "c", "d")  # both open, both on one lane, and d is its last
    assert stage.named["e"].eager and stage.lane("c") == stage.lane("d") == stage.lane("e")


def test_an_overtaken_instruction_waits_and_takes_another_lane() -> None:
    """B54."""
    stage = Stage()
    stage.submit("a")
    stage.submit("b", "a")  # takes the tail
    stage.submit("c", "a")  # not last on the lane any more
    assert stage.order == ["a", "b"]
    assert stage.finish("a") == ["c"]
    assert stage.lane("c") != stage.lane("b")


def test_an_overtaken_instruction_is_checked_again_when_its_turn_comes() -> None:
    """B54: both were eligible when they were submitted, and the first to be issued takes the tail."""
    stage = Stage()
    stage.submit("a")
    stage.submit("b", "a", alone=True)
    stage.submit("c", "a", alone=True, priority=5)
    assert stage.issue() == ["c"]
    assert stage.finish("a") == ["b"]
    assert stage.lane("b") != stage.lane("c")


def test_a_child_takes_a_free_lane_rather_than_one_where_a_parent_once_ran() -> None:
    """Ours: a lane that went on to other work is no parent's lane any more."""
    stage = Stage()
    stage.submit("a")
    stage.submit("e")
    stage.submit("c", "a", "e")
    stage.finish("a")
    stage.submit("d")  # long, on a's lane
    assert stage.lane("d") == stage.lane("a")
    assert stage.finish("e") == ["c"]
    assert stage.lane("c") == stage.lane("e")


def test_a_lane_with_several_servers_gets_an_instruction_only_when_its_parents_are_over() -> None:
    """Ours: where several threads serve a lane, its order alone does not order anything."""
    stage = Stage(eager=False)
    stage.submit("a")
    stage.submit("b", "a")
    assert stage.order == ["a"]
    assert stage.finish("a") == ["b"]
    assert not stage.named["b"].eager


# Failures -----------------------------------------------------------------------------------------------------------------


def test_a_failure_reaches_those_who_need_the_result_and_nobody_who_only_comes_after() -> None:
    stage = Stage()
    error = ValueError("no")
    stage.submit("bad")
    stage.submit("reader", needs=["bad"])
    stage.submit("overwriter", "bad", device="dev:1")
    stage.submit("second", needs=["reader"], device="dev:1")
    stage.submit("unrelated")
    stage.finish("bad", failure=error)
    assert stage.named["reader"].failure is error  # on the lane already: the backend reports it without running it
    assert stage.named["overwriter"].failure is None and "overwriter" in stage.order
    stage.finish("reader", failure=error)
    assert stage.engine.failed == {stage.named[n].id: error for n in ("bad", "reader", "second")}
    assert "second" not in stage.order
    stage.finish("overwriter", "unrelated")
    assert stage.engine.idle


def test_a_failed_reader_that_was_issued_fails_even_if_the_backend_reports_success() -> None:
    stage = Stage()
    error = ValueError("no")
    stage.submit("bad")
    stage.submit("reader", needs=["bad"])
    stage.finish("bad", failure=error)
    stage.finish("reader")
    assert stage.engine.failed[stage.named["reader"].id] is error


def test_what_is_submitted_after_the_failure_of_what_it_needs_never_runs() -> None:
    stage = Stage()
    error = ValueError("no")
    stage.submit("bad")
    stage.finish("bad", failure=error)
    stage.submit("reader", needs=["bad"])
    stage.submit("overwriter", "bad")
    assert stage.order == ["bad", "overwriter"]
    assert stage.engine.failed[stage.named["reader"].id] is error


def test_the_first_failure_is_the_one_that_is_kept() -> None:
    stage = Stage()
    first, second = ValueError("first"), ValueError("second")
    stage.submit("one")
    stage.submit("two")
    stage.submit("reader", needs=["one", "two"])
    stage.finish("one", failure=first)
    stage.finish("two", failure=second)
    assert stage.engine.failed[stage.named["reader"].id] is first


def test_failures_that_nothing_can_depend_on_are_forgotten() -> None:
    stage = Stage()
    error = ValueError("no")
    for name in "abc":
        stage.submit(name)
        stage.finish(name, failure=error)
    stage.engine.forget_failures({stage.named["b"].id})
    assert list(stage.engine.failed) == [stage.named["b"].id]


def test_a_cancelled_instruction_does_not_run_and_neither_does_what_needs_it() -> None:
    stage = Stage()
    error = TaskCancelled("stop")
    stage.submit("a")
    stage.submit("b", "a", device="dev:1")
    stage.submit("reader", needs=["b"], device="dev:1")
    stage.submit("next", "b", device="dev:1")
    assert stage.engine.doom(stage.named["b"], error)
    assert stage.finish("a") == ["next"]
    assert stage.order == ["a", "next"]
    assert set(stage.engine.failed) == {stage.named["b"].id, stage.named["reader"].id}


def test_what_was_issued_or_is_over_cannot_be_cancelled_by_the_engine() -> None:
    stage = Stage()
    stage.submit("a")
    assert not stage.engine.doom(stage.named["a"], TaskCancelled("stop"))
    stage.finish("a")
    assert not stage.engine.doom(stage.named["a"], TaskCancelled("stop"))
    assert stage.engine.failed == {}


def test_the_engine_knows_what_waits_and_what_is_issued() -> None:
    stage = Stage()
    stage.submit("a")
    stage.submit("b", "a", device="dev:1")
    assert stage.engine.issued() == [stage.named["a"]] and stage.engine.waiting() == [stage.named["b"]]
    assert len(stage.engine) == 2 and not stage.engine.idle
