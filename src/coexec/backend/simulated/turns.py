"""Who waits for whom before it begins: kernels for a device's limit and for shared cores, copies for copy engines.

Before: places.py.  After: world.py.  Knows no time: it is asked whenever something could begin.

A wide device is all cores at once: while it computes the narrow ones on its cores do not, and the other way round. As
with real cores it claims them: from when its kernel could begin, narrow ones begin nothing until it is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...graph.instruction import Copy
from .places import Entry, Place


def exclude(places: Iterable[Place]) -> None:
    """Make places rivals that may not compute at the same time: wide devices and others of their kind on their cores."""
    users: dict[tuple[str, int], list[Place]] = {}
    every = [place for place in places if place.device.cores]
    for place in every:
        for core in place.device.cores:
            users.setdefault((place.device.kind, core), []).append(place)
    for place in every:
        sharers = dict.fromkeys(other for core in place.device.cores for other in users[place.device.kind, core])
        place.rivals = tuple(
            other for other in sharers if other is not place and (place.device.wide or other.device.wide)
        )


def join(places: Iterable[Place]) -> None:
    """Let cores of one memory take over each other's work when they are idle, as their threads do."""
    groups: dict[int, list[Place]] = {}
    for place in places:
        if place.threads and not place.device.wide:
            groups.setdefault(place.device.memory, []).append(place)
    for group in groups.values():
        for place in group:
            place.siblings = tuple(other for other in group if other is not place)


def may_begin(entry: Entry) -> bool:
    """Tell whether an instruction need not wait for others on its device, or on its cores."""
    place = entry.place
    if entry.computes:
        return _free(place)
    limit = place.device.copies
    return limit is None or (way := _way(entry)) is None or place.copying[way] < limit


def wait(entry: Entry) -> None:
    """Let an instruction that may not begin wait for its turn: threads take what is most urgent first."""
    if entry.computes:
        waiting, priority = entry.place.waiting, entry.instruction.step.priority
        if entry.place.threads and waiting and waiting[-1].instruction.step.priority < priority:
            waiting.insert(
                next(i for i, other in enumerate(waiting) if other.instruction.step.priority < priority), entry
            )
        else:
            waiting.append(entry)
    elif (way := _way(entry)) is not None:
        entry.place.queued[way].append(entry)


def began(entry: Entry) -> None:
    """Note that an engine copies, if there are only so many."""
    if entry.place.device.copies is not None and (way := _way(entry)) is not None:
        entry.place.copying[way] += 1


def ended(entry: Entry) -> None:
    """Note that it does not any more."""
    if entry.place.device.copies is not None and (way := _way(entry)) is not None:
        entry.place.copying[way] -= 1


def withdrawn(entry: Entry) -> None:
    """Forget an instruction that was taken back before it began."""
    for queue in (entry.place.waiting, *entry.place.queued):
        if entry in queue:
            queue.remove(entry)


def following(entry: Entry) -> Iterator[Entry]:
    """Yield those who may begin now that an instruction is over, one at a time: each is begun before the next is sought."""
    place = entry.place
    if entry.computes:
        for other in (place, *place.rivals) if not place.threads else place.rivals:
            while other.waiting and may_begin(other.waiting[0]):
                yield other.waiting.popleft()
    elif place.device.copies is not None:
        for queue in place.queued:
            while queue and may_begin(queue[0]):
                yield queue.popleft()


def found_by(place: Place) -> Iterator[Entry]:
    """Yield what the thread of a device finds to do: what waits for it, else for a sibling and may move."""
    while _free(place):
        if place.waiting:
            yield place.waiting.popleft()
            continue
        moved = next(((s, e) for s in place.siblings for e in s.waiting if _may_move(e)), None)
        if moved is None:
            return
        sibling, entry = moved
        sibling.waiting.remove(entry)
        entry.place = place
        yield entry


def idle_sibling(entry: Entry) -> Place | None:
    """Return a device whose thread sleeps, and would run a kernel that waits for another; None if there is none."""
    if not _may_move(entry):
        return None
    return next((place for place in entry.place.siblings if not place.running and not place.waiting), None)


def _may_move(entry: Entry) -> bool:
    """Tell whether another core may run a kernel: no user named its device."""
    options = entry.instruction.task.options if entry.instruction.task is not None else None
    return options is None or options.devices is None


def _free(place: Place) -> bool:
    return len(place.running) < place.concurrent and (not place.rivals or _cores_free(place))


def _cores_free(place: Place) -> bool:
    if any(rival.running for rival in place.rivals):
        return False
    return place.device.wide or not any(rival.waiting for rival in place.rivals)


def _way(entry: Entry) -> int | None:
    """Return which way a copy goes: 1 into the memory of the device that makes it, 0 out of it; None within a memory."""
    copy = entry.instruction.step
    if not isinstance(copy, Copy) or copy.source.memory == copy.target.memory:
        return None
    return int(copy.target.memory == entry.place.device.memory)
