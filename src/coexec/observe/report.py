"""What a run did with its time, as plain data.

Before: observe/trace.py, every module of observe/analysis/.  After: cli/, observe/pictures/gantt.py.  Prints nothing. The longest chain of
instructions that had to follow each other, and how full each memory was, are found here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import islice
from math import inf
from statistics import median
from typing import Any, NamedTuple

from .analysis.bottleneck import as_data
from .analysis.idle import Idle, idle, idle_by_cause, task_label
from .analysis.intervals import Interval, length, merge
from .analysis.overlap import OverlapShares, overlap
from .analysis.path import path_taken
from .analysis.scheduling import scheduling, virtual
from .analysis.simulated import efficiency, simulated
from .trace import COMPUTE, KERNELS, Row, Trace


class CriticalPath(NamedTuple):
    """The chain with the most working time: no number of devices makes the run shorter than that."""

    length: float  # seconds
    steps: list[Row]  # the `ran` rows on it, in order


def critical_path(trace: Trace) -> CriticalPath:
    """Return the longest path through what ran, along needs and after edges.

    An instruction that left no record (a horizon, say) takes no time but still orders others.
    """
    finish: dict[int, float] = {}
    previous: dict[int, int] = {}
    for id in _in_order(trace):
        before = max((d for d in trace.dependencies(id) if d in finish), key=lambda d: (finish[d], -d), default=None)
        row = trace.ran_by_id.get(id)
        finish[id] = (row["stop"] - row["start"] if row else 0.0) + (finish[before] if before is not None else 0.0)
        if before is not None:
            previous[id] = before
    last = max(finish, key=lambda i: (finish[i], -i), default=None)
    steps: list[Row] = []
    at = last
    while at is not None:
        if at in trace.ran_by_id:
            steps.append(trace.ran_by_id[at])
        at = previous.get(at)
    return CriticalPath(finish[last] if last is not None else 0.0, steps[::-1])


def _in_order(trace: Trace) -> list[int]:
    """Return all instructions, each after those it depends on: by id on one rank, else by when they were over."""
    ids = sorted({*trace.instruction_by_id, *trace.ran_by_id})
    if all(before < id for id in ids for before in trace.dependencies(id)):
        return ids
    over = {id: float(row["stop"]) for id, row in trace.ran_by_id.items()}
    return sorted(ids, key=lambda number: (over.get(number, inf), number))


FREED, TEMPORARY, MADE = range(3)


def memories(trace: Trace) -> dict[str, dict[str, int | None]]:
    """Return for each memory the most bytes that were allocated in it at once, and the limit it was given, if any.

    What the program lent is in the memory `user`. Temporaries that a kernel declares count while it runs.
    """
    changes = sorted(_changes(trace))
    held: dict[str, int] = {}
    peak: dict[str, int] = {}
    for _, _, memory, nbytes in changes:
        held[memory] = held.get(memory, 0) + nbytes
        peak[memory] = max(peak.get(memory, 0), held[memory])
    limits = {memory["name"]: memory.get("capacity") for memory in trace.header.get("memories", ())}
    return {name: {"peak": most, "capacity": limits.get(name)} for name, most in peak.items()}


def _changes(trace: Trace) -> list[tuple[float, int, str, int]]:
    """Return all changes of memories: time in seconds, kind, memory and bytes. Sorted, releases at a time come before allocations."""
    found = [(row["t"], MADE, row["memory"], row["bytes"]) for row in trace.rows if row["row"] == "given"]
    for row in trace.ran:
        if row.get("state") == "done" and _tells(row):
            found += _change(row)
    return found


def _tells(row: Row) -> bool:
    """Tell whether a row is about a memory. Traces of other versions, or written by others, may say less."""
    amount = "scratch" if row.get("scratch") is not None else "bytes"
    return all(row.get(name) is not None for name in ("memory", "start", "stop", amount))


def _change(row: Row) -> list[tuple[float, int, str, int]]:
    memory = row["memory"]
    if row.get("scratch") is not None:
        return [(row["start"], TEMPORARY, memory, row["scratch"]), (row["stop"], FREED, memory, -row["scratch"])]
    if row["kind"] == "free":
        return [(row["start"], FREED, memory, -row["bytes"])]
    return [(row["stop"], MADE, memory, row["bytes"])]


Data = dict[str, Any]
LISTED = 100
"""Long lists in a summary hold so many entries; the counts beside them are complete."""


def summary(trace: Trace) -> Data:
    """Return the whole report as JSON-ready data. Times in seconds, shares from 0 to 1."""
    start, stop = trace.window
    makespan = stop - start
    idles = idle(trace)
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in trace.work:
        rows[row["device"]].append(row)
    devices = {name: _device(rows[name], idles[name], makespan) for name in trace.devices}
    busy = sum(device["busy"] for device in devices.values())
    return {
        "path": trace.path,
        "complete": trace.complete,
        "virtual": virtual(trace),
        "started": trace.header.get("started"),
        "duration": trace.duration,
        "makespan": makespan,
        "busy": busy,
        "parallelism": _ratio(busy, makespan),
        "efficiency": efficiency(trace, {name: device["busy"] for name, device in devices.items()}),
        "overlap": trace_overlap(trace)._asdict(),
        "counts": _counts(trace),
        "kernels": _kernels(trace),
        "devices": devices,
        "lanes": _lanes(trace, makespan),
        "copies": _copies(trace),
        "fills": _fills(trace),
        "memories": memories(trace),
        "gil_wait": _gil_wait(trace),
        "scheduling": _scheduling(trace),
        "user_wait": _user_wait(trace),
        "failures": _listed(_failed(trace, row) for row in trace.ran if row.get("state") == "failed"),
        "cancelled": _listed(_failed(trace, row) for row in trace.ran if row.get("state") == "cancelled"),
        "critical_path": _critical(trace, makespan),
        "bottleneck": as_data(path_taken(trace), LISTED),
        "simulation": simulated(trace),
        "planning": {field: value for field, value in trace.planning.items() if field not in ("row", "t")} or None,
        "streams": [{field: value for field, value in row.items() if field != "row"} for row in trace.streams],
        "notes": _listed({"t": note["t"], "text": note["text"]} for note in trace.notes),
    }


def trace_overlap(trace: Trace) -> OverlapShares:
    """Return CT, TC, CC and TOT of a run."""
    copies: dict[str, list[Interval]] = defaultdict(list)
    for row in trace.work:
        if row["kind"] == "copy":
            copies[trace.link(row)].append((row["start"], row["stop"]))
    return overlap([(r["start"], r["stop"]) for r in trace.work if r["kind"] in KERNELS], copies)


def _counts(trace: Trace) -> Data:
    states = Counter(row.get("state", "done") for row in trace.ran)
    return {
        "tasks": len(trace.tasks),
        "commands": len(trace.commands),
        "instructions": len(trace.instructions),
        "ran": dict(Counter(row["kind"] for row in trace.work)),
        "failed": states["failed"],
        "cancelled": states["cancelled"],
    }


def _seconds(row: Row) -> float:
    """Return the working time of a row: without what it spent waiting for the interpreter lock."""
    return float(max(0.0, row["stop"] - row["start"] - (row.get("waited") or 0.0)))


def _kernels(trace: Trace) -> Data:
    """Return per kernel name, longest in total first, the working times and how good the predictions were."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in trace.work:
        if row["kind"] in KERNELS:
            groups[row.get("name") or row["kind"]].append(row)
    found = {name: {**_statistics(rows), **_prediction(rows)} for name, rows in groups.items()}
    return dict(sorted(found.items(), key=lambda item: (-item[1]["total"], item[0])))


def _statistics(rows: list[Row]) -> Data:
    times = [_seconds(row) for row in rows if row.get("state", "done") == "done"]
    return {
        "count": len(times),
        "failed": len(rows) - len(times),
        "total": sum(times),
        "mean": sum(times) / len(times) if times else None,
        "median": median(times) if times else None,
        "min": min(times, default=None),
        "max": max(times, default=None),
        "waited": sum(row.get("waited") or 0.0 for row in rows),
        "devices": dict(Counter(row["device"] for row in rows)),
    }


def _prediction(rows: list[Row]) -> Data:
    """Return the error of the predictions: `bias` > 0 means slower than predicted; `error` is the median size."""
    pairs = [(_seconds(r), r["predicted"]) for r in rows if r.get("predicted") and r.get("state", "done") == "done"]
    measured, predicted = sum(m for m, _ in pairs), sum(p for _, p in pairs)
    return {
        "predicted": predicted if pairs else None,
        "predictions": len(pairs),
        "bias": measured / predicted - 1.0 if pairs else None,
        "error": median(abs(m / p - 1.0) for m, p in pairs) if pairs else None,
    }


def _device(rows: list[Row], stretches: list[Idle], makespan: float) -> Data:
    busy = length(merge((r["start"], r["stop"]) for r in rows if r["kind"] in COMPUTE))
    details: dict[tuple[str, str], float] = defaultdict(float)
    for stretch in stretches:
        details[stretch.cause, stretch.detail] += stretch.stop - stretch.start
    longest = sorted(details.items(), key=lambda item: (-item[1], item[0]))
    return {
        "busy": busy,
        "idle": sum(stretch.stop - stretch.start for stretch in stretches),
        "utilisation": _ratio(busy, makespan),
        "kernels": sum(row["kind"] in KERNELS for row in rows),
        "copying": length(merge((r["start"], r["stop"]) for r in rows if r["kind"] == "copy")),
        "idle_by_cause": idle_by_cause(stretches),
        "idle_details": [{"cause": c, "detail": d, "seconds": s} for (c, d), s in longest if d][:10],
    }


def _lanes(trace: Trace, makespan: float) -> list[Data]:
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in trace.work:
        if row["device"]:
            groups[row["device"], row.get("lane") or 0].append(row)
    order = {name: i for i, name in enumerate(trace.devices)}
    lanes = []
    for (device, lane), rows in sorted(groups.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        busy = length(merge((r["start"], r["stop"]) for r in rows))
        kinds = dict(Counter(row["kind"] for row in rows))
        lanes.append(
            {"device": device, "lane": lane, "busy": busy, "utilisation": _ratio(busy, makespan), "ran": kinds}
        )
    return lanes


def _copies(trace: Trace) -> Data:
    links: dict[str, Data] = {}
    for row in trace.work:
        if row["kind"] == "copy":
            link = links.setdefault(
                trace.link(row),
                {"over": trace.made_of(row), "count": 0, "bytes": 0, "seconds": 0.0, "reasons": Counter()},
            )
            link["count"] += 1
            link["bytes"] += trace.nbytes(row)
            link["seconds"] += row["stop"] - row["start"]
            link["reasons"][trace.instruction_by_id.get(row["id"], {}).get("reason") or "unknown"] += 1
    for link in links.values():
        link["reasons"] = dict(link["reasons"])
        link["bytes_per_second"] = _ratio(link["bytes"], link["seconds"])
    return {
        "count": sum(link["count"] for link in links.values()),
        "bytes": sum(link["bytes"] for link in links.values()),
        "links": dict(sorted(links.items(), key=lambda item: (-item[1]["bytes"], item[0]))),
    }


def _fills(trace: Trace) -> Data:
    """Return count and bytes of the fills, per name of what was filled."""
    fills: dict[str, Data] = {}
    for row in trace.work:
        if row["kind"] == "fill":
            fill = fills.setdefault(row.get("name") or "fill", {"count": 0, "bytes": 0})
            fill["count"] += 1
            fill["bytes"] += trace.nbytes(row)
    return fills


def _gil_wait(trace: Trace) -> Data:
    waited: dict[str, float] = defaultdict(float)
    for row in trace.work:
        if row.get("waited"):
            waited[row.get("name") or row["kind"]] += row["waited"]
    return {"total": sum(waited.values()), "kernels": dict(sorted(waited.items(), key=lambda item: -item[1]))}


def _scheduling(trace: Trace) -> Data:
    times: dict[str, list[float]] = defaultdict(list)
    for task in trace.tasks:
        times[task["name"]].append(task.get("scheduling") or 0.0)
    spent = [seconds for group in times.values() for seconds in group]
    found = scheduling(trace)
    return {
        "total": sum(spent),
        "per_task": _ratio(sum(spent), len(spent)),
        "hidden": length(found.hidden),
        "starvation": found.starvation,
        "starvation_share": found.share,
        "starvation_of_active": found.share_of_active,
        "max": max(spent, default=0.0),
        "tasks": {name: {"count": len(s), "total": sum(s), "mean": sum(s) / len(s)} for name, s in times.items()},
    }


def _user_wait(trace: Trace) -> Data:
    waited: dict[str, float] = defaultdict(float)
    for wait in trace.waits:
        waited[wait.get("what") or "wait"] += wait["stop"] - wait["start"]
    merged = length(merge((wait["start"], wait["stop"]) for wait in trace.waits))
    longest = sorted(waited.items(), key=lambda item: (-item[1], item[0]))
    return {"total": merged, "count": len(trace.waits), "what": dict(longest[:LISTED])}


def _failed(trace: Trace, row: Row) -> Data:
    return {"id": row["id"], "kind": row["kind"], "what": task_label(trace, row), "device": row["device"]}


def _label(trace: Trace, row: Row) -> str:
    return f"copy {trace.link(row)}" if row["kind"] == "copy" else str(row.get("name") or row["kind"])


def _critical(trace: Trace, makespan: float) -> Data:
    path = critical_path(trace)
    names: dict[str, float] = defaultdict(float)
    for row in path.steps:
        names[_label(trace, row)] += row["stop"] - row["start"]
    steps = (
        {
            "id": row["id"],
            "kind": row["kind"],
            "name": _label(trace, row),
            "device": row["device"],
            "seconds": row["stop"] - row["start"],
        }
        for row in path.steps
    )
    return {
        "length": path.length,
        "share": _ratio(path.length, makespan),
        "names": dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))),
        "steps": _listed(steps),
    }


def _listed(items: Iterable[Data]) -> Data:
    """Return the first entries and the number of all."""
    rest = iter(items)
    first = list(islice(rest, LISTED))
    return {"count": len(first) + sum(1 for _ in rest), "first": first}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
