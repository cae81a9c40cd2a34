"""Why each device was idle, moment by moment.

Before: trace.py, intervals.py.  After: report.py, gantt.py.  Knows rows only: no device is asked anything.

A device is busy while it computes (kernels, host tasks, reductions, fills). All other time in the run is idle, and
each moment of it has one cause, the first of these that holds:
    its cores are in use     another device computed on them (cpu:all and cpu:0 exclude each other)
    waiting for copy         its own lanes were moving data, or its next work waited for a copy elsewhere
    launching                a kernel was handed to it, which takes its time (where the platform says so)
    scheduling               work for it was ready but had not started
    waiting for dependency   work for it was submitted but something it depends on was not over
    end of program           nothing more came for it
    nothing submitted        the program had not yet submitted its next work
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..trace import COMPUTE, Row, Trace
from .intervals import Interval, intersect, merge, subtract

NOTHING = "nothing submitted"
DEPENDENCY = "waiting for dependency"
COPY = "waiting for copy"
SCHEDULING = "scheduling"
LAUNCHING = "launching"
SHARED = "its cores are in use"
END = "end of program"
CAUSES = (NOTHING, DEPENDENCY, COPY, SCHEDULING, LAUNCHING, SHARED, END)


_DEPTH = 16  # how many links of a chain of waits are followed


class Idle(NamedTuple):
    """A stretch of time in which a device computed nothing, and why."""

    start: float
    stop: float
    cause: str
    detail: str  # what it waited for, in words; may be empty


class _Queued(NamedTuple):
    """When one instruction for a device was submitted, ready and started."""

    ready: float
    submitted: float
    start: float
    row: Row


def idle(trace: Trace) -> dict[str, list[Idle]]:
    """Return, per device, its idle time inside the run as sorted stretches with their causes."""
    rows: dict[str, list[Row]] = {name: [] for name in trace.devices}
    for row in trace.work:
        if row["device"]:
            rows[row["device"]].append(row)
    busy = {name: merge((r["start"], r["stop"]) for r in rows[name] if r["kind"] in COMPUTE) for name in rows}
    cores = {str(d["name"]): set(d.get("cores") or ()) for d in trace.header.get("devices", ())}
    waits = sorted(trace.waits, key=lambda wait: (wait["start"], wait["stop"]))
    found = {}
    for name, mine in rows.items():
        rivals = [other for other in busy if other != name and cores.get(name, set()) & cores.get(other, set())]
        found[name] = _idle(trace, mine, busy[name], {other: busy[other] for other in rivals}, waits)
    return found


def idle_by_cause(stretches: Sequence[Idle]) -> dict[str, float]:
    """Return the seconds per cause, every cause present."""
    total = dict.fromkeys(CAUSES, 0.0)
    for stretch in stretches:
        total[stretch.cause] += stretch.stop - stretch.start
    return total


def _idle(
    trace: Trace, rows: list[Row], busy: list[Interval], rivals: Mapping[str, list[Interval]], waits: list[Row]
) -> list[Idle]:
    """Return the idle stretches of the device that ran `rows`; `rivals` tells when others had its cores."""
    found: list[Idle] = []
    gaps = subtract(merge([trace.window]), busy)
    for other, taken in rivals.items():
        found += [Idle(*part, SHARED, other) for part in intersect(gaps, taken)]
        gaps = subtract(gaps, taken)

    copies = merge((r["start"], r["stop"]) for r in rows if r["kind"] == "copy")
    found += [Idle(*part, COPY, _copy_at(trace, rows, part)) for part in intersect(gaps, copies)]
    gaps = subtract(gaps, copies)

    computing = (_queued(trace, row) for row in rows if row["kind"] in COMPUTE)
    queue = sorted(computing, key=lambda q: (q.ready, q.submitted, q.start))
    launching = merge((max(q.ready, q.start - _launch(trace, q.row)), q.start) for q in queue)
    found += [Idle(*part, LAUNCHING, "") for part in intersect(gaps, launching)]
    gaps = subtract(gaps, launching)
    ready = merge((q.ready, q.start) for q in queue)
    pending = merge((q.submitted, q.start) for q in queue)
    found += [Idle(*part, SCHEDULING, "") for part in intersect(gaps, ready)]
    gaps = subtract(gaps, ready)
    found += _waits(trace, queue, intersect(gaps, pending))

    last = max((q.start for q in queue), default=trace.window[1])
    for start, stop in subtract(gaps, pending):
        cause = END if start >= last else NOTHING
        found.append(Idle(start, stop, cause, _program_at(waits, start, stop) if cause == NOTHING else ""))
    return sorted(found)


def _queued(trace: Trace, row: Row) -> _Queued:
    """Return the row's times in order: submitted <= ready <= start, whatever the clocks said."""
    start = row["start"]
    ready = min(start if row.get("ready") is None else row["ready"], start)
    task = _task(trace, row)
    submitted = ready if task is None else min(task["submitted"], start)
    return _Queued(max(ready, submitted), submitted, start, row)


def _launch(trace: Trace, row: Row) -> float:
    return trace.launches.get(row["device"], 0.0) if row["kind"] == "kernel" else 0.0


def _waits(trace: Trace, queue: list[_Queued], parts: list[Interval]) -> list[Idle]:
    """Return why submitted work was not ready in each of `parts`."""
    times = [q.ready for q in queue]
    found = []
    for start, stop in parts:
        at = bisect_left(times, stop)
        near = queue[at : at + 16] or queue[-1:]
        # What ended the wait is the first to become ready; one submitted after the wait began did not cause it.
        blamed = next((q for q in near if q.submitted <= start), near[0])
        found += _chain(trace, blamed.row, start, stop)
    return found


def _chain(trace: Trace, row: Row, start: float, stop: float) -> list[Idle]:
    """Return what `row` waited for between `start` and `stop`: its last dependency, before that the one of that, ..."""
    found: list[Idle] = []
    cause = (DEPENDENCY, "")
    for _ in range(_DEPTH):
        before = [trace.ran_by_id[id] for id in trace.dependencies(row["id"]) if id in trace.ran_by_id]
        if not before or stop <= start:
            break
        row = max(before, key=lambda r: (r["stop"], r["id"]))
        cause = (COPY, trace.way(row)) if row["kind"] == "copy" else (DEPENDENCY, task_label(trace, row))
        begin = max(start, min(stop, _queued(trace, row).ready))
        if begin < stop:
            found.append(Idle(begin, stop, *cause))
            stop = begin
    if start < stop:
        found.append(Idle(start, stop, *cause))
    return found


def task_label(trace: Trace, row: Row) -> str:
    """Return the task of a row as "T3 axpy", or its instruction if it has none."""
    task = _task(trace, row)
    if task is not None:
        return f"T{task['id']} {task['name']}"
    return f"I{row['id']} {row.get('name') or row['kind']}"


def _task(trace: Trace, row: Row) -> Row | None:
    id = row.get("task")
    return None if id is None else trace.task_by_id.get(id)


def _copy_at(trace: Trace, rows: list[Row], part: Interval) -> str:
    """Return the link of the copy that ran on the device at the beginning of `part`."""
    at = bisect_left(rows, part[1], key=lambda r: float(r["start"]))
    for row in reversed(rows[max(0, at - 16) : at]):
        if row["kind"] == "copy" and row["stop"] > part[0]:
            return trace.way(row)
    return ""


def _program_at(waits: list[Row], start: float, stop: float) -> str:
    """Return what the program waited for in the middle between `start` and `stop`."""
    middle = (start + stop) / 2
    at = bisect_left(waits, middle, key=lambda wait: float(wait["start"])) - 1
    return f"program in {waits[at].get('what') or 'a wait'}" if at >= 0 and waits[at]["stop"] > middle else ""
