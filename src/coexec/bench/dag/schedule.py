"""The best static schedule of a program on two devices, and the limit that no schedule can beat.

Before: program.py.  After: harness.py, which measures the times, and hand.py, which runs the schedule.  Pure arithmetic.

Every way to give the kernels to the devices is looked at: at most 2^11 of them, since calls with one label stay together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from .program import DagProgram, KernelCall, dependencies

Assignment = Mapping[str, str]  # label -> device


class MeasuredCosts(NamedTuple):
    """What was measured: seconds per kernel by (label, device), and seconds to move an array to or from a memory."""

    kernels: Mapping[tuple[str, str], float]
    moves: Mapping[str, float]  # by array; empty where the devices share a memory
    devices: tuple[str, ...]

    def best(self, label: str) -> float:
        """Return the seconds on the device that suits a kernel best."""
        return min(self.kernels[label, device] for device in self.devices)


class Schedule(NamedTuple):
    """Who runs what, in which order, and how long that is predicted to take."""

    place: dict[str, str]  # label -> device, for resets too
    order: dict[str, list[int]]  # device -> numbers of steps
    seconds: float


def best_schedule(program: DagProgram, costs: MeasuredCosts) -> Schedule:
    """Return the schedule that is predicted to end first."""
    parents = dependencies(program.steps)
    found = (_simulate(program, parents, place, costs) for place in _assignments(program, costs))
    return min(found, key=lambda schedule: schedule.seconds)


def shortest(program: DagProgram, costs: MeasuredCosts) -> float:
    """Return the seconds below which no schedule of these indivisible kernels can come.

    For each assignment: no device's load, no path of dependencies (with the moves on it), and not half of all the work,
    since two cores do it. The least of these over all assignments is the limit.
    """
    parents = dependencies(program.steps)
    return min(
        max(_load(program, place, costs), _path(program, parents, place, costs))
        for place in _assignments(program, costs)
    )


def _assignments(program: DagProgram, costs: MeasuredCosts) -> Iterator[dict[str, str]]:
    labels = program.labels()
    first = costs.devices[:1] if _alike(labels, costs) else costs.devices
    for choice in product(first, *([costs.devices] * (len(labels) - 1))):
        place = dict(zip(labels, choice, strict=True))
        for step in program.steps:
            if not isinstance(step, KernelCall):
                place[step.label] = place[step.like]
        yield place


def _alike(labels: Sequence[str], costs: MeasuredCosts) -> bool:
    return all(len({costs.kernels[label, device] for device in costs.devices}) == 1 for label in labels)


def _seconds(program: DagProgram, number: int, place: Assignment, costs: MeasuredCosts) -> float:
    label = program.steps[number].label
    return costs.kernels.get((label, place[label]), 0.0)


def _load(program: DagProgram, place: Assignment, costs: MeasuredCosts) -> float:
    loads = dict.fromkeys(costs.devices, 0.0)
    for number, step in enumerate(program.steps):
        loads[place[step.label]] += _seconds(program, number, place, costs)
    moved = sum(costs.moves[name] for names in _moves(program, place, costs).values() for name in names)
    return max(*loads.values(), (sum(loads.values()) + moved) / len(loads))


def _path(program: DagProgram, parents: Sequence[Sequence[int]], place: Assignment, costs: MeasuredCosts) -> float:
    ends: list[float] = []
    moves = _moves(program, place, costs)
    for number in range(len(program.steps)):
        moving = sum(costs.moves[name] for name in moves.get(number, ()))
        start = max((ends[p] for p in parents[number]), default=0.0)
        ends.append(start + moving + _seconds(program, number, place, costs))
    return max(ends)


def _moves(program: DagProgram, place: Assignment, costs: MeasuredCosts) -> dict[int, list[str]]:
    """Return the arrays to move before each step; none where the devices share a memory."""
    return dict(arrivals(program, place, costs.devices[0])) if costs.moves else {}


def arrivals(program: DagProgram, place: Assignment, host: str) -> list[tuple[int, list[str]]]:
    """Return, for devices with memories of their own, the arrays that must arrive before each step.

    What the program never writes, and the host does not rewrite, is everywhere. `host` is the device in whose memory
    the host's writes land.
    """
    written = {name for step in program.steps for name in step.writes()}
    constant = set(program.arrays) - written - set(program.rewritten)
    held = {name: {host} for name in program.arrays}
    found = []
    for number, step in enumerate(program.steps):
        device = place[step.label]
        missing = [name for name in sorted(step.reads() - constant) if device not in held[name]]
        found.append((number, missing))
        for name in missing:
            held[name].add(device)
        for name in step.writes():
            held[name] = {device}
    return found


def _simulate(
    program: DagProgram, parents: Sequence[Sequence[int]], place: dict[str, str], costs: MeasuredCosts
) -> Schedule:
    """Run the steps on a virtual clock: whatever can start first does, the one with more behind it first."""
    behind = _behind(program, parents, place, costs)
    moves = _moves(program, place, costs)
    free = dict.fromkeys(costs.devices, 0.0)
    order: dict[str, list[int]] = {device: [] for device in costs.devices}
    ends: dict[int, float] = {}
    left = list(range(len(program.steps)))
    while left:
        ready = [n for n in left if all(p in ends for p in parents[n])]
        starts = {
            n: max(free[place[program.steps[n].label]], max((ends[p] for p in parents[n]), default=0.0)) for n in ready
        }
        number = min(ready, key=lambda n: (starts[n], -behind[n], n))
        device = place[program.steps[number].label]
        moving = sum(costs.moves[name] for name in moves.get(number, ()))
        ends[number] = free[device] = starts[number] + moving + _seconds(program, number, place, costs)
        order[device].append(number)
        left.remove(number)
    return Schedule(place, order, max(ends.values()))


def _behind(
    program: DagProgram, parents: Sequence[Sequence[int]], place: Assignment, costs: MeasuredCosts
) -> list[float]:
    """Return per step the longest path from its start to the end."""
    longest = [0.0] * len(program.steps)
    for number in reversed(range(len(program.steps))):
        longest[number] += _seconds(program, number, place, costs)
        for parent in parents[number]:
            longest[parent] = max(longest[parent], longest[number])
    return longest
