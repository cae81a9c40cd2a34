"""Lanes: the in-order queues of a device, opened on demand, and the policies that choose one.

Before: graph/instruction.py.  After: execute/engine.py.  Knows no backend.

The policies are those of the GrCUDA scheduler. For an instruction whose parents are over or unknown:
`reuse` takes a lane with nothing in flight, `always-new` opens another. For a child of unfinished parents:
`disjoint` takes the lane of the first parent that has not handed its lane to another child, `same-as-parent` the
first parent's lane, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..config import blamed
from ..errors import unknown_name
from ..graph.instruction import Instruction
from ..machine.platform import Device

ROOT_POLICIES = ("reuse", "always-new")
CHILD_POLICIES = ("disjoint", "same-as-parent")


class Lane:
    """One in-order queue of one device."""

    __slots__ = ("depth", "device", "number", "tail")

    def __init__(self, device: str, number: int) -> None:
        self.device = device
        self.number = number
        self.depth = 0  # instructions issued and not over
        self.tail: Instruction | None = None  # the last one issued


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """How lanes are chosen."""

    root: str = "reuse"
    child: str = "disjoint"

    def __post_init__(self) -> None:
        for value, known in ((self.root, ROOT_POLICIES), (self.child, CHILD_POLICIES)):
            if value not in known:
                raise unknown_name("lane policy", value, known)

    @classmethod
    def parse(cls, text: str) -> LanePolicy:
        """Read "disjoint", "reuse", or both joined by "+"."""
        chosen = {}
        for part in filter(None, text.split("+")):
            if part not in ROOT_POLICIES + CHILD_POLICIES:
                with blamed("lanes", text):
                    raise unknown_name("lane policy", part, ROOT_POLICIES + CHILD_POLICIES)
            chosen["root" if part in ROOT_POLICIES else "child"] = part
        return cls(**chosen)


class DeviceLanes:
    """The lanes of one device."""

    __slots__ = ("across", "device", "eager", "lanes", "limit", "policy")

    def __init__(self, device: str, limit: int, policy: LanePolicy, *, across: bool, eager: bool = True) -> None:
        self.device = device
        self.limit = max(1, limit)
        self.policy = policy
        self.across = across  # one lane can be ordered behind another without the host
        self.eager = eager  # one thread serves a lane, so an instruction may be queued behind an unfinished one
        self.lanes: list[Lane] = []

    def of_parent(self, parents: Sequence[Instruction]) -> Lane | None:
        """Return the lane that a child of `parents` inherits, or None."""
        for parent in parents:
            lane: Lane | None = parent.lane
            if lane is not None and lane.device == self.device and not (parent.over and lane.depth):
                if self.policy.child == "same-as-parent":
                    return lane
                if not parent.handed:
                    parent.handed = True
                    return lane
        return None

    def fresh(self) -> Lane:
        """Return a lane for an instruction that inherits none."""
        lanes = self.lanes
        if self.policy.root == "reuse":
            for lane in lanes:
                if not lane.depth:
                    return lane
        if len(lanes) < self.limit:
            lane = Lane(self.device, len(lanes))
            lanes.append(lane)
            return lane
        return min(lanes, key=lambda lane: lane.depth)


def open_lanes(devices: Iterable[Device], policy: LanePolicy) -> dict[str, DeviceLanes]:
    """Return the lanes of every device, of the host and of the network, none of them open yet.

    The host's lanes are never eager: its own thread and every waiting user thread serve them. The network has as many
    lanes as messages: one that waits for the other side must never stand before another.
    """
    lanes = {d.name: DeviceLanes(d.name, d.lanes, policy, across=d.waits_across_lanes, eager=d.eager) for d in devices}
    lanes["host"] = DeviceLanes("host", 64, policy, across=False, eager=False)
    lanes["network"] = DeviceLanes("network", 1 << 30, LanePolicy(), across=False, eager=False)
    return lanes
