"""Lane policies: behaviours G21 to G33 of the GrCUDA reference.

Its streams are assigned when a kernel is submitted, which is what devices that order one lane behind another
(`across=True`) do here too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from coexec.errors import UnknownName
from coexec.execute.engine import Engine
from coexec.execute.lanes import DeviceLanes, LanePolicy, open_lanes
from coexec.machine.platform import Device
from coexec.program.array import Array
from coexec.testing.graphs import GraphBuilder
from tests.execute.stage import Stage

ROOTS = ["reuse", "always-new"]


def stream(policy: str, *steps: str) -> Stage:
    """Submit tasks named by single letters; "CAB" is C, which comes after A and B."""
    stage = Stage(policy, across=True)
    for name, *parents in map(list, steps):
        stage.submit(name, *parents)
    return stage


@pytest.mark.parametrize("root", ROOTS)
def test_a_join_goes_to_its_first_parent(root: str) -> None:
    """G21."""
    stage = stream(f"same-as-parent+{root}", "A", "B", "CAB", "DC")
    assert stage.assigned("ABCD") == [0, 1, 0, 0]
    assert stage.active() == [3, 1]


@pytest.mark.parametrize("root", ROOTS)
def test_same_as_parent_keeps_a_tree_on_one_lane(root: str) -> None:
    """G22. One host read frees the lane, in ours only of what it waits for."""
    stage = stream(f"same-as-parent+{root}", "A", "BA", "CA", "DB", "ED", "FE")
    assert stage.active() == [6]
    stage.host_read("F")
    assert stage.active() == [1]  # C, which nobody waited for; the reference finishes the whole stream
    stage.host_read("C")
    assert stage.active() == [0]


@pytest.mark.parametrize("policy", ["same-as-parent", "disjoint"])
@pytest.mark.parametrize("root", ROOTS)
def test_independent_chains_have_lanes_of_their_own(policy: str, root: str) -> None:
    """G23."""
    stage = stream(f"{policy}+{root}", "A", "BA", "C", "DC")
    assert stage.assigned("ABCD") == [0, 0, 1, 1]
    stage.host_read("B")
    assert stage.active() == [0, 2]


@pytest.mark.parametrize("policy", ["same-as-parent", "disjoint"])
@pytest.mark.parametrize("root", ROOTS)
def test_a_host_read_of_a_join_frees_the_lanes_of_all_its_ancestors(policy: str, root: str) -> None:
    """G24."""
    stage = stream(f"{policy}+{root}", "A", "B", "C", "DAB", "EDC")
    assert stage.opened() == 3
    stage.host_read("E")
    assert stage.active() == [0, 0, 0] and stage.engine.idle


@pytest.mark.parametrize(("root", "lanes"), [("reuse", 2), ("always-new", 20)])
def test_a_loop_with_host_reads_reuses_its_lanes_or_opens_new_ones(root: str, lanes: int) -> None:
    """G25."""
    stage = Stage(f"disjoint+{root}", across=True)
    for number in range(10):
        stage.submit(f"a{number}")
        stage.submit(f"b{number}")
        stage.host_read(f"a{number}", f"b{number}")
    assert stage.opened() == lanes


@pytest.mark.parametrize("root", ROOTS)
def test_the_first_child_inherits_the_lane_and_the_second_gets_another(root: str) -> None:
    """G26."""
    stage = stream(f"disjoint+{root}", "A", "BA", "CA")
    assert stage.assigned("ABC") == [0, 0, 1]
    stage.host_read("B")
    assert stage.active() == [0, 1]


@pytest.mark.parametrize("root", ROOTS)
def test_the_children_of_a_cross_join_inherit_one_lane_each(root: str) -> None:
    """G27."""
    stage = stream(f"disjoint+{root}", "A", "B", "CAB", "DAB")
    assert stage.assigned("ABCD") == [0, 1, 0, 1]


@pytest.mark.parametrize("root", ROOTS)
def test_three_children_of_three_parents_inherit_one_lane_each(root: str) -> None:
    """G28."""
    stage = stream(f"disjoint+{root}", "A", "B", "C", "DABC", "EABC", "FABC")
    assert stage.assigned("ABCDEF") == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("root", ROOTS)
def test_a_host_read_of_one_branch_leaves_the_others_active(root: str) -> None:
    """G29."""
    stage = stream(f"disjoint+{root}", "A", "BA", "CA", "DC", "EC")
    assert stage.opened() == 3
    stage.host_read("E")
    assert stage.active() == [1, 1, 0]  # B and D


def test_a_repeated_block_with_host_reads_keeps_its_lanes() -> None:
    """G30."""
    stage = Stage("disjoint+reuse", across=True)
    seen = []
    for number in range(5):
        a, b, c, d, e = (f"{name}{number}" for name in "abcde")
        stage.submit(a)
        stage.submit(b, a)
        stage.submit(c, a)
        stage.submit(d, c)
        stage.submit(e, c)
        seen.append([stage.lane(name) for name in (a, b, c, d, e)])
        stage.host_read(b, d, e)
    assert seen == [seen[0]] * 5 and stage.opened() == 3


# Whole benchmarks, as they are lowered ------------------------------------------------------------------------------------

IMAGE = [
    ("blur small", "image", "bs"),
    ("blur large", "image", "bl"),
    ("blur unsharp", "image", "bu"),
    ("sobel small", "bs", "ms"),
    ("sobel large", "bl", "ml"),
    ("max", "ml", "mx"),
    ("min", "ml", "mn"),
    ("extend", "mx mn", "ml"),
    ("unsharpen", "image bu", "iu"),
    ("combine", "iu bl ml", "image2"),
    ("combine again", "image2 bs ms", "image3"),
]


class Program:
    """A builder whose arrays have names."""

    def __init__(self) -> None:
        self.g = GraphBuilder(1, shared=True)
        self._arrays: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        return self._arrays.setdefault(name, self.g.array(8, data=np.zeros(8)))

    def call(self, name: str, reads: str, updates: str, *, const: bool = True) -> None:
        """Record a kernel; without `const` all its arrays count as written."""
        read, written = [self[n] for n in reads.split()], [self[n] for n in updates.split()]
        self.g.call(name, reads=read if const else (), updates=written if const else [*read, *written])

    def submit(self, policy: str) -> tuple[Engine, DeviceLanes]:
        """Submit everything to a device that orders lanes itself."""
        lanes = DeviceLanes("dev:0", 64, LanePolicy.parse(policy), across=True)
        engine = Engine({"dev:0": lanes})
        for instruction in self.g.emitted:
            engine.submit([instruction])
            while (issue := engine.next()) is not None:
                if issue.lane.number < 0:
                    engine.finish(issue.instruction)
        return engine, lanes


def hits(program: Program, iterations: int) -> None:
    for _ in range(iterations):
        program.call("A1", "hub1", "auth2")
        program.call("H1", "auth1", "hub2")
        program.call("A2", "auth2", "auth_norm")
        program.call("H2", "hub2", "hub_norm")
        program.call("A3", "auth2 auth_norm", "auth1")
        program.call("H3", "hub2 hub_norm", "hub1")


@pytest.mark.parametrize("policy", ["disjoint", "same-as-parent"])
def test_hits_uses_two_lanes_however_long_it_runs(policy: str) -> None:
    """G31. In the reference same-as-parent collapses on one stream; ours prefers the parent whose result is read."""
    program = Program()
    hits(program, 10)
    engine, lanes = program.submit(policy)
    assert len(lanes.lanes) == 2 and sum(lane.depth for lane in lanes.lanes) == 60
    assert len(engine.issued()) == 60


def test_reading_the_authorities_leaves_the_last_two_hub_kernels_active() -> None:
    """G32."""
    program = Program()
    hits(program, 10)
    engine, lanes = program.submit("disjoint")
    read = program.g.read(program["auth1"])
    for instruction in program.g.of(read).ancestors().of("kernel"):
        engine.finish(instruction)
    assert sorted(lane.depth for lane in lanes.lanes) == [0, 2]
    assert [i.task.name for i in engine.issued() if i.task is not None] == ["H2", "H3"]


@pytest.mark.parametrize(
    ("const", "policy", "count"),
    [(True, "disjoint", 4), (True, "same-as-parent", 3), (False, "disjoint", 3), (False, "same-as-parent", 1)],
)
def test_image_processing_uses_as_many_lanes_as_the_reference(const: bool, policy: str, count: int) -> None:
    """G33."""
    program = Program()
    for name, reads, written in IMAGE:
        program.call(name, reads, written, const=const)
    engine, lanes = program.submit(policy)
    assert len(lanes.lanes) == count
    read = program.g.read(program["image3"])
    for instruction in program.g.of(read).ancestors().of("kernel"):
        engine.finish(instruction)
    assert [lane.depth for lane in lanes.lanes] == [0] * count and engine.idle


# The policies themselves --------------------------------------------------------------------------------------------------


def test_policies_are_read_by_name_in_any_order() -> None:
    assert LanePolicy.parse("reuse+disjoint") == LanePolicy.parse("") == LanePolicy("reuse", "disjoint")
    assert LanePolicy.parse("same-as-parent") == LanePolicy("reuse", "same-as-parent")


@pytest.mark.parametrize(
    "make", [lambda: LanePolicy.parse("disjont"), lambda: LanePolicy(root="disjoint"), lambda: LanePolicy(child="new")]
)
def test_an_unknown_policy_is_an_error_that_names_the_known_ones(make: Callable[[], LanePolicy]) -> None:
    """The reference falls back to its default with a line in the log."""
    with pytest.raises(UnknownName, match=r"reuse|disjoint"):
        make()


def test_a_device_never_opens_more_lanes_than_it_has() -> None:
    stage = Stage("disjoint+always-new", across=True, limit=3)
    for name in "ABCDEFG":
        stage.submit(name)
    assert stage.opened() == 3 and stage.active() == [3, 2, 2]


def test_a_child_on_a_device_that_orders_lanes_names_the_parents_it_waits_for() -> None:
    stage = stream("disjoint", "A", "B", "CAB")
    assert stage.issues["C"].waits == (stage.named["B"],)


def test_every_device_and_the_host_have_lanes_none_of_them_open() -> None:
    lanes = open_lanes([Device("dev:0", "invented", 1, waits_across_lanes=True, lanes=2)], LanePolicy())
    assert list(lanes) == ["dev:0", "host", "network"]
    assert lanes["dev:0"].across and lanes["dev:0"].limit == 2 and not lanes["host"].across
    assert lanes["dev:0"].lanes == lanes["host"].lanes == []
