"""A run as a file for ui.perfetto.dev and chrome://tracing.

Before: trace.py.  After: cli/.  Knows the Trace Event Format, nothing of devices.

One process per device, one thread per lane, one process for the program. Times are whole nanoseconds, written as
microseconds: a slice never reaches into the next one by rounding, and an arrow is always bound inside a slice.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ...files import write_text
from ..trace import KERNELS, Row, Trace

Event = dict[str, Any]

_PROGRAM = 1  # process id; devices follow
_COLOURS = {"copy": "thread_state_iowait", "wait": "thread_state_sleeping", "failed": "terrible"}


class _Slice(NamedTuple):
    """One event with a duration, in nanoseconds."""

    start: int
    stop: int
    name: str
    category: str
    colour: str
    args: Event
    id: int = -1  # the instruction


class _Bound(NamedTuple):
    """A slice and the track it was put on."""

    slice: _Slice
    process: int
    thread: int


def write_perfetto(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the run as Trace Event JSON, which ui.perfetto.dev opens."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    about = {
        str(key): str(trace.header[key]) for key in ("coexec", "started", "python", "numpy") if key in trace.header
    }

    def parts() -> Iterator[str]:
        yield '{"displayTimeUnit":"ms","otherData":' + encode(about) + ',"traceEvents":[\n'
        separator = ""
        for event in events(trace):
            yield separator + encode(event)
            separator = ",\n"
        yield "\n]}\n"

    write_text(path, parts(), "the Perfetto file")


def events(trace: Trace) -> Iterator[Event]:
    """Yield the events of the file: names first, then slices, arrows and counters."""
    yield from _process(_PROGRAM, "program")
    bound: dict[int, _Bound] = {}
    yield from _tracks(_PROGRAM, "user thread", 0, _program(trace), bound)
    for process, device in enumerate(trace.devices, start=_PROGRAM + 1):
        yield from _process(process, device)
        lanes: dict[int, list[_Slice]] = defaultdict(list)
        for row in trace.work:
            if row["device"] == device:
                lanes[row.get("lane") or 0].append(_instruction(trace, row))
        thread = 0
        for lane, slices in sorted(lanes.items()):
            for event in _tracks(process, f"lane {lane}", thread, slices, bound):
                yield event
                thread = max(thread, event["tid"])
    yield from _arrows(trace, bound)
    yield from _counters(trace)
    for note in trace.notes:
        place = {"ph": "i", "s": "g", "cat": "note", "ts": _ns(note["t"]) / 1000, "pid": _PROGRAM, "tid": 1}
        yield {**place, "name": str(note["text"])}


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _process(process: int, name: str) -> Iterator[Event]:
    meta = {"ph": "M", "pid": process, "tid": 0, "ts": 0}
    yield {**meta, "name": "process_name", "args": {"name": name}}
    yield {**meta, "name": "process_sort_index", "args": {"sort_index": process}}


def _slice(start: float, stop: float, name: str, category: str, colour: str, args: Event, id: int = -1) -> _Slice:
    """Return a slice at least one nanosecond long, so that an arrow can be bound to it."""
    begin = _ns(start)
    return _Slice(begin, max(begin + 1, _ns(stop)), name, category, colour, args, id)


def _program(trace: Trace) -> list[_Slice]:
    """Return what the user thread did: submitted tasks and waited."""
    slices = []
    for task in trace.tasks:
        args = {"task": f"T{task['id']}", "call": task.get("call"), "why": task.get("why")}
        stop = task["submitted"] + (task.get("scheduling") or 0.0)
        slices.append(_slice(task["submitted"], stop, f"submit {task['name']}", "submit", "", args))
    for wait in trace.waits:
        what = wait.get("what") or "wait"
        slices.append(_slice(wait["start"], wait["stop"], f"wait {what}", "wait", _COLOURS["wait"], {"what": what}))
    return slices


def _instruction(trace: Trace, row: Row) -> _Slice:
    name = str(row.get("name") or row["kind"])
    args: Event = {"instruction": f"I{row['id']}", "state": row.get("state", "done")}
    if row.get("task") is not None:
        args["task"] = f"T{row['task']}"
    if row["kind"] == "copy":
        args.update(link=trace.link(row), bytes=trace.nbytes(row))
        name = f"copy {trace.link(row)}"
    for key, scale in (("predicted", 1e6), ("waited", 1e6)):
        if row.get(key) is not None:
            args[f"{key}_us"] = round(row[key] * scale, 3)
    if row.get("ready") is not None:
        args["late_us"] = round(max(0.0, row["start"] - row["ready"]) * 1e6, 3)
    colour = _COLOURS["failed"] if row.get("state") == "failed" else _COLOURS.get(row["kind"], "")
    return _slice(row["start"], row["stop"], name, row["kind"], colour, args, row["id"])


def _tracks(
    process: int, name: str, before: int, slices: Iterable[_Slice], bound: dict[int, _Bound]
) -> Iterator[Event]:
    """Yield a thread with its slices; slices that overlap get a second thread, since a thread must nest them."""
    ends: list[int] = []
    for item in sorted(slices, key=lambda s: s[:3]):
        track = next((i for i, end in enumerate(ends) if end <= item.start), len(ends))
        thread = before + track + 1
        if track == len(ends):
            ends.append(0)
            label = name if not track else f"{name} ({track + 1})"
            meta = {"ph": "M", "pid": process, "tid": thread, "ts": 0}
            yield {**meta, "name": "thread_name", "args": {"name": label}}
            yield {**meta, "name": "thread_sort_index", "args": {"sort_index": thread}}
        ends[track] = item.stop
        if item.id >= 0:
            bound[item.id] = _Bound(item, process, thread)
        event: Event = {"ph": "X", "name": item.name, "cat": item.category, "pid": process, "tid": thread}
        event.update(ts=item.start / 1000, dur=(item.stop - item.start) / 1000, args=item.args)
        if item.colour:
            event["cname"] = item.colour
        yield event


def _arrows(trace: Trace, bound: dict[int, _Bound]) -> Iterator[Event]:
    """Yield an arrow per dependency between different lanes, from the end of one slice to the start of the other."""
    number = 0
    for target in bound.values():
        row = trace.instruction_by_id.get(target.slice.id, {})
        for kind in ("needs", "after"):
            for id in row.get(kind, ()):
                source = bound.get(id)
                if source is None or source[1:] == target[1:] or source.slice.start > target.slice.start:
                    continue
                number += 1
                leave = min(source.slice.stop - 1, target.slice.start)
                yield _end("s", number, kind, source, leave)
                yield {**_end("f", number, kind, target, target.slice.start), "bp": "e"}


def _end(phase: str, number: int, kind: str, bound: _Bound, at: int) -> Event:
    place = {"pid": bound.process, "tid": bound.thread, "ts": at / 1000}
    return {"ph": phase, "id": number, "name": kind, "cat": "dependency", **place}


def _counters(trace: Trace) -> Iterator[Event]:
    """Yield how many bytes were moved so far and how many kernels run."""
    copies = ((_ns(r["stop"]), trace.nbytes(r)) for r in trace.work if r["kind"] == "copy")
    yield from _counter("bytes moved", "bytes", [(0, 0), *copies])
    kernels = [r for r in trace.work if r["kind"] in KERNELS]
    changes = [(_ns(r["start"]), 1) for r in kernels] + [(_ns(r["stop"]), -1) for r in kernels]
    yield from _counter("running kernels", "kernels", [(0, 0), *changes])


def _counter(name: str, unit: str, changes: Sequence[tuple[int, int]]) -> Iterator[Event]:
    """Yield the running sum of `changes`, one event per moment."""
    moments: dict[int, int] = defaultdict(int)
    for at, change in changes:
        moments[at] += change
    total = 0
    for at, change in sorted(moments.items()):
        total += change
        yield {"ph": "C", "name": name, "pid": _PROGRAM, "tid": 0, "ts": at / 1000, "args": {unit: total}}
