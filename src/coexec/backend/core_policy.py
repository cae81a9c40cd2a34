"""Who runs what on a process's cores, and when: the rules of the CPU backend's threads, which their simulation follows, too.

Before: graph/instruction.py, machine/.  After: backend/cpu.py, backend/simulated/admission.py.  Knows neither threads nor time.

1. What waits for a device is taken by priority, and in the order in which it came within one priority.
2. A device's thread takes what waits for its own device first.
   Then it takes the first instruction of a sibling that may move: one whose device no user named.
3. Siblings are the single cores that share a memory. All cores at once are nobody's sibling.
4. All cores at once and a single core of the same memory are rivals: they never compute at the same time.
   Threads of ours exclude each other whether or not they share a core: library calls have one number of threads per process.
   Devices that a driver serves (`eager`) exclude each other only if they share a core.
5. Who reports what is over takes next what that made ready: for its own device, else one that may move. No other thread is woken
   for it, which takes longer; it is, as soon as there is more than this thread takes.
6. All cores at once come first: from when they could begin until they are done, their rivals begin nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ..graph.instruction import Binding, Fence, Fill, Instruction, Reduce, Step
from ..machine.platform import Device

T = TypeVar("T")
LITTLE = 4096  # bytes that are filled, combined or read in less time than a thread needs to wake up
Related = Mapping[str, tuple[str, ...]]
"""The names of the devices that each device, by its name, is related to."""


def insert_by_priority(queue: deque[T], entry: T, instruction_of: Callable[[T], Instruction]) -> None:
    """Put an entry before those of lower priority, and behind all others. Other threads may take entries meanwhile."""
    priority = instruction_of(entry).step.priority
    try:
        last = queue[-1]
    except IndexError:  # nothing waits
        queue.append(entry)
        return
    if instruction_of(last).step.priority < priority:
        for position, other in enumerate(list(queue)):
            if instruction_of(other).step.priority < priority:
                queue.insert(position, entry)
                return
    queue.append(entry)


def may_move(instruction: Instruction) -> bool:
    """Tell whether another core may run an instruction: no user named its device."""
    task = instruction.task
    return task is None or task.options is None or task.options.devices is None


def siblings(devices: Iterable[Device]) -> Related:
    """Return the cores that take over each other's work when they are idle."""
    groups: dict[int, list[str]] = {}
    for device in devices:
        if not device.wide:
            groups.setdefault(device.memory, []).append(device.name)
    return {name: tuple(other for other in group if other != name) for group in groups.values() for name in group}


def rivals(devices: Sequence[Device]) -> Related:
    """Return the devices of one kind that never compute at the same time."""
    groups: dict[tuple[str, int], list[Device]] = {}
    for device in devices:
        if device.cores:
            groups.setdefault((device.kind, device.memory), []).append(device)
    found: dict[str, dict[str, None]] = {device.name: {} for device in devices}
    for group in groups.values():
        for wide in (device for device in group if device.wide):
            for other in group:
                if other is not wide and _exclude(wide, other):
                    found[wide.name][other.name] = None
                    found[other.name][wide.name] = None
    return {name: tuple(others) for name, others in found.items()}


def _exclude(wide: Device, other: Device) -> bool:
    """Tell whether all cores at once and another device exclude each other."""
    by_threads_of_ours = not wide.eager and not other.eager
    return (by_threads_of_ours and not other.wide) or not set(wide.cores).isdisjoint(other.cores)


def cores_free(device: Device, *, rival_runs: bool, rival_waits: bool) -> bool:
    """Tell whether a device may begin a kernel, as far as its rivals are concerned."""
    return not rival_runs and (device.wide or not rival_waits)


def is_little(step: Step) -> bool:
    """Tell whether a step moves or combines so few bytes that waking a thread takes longer, and runs no user's code."""
    if isinstance(step, Fence):
        return _are_few(step.binding)
    if isinstance(step, Reduce):
        return step.operator.ready_made and _are_few(step.partials)
    return isinstance(step, Fill) and step.nbytes <= LITTLE


def _are_few(binding: Binding) -> bool:
    """Tell whether a binding has few bytes, all of them numbers."""
    allocation = binding.allocation
    few = allocation is not None and binding.box.volume * allocation.dtype.itemsize <= LITTLE
    return few and allocation is not None and not allocation.dtype.hasobject
