"""Who waits for whom before it begins: kernels for a device's limit and for shared cores, copies for copy engines.

Before: devices.py, backend/core_policy.py: the rules for cores.  After: world.py.  Knows no time: it is asked whenever
something could begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from ...graph.instruction import Copy, Instruction
from ..core_policy import cores_free, insert_by_priority, may_move, rivals, siblings
from .devices import IssuedEntry, Place

_instruction: Callable[[IssuedEntry], Instruction] = attrgetter("instruction")


def relate(places: Mapping[str, Place]) -> None:
    """Tell cores who takes over their work, and who may not compute while they do, as for the threads of real ones."""
    for name, others in rivals([place.device for place in places.values()]).items():
        places[name].rivals = tuple(places[other] for other in others)
    for name, others in siblings([place.device for place in places.values() if place.threads]).items():
        places[name].siblings = tuple(places[other] for other in others)


def may_begin(entry: IssuedEntry) -> bool:
    """Tell whether an instruction need not wait for others on its device, or on its cores."""
    place = entry.place
    if entry.computes:
        return _free(place) and (not place.running or not design_lacking(entry))
    limit = _engines(entry)
    return limit is None or (way := _way(entry)) is None or place.copying[way] < limit


def _engines(entry: IssuedEntry) -> int | None:
    """Return how many copies of its kind a device makes at once in each direction; None: as many as it is asked for.

    Those for items of a stream take turns in any case: the first item is computed while the next one comes. If all came at once
    they would all be computed then, and all leave at once.
    """
    limit, task = entry.place.device.copies, entry.instruction.task
    if limit is None and task is not None and task.options is not None and task.options.streamed:
        return 1
    return limit


def design_lacking(entry: IssuedEntry) -> str:
    """Return the design that a kernel's device must be given before it can begin; "" if it needs none, or has it."""
    place, task = entry.place, entry.instruction.task
    if not place.device.configurations or task is None or task.kernel is None:
        return ""
    design = place.device.design_for(task.kernel.op or task.kernel.name, place.design)
    return "" if design is None or design.name == place.design else design.name


def wait(entry: IssuedEntry) -> None:
    """Let an instruction that may not begin wait for its turn: threads take what is most urgent first."""
    if entry.computes:
        if entry.place.threads:
            insert_by_priority(entry.place.waiting, entry, _instruction)
        else:
            entry.place.waiting.append(entry)
    elif (way := _way(entry)) is not None:
        entry.place.queued[way].append(entry)


def began(entry: IssuedEntry) -> None:
    """Note that an engine copies, if there are only so many."""
    if _engines(entry) is not None and (way := _way(entry)) is not None:
        entry.place.copying[way] += 1


def ended(entry: IssuedEntry) -> None:
    """Note that it does not any more."""
    if _engines(entry) is not None and (way := _way(entry)) is not None:
        entry.place.copying[way] -= 1


def withdrawn(entry: IssuedEntry) -> None:
    """Forget an instruction that was taken back before it began."""
    for queue in (entry.place.waiting, *entry.place.queued):
        if entry in queue:
            queue.remove(entry)


def following(entry: IssuedEntry) -> Iterator[IssuedEntry]:
    """Yield those who may begin now that an instruction is over, one at a time: each is begun before the next is sought."""
    place = entry.place
    if entry.computes or entry.loads:
        for other in (place, *place.rivals) if not place.threads else place.rivals:
            while other.waiting and may_begin(other.waiting[0]):
                yield other.waiting.popleft()
    else:
        for queue in place.queued:
            while queue and may_begin(queue[0]):
                yield queue.popleft()


def found_by(place: Place) -> Iterator[IssuedEntry]:
    """Yield what the thread of a device finds to do: what waits for it, else for a sibling and may move."""
    while _free(place):
        if place.waiting:
            if place.running and design_lacking(place.waiting[0]):
                return
            yield place.waiting.popleft()
            continue
        moved = next(((s, e) for s in place.siblings for e in s.waiting if may_move(e.instruction)), None)
        if moved is None:
            return
        sibling, entry = moved
        sibling.waiting.remove(entry)
        entry.place = place
        yield entry


def idle_sibling(entry: IssuedEntry) -> Place | None:
    """Return a device whose thread sleeps, and would run a kernel that waits for another; None if there is none."""
    if not may_move(entry.instruction):
        return None
    return next((place for place in entry.place.siblings if not place.running and not place.waiting), None)


def _free(place: Place) -> bool:
    return len(place.running) < place.concurrent and not place.loading and (not place.rivals or _cores_free(place))


def _cores_free(place: Place) -> bool:
    runs, waits = any(rival.running for rival in place.rivals), any(rival.waiting for rival in place.rivals)
    return cores_free(place.device, rival_runs=runs, rival_waits=waits)


def _way(entry: IssuedEntry) -> int | None:
    """Return which way a copy goes: 1 into the memory of the device that makes it, 0 out of it; None within a memory."""
    copy = entry.instruction.step
    if not isinstance(copy, Copy) or copy.source.memory == copy.target.memory:
        return None
    return int(copy.target.memory == entry.place.device.memory)
