"""What the end of a run waited for, step by step: the critical path as it happened.

Before: trace.py, scheduling.py.  After: bottleneck.py, report.py.  Knows rows only: no device is asked anything.

From the last completion back to the first submission. Each instruction began when the last of these was over: what it
needs, what its lane did before, what occupied its device, or the program that submitted it. The program went on when
what it waited for was over. What lies between such a moment and the beginning is a gap, and has a reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from typing import NamedTuple

from ..trace import COMPUTE, Row, Trace
from .intervals import Interval, intersect, merge, subtract
from .scheduling import scheduling_interval, virtual

LAUNCH = "launching"
SCHEDULING = "scheduling"
PROGRAM = "the program itself"
GAPS = (LAUNCH, SCHEDULING, PROGRAM)
"""Kinds of step in which nothing on the path was carried out."""

_CLOSE = 1e-9  # seconds: times are written with so many digits
_FAR = 256  # instructions without a record that are looked through for what is behind them


class PathStretch(NamedTuple):
    """A stretch of the run, and what was waited for in it."""

    start: float
    stop: float
    kind: str  # of instruction, or one of GAPS
    name: str  # the kernel, or how a copy went
    device: str
    why: str  # what made the next step wait for this one
    id: int | None = None  # the instruction
    others: float = 0.0  # copies that shared a link with this one, on average

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.stop - self.start


class _Cause(NamedTuple):
    """What an instruction waited for, and until when: another instruction, or the program (`row` is None)."""

    at: float
    rank: int  # among causes at the same time, the one that explains more
    row: Row | None
    why: str


def path_taken(trace: Trace) -> list[PathStretch]:
    """Return the steps from the first submission to the last completion, without holes."""
    return _WayBack(trace).steps() if trace.work else []


class _WayBack:
    """The way back from the last completion."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._begin, self._end = trace.window
        self._crowding = CopyCrowding(trace)
        self._waits = sorted(trace.waits, key=lambda wait: float(wait["stop"]))
        self._wait_stops = [float(wait["stop"]) for wait in self._waits]
        self._launch = trace.launches
        self._at_once = {str(d["name"]): int(d.get("concurrent") or 1) for d in trace.header.get("devices", ())}
        self._found: list[PathStretch] = []
        self._seen: set[int] = set()  # instructions that are on the path: things that took no time may wait in a circle

    def steps(self) -> list[PathStretch]:
        """Return the steps in order."""
        row: Row | None = max(self._trace.work, key=lambda r: (r["stop"], r["id"]))
        why = "it was the last to end"
        at = self._end
        while row is not None:
            self._seen.add(row["id"])
            self._carried_out(row, min(at, float(row["stop"])), why)
            at = min(at, float(row["start"]))
            cause = self._cause(row, at)
            self._gap(row, cause.at, at)
            at, row, why = cause.at, cause.row, cause.why
            if row is None:
                at, row, why = self._program(at)
        if at > self._begin:
            self._add(self._begin, at, PROGRAM, "", "")
        return self._found[::-1]

    def _add(self, start: float, stop: float, kind: str, device: str, why: str) -> None:
        if stop - start > _CLOSE:
            self._found.append(PathStretch(start, stop, kind, "", device, why))

    def _carried_out(self, row: Row, stop: float, why: str) -> None:
        start = float(row["start"])
        if stop - start > _CLOSE:
            copy = row["kind"] == "copy"
            name = self._trace.way(row) if copy else str(row.get("name") or row["kind"])
            others = self._crowding.others(row) if copy else 0.0
            self._found.append(PathStretch(start, stop, row["kind"], name, row["device"] or "", why, row["id"], others))

    def _gap(self, row: Row, start: float, stop: float) -> None:
        """Tell why an instruction did not begin when it could have."""
        launch = self._launch.get(row["device"] or "", 0.0) if row["kind"] == "kernel" else 0.0
        begun = max(start, stop - launch)
        self._add(begun, stop, LAUNCH, row["device"] or "", "the device takes so long to begin a kernel")
        self._add(start, begun, SCHEDULING, row["device"] or "", "coexec had not come to it")

    # Causes -----------------------------------------------------------------------------------------------------------

    def _cause(self, row: Row, start: float) -> _Cause:
        """Return what an instruction waited for last."""
        task = self._trace.task_by_id.get(row["task"]) if row.get("task") is not None else None
        submitted = float(task["submitted"]) if task is not None else self._begin
        causes = [_Cause(min(start, max(self._begin, submitted)), 0, None, "the program submitted it")]
        causes += [_Cause(float(r["stop"]), 3, r, "its result was needed") for r in self._needed(row)]
        for rank, before, why in ((2, self._lane(row, start), "its lane"), (1, self._device(row, start), "its device")):
            if before is not None:
                causes.append(_Cause(float(before["stop"]), rank, before, f"{why} was busy with it"))
        new = (c for c in causes if c.at <= start + _CLOSE and (c.row is None or c.row["id"] not in self._seen))
        return max(new, key=lambda c: (c.at, c.rank))

    def _needed(self, row: Row) -> list[Row]:
        """Return what an instruction depends on, looking through what left no record."""
        found, queue, looked = [], list(self._trace.dependencies(row["id"])), 0
        while queue and looked < _FAR:
            id, looked = queue.pop(), looked + 1
            before = self._trace.ran_by_id.get(id)
            if before is not None:
                found.append(before)
            else:
                queue += self._trace.dependencies(id)
        return found

    def _lane(self, row: Row, start: float) -> Row | None:
        lane = row.get("lane")
        return None if lane is None or lane < 0 else _before(self._lanes[row["device"], lane], start, row)

    @cached_property
    def _lanes(self) -> dict[tuple[str, int], list[Row]]:
        lanes = defaultdict(list)
        for row in self._trace.work:
            lanes[row["device"], row.get("lane") or 0].append(row)
        return {key: sorted(rows, key=lambda r: float(r["stop"])) for key, rows in lanes.items()}

    def _device(self, row: Row, start: float) -> Row | None:
        """Return the kernel whose end let another one begin, if the device had as many as it runs at once."""
        if row["kind"] not in COMPUTE or row["device"] not in self._at_once:
            return None  # the host does whatever it is given
        rows = self._computing.get(row["device"], [])
        before = _before(rows, start, row)
        if before is None:
            return None
        most = self._at_once[row["device"]]
        middle = (float(before["start"]) + float(before["stop"])) / 2
        if most == 1:
            return before
        later = rows[bisect_right(rows, middle, key=lambda r: float(r["stop"])) :][: 4 * most]
        return before if sum(float(r["start"]) < middle for r in later) >= most else None

    @cached_property
    def _computing(self) -> dict[str, list[Row]]:
        devices = defaultdict(list)
        for row in self._trace.work:
            if row["kind"] in COMPUTE and row["stop"] > row["start"]:
                devices[row["device"]].append(row)
        return {name: sorted(rows, key=lambda r: float(r["stop"])) for name, rows in devices.items()}

    # The program ------------------------------------------------------------------------------------------------------

    def _program(self, at: float) -> tuple[float, Row | None, str]:
        """Explain what the program did until `at`: back to what it waited for before."""
        index = bisect_right(self._wait_stops, at + _CLOSE) - 1
        wait = self._waits[index] if index >= 0 else None
        woken = max(self._begin, float(wait["stop"])) if wait is not None else self._begin
        self._submitting(min(woken, at), at)
        if wait is None:
            return woken, None, ""
        row = self._awaited(wait)
        if row is not None and row["id"] in self._seen:
            return woken, None, ""
        stop = min(woken, float(row["stop"])) if row is not None else woken
        self._add(stop, woken, SCHEDULING, "host", "the program had not been told")
        return stop, row, f"the program waited for it ({wait.get('what') or 'wait'})"

    def _submitting(self, start: float, stop: float) -> None:
        """Tell the program's own time from what recording tasks took. In virtual time the program takes none."""
        spans = [(start, stop)] if stop > start else []
        busy = spans if virtual(self._trace) else intersect(spans, self._scheduling)
        parts = [(*part, SCHEDULING) for part in busy] + [(*part, PROGRAM) for part in subtract(spans, busy)]
        for begin, end, kind in sorted(parts, reverse=True):
            self._add(begin, end, kind, "host", "the program had not submitted it")

    @cached_property
    def _scheduling(self) -> list[Interval]:
        return merge(scheduling_interval(task) for task in self._trace.tasks)

    def _awaited(self, wait: Row) -> Row | None:
        """Return the instruction whose end let the program go on."""
        stop = float(wait["stop"])
        mine = [row for row in self._by_task.get(wait.get("task") or -1, ()) if row["stop"] <= stop + _CLOSE]
        if mine:
            return max(mine, key=lambda r: (r["stop"], r["id"]))
        return _before(self._ends, stop, None)

    @cached_property
    def _by_task(self) -> dict[int, list[Row]]:
        tasks = defaultdict(list)
        for row in self._trace.work:
            if row.get("task") is not None:
                tasks[row["task"]].append(row)
        return tasks

    @cached_property
    def _ends(self) -> list[Row]:
        return sorted(self._trace.work, key=lambda r: float(r["stop"]))


def _before(rows: list[Row], start: float, row: Row | None) -> Row | None:
    """Return the last of rows, sorted by stop, that was over at `start`."""
    at = bisect_right(rows, start + _CLOSE, key=lambda r: float(r["stop"])) - 1
    while at >= 0 and rows[at] is row:
        at -= 1
    return rows[at] if at >= 0 else None


class CopyCrowding:
    """The copies of a run, by what they pass through."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        events: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for row in trace.work:
            if row["kind"] == "copy" and row["stop"] > row["start"]:
                for shared in trace.passes(row):
                    events[shared] += [(row["start"], 1), (row["stop"], -1)]
        self._loads = {name: _Load(found) for name, found in events.items()}

    def others(self, row: Row) -> float:
        """Return how many other copies a copy shared a wire with, on average over its time."""
        seconds = float(row["stop"] - row["start"])
        if seconds <= 0:
            return 0.0
        loads = [self._loads[name].within(row["start"], row["stop"]) for name in self._trace.passes(row)]
        return max(0.0, max(loads, default=seconds) / seconds - 1.0)


class _Load:
    """How many were under way at each moment, and the integral of that over time."""

    def __init__(self, events: list[tuple[float, int]]) -> None:
        self._times: list[float] = []
        self._counts: list[int] = []
        self._before: list[float] = []
        count, total, last = 0, 0.0, 0.0
        for time, change in sorted(events):
            total += count * (time - last)
            count, last = count + change, time
            if self._times and self._times[-1] == time:
                self._counts[-1] = count
            else:
                self._times.append(time)
                self._counts.append(count)
                self._before.append(total)

    def within(self, start: float, stop: float) -> float:
        return self._until(stop) - self._until(start)

    def _until(self, time: float) -> float:
        at = bisect_right(self._times, time) - 1
        return self._before[at] + self._counts[at] * (time - self._times[at]) if at >= 0 else 0.0
