"""What the runtime added to a run: its makespan over that of the same kernels and copies with nothing in between.

Before: ways.py, observe/.  After: harness.py.  Runs apart from the timed rounds, because it writes a trace.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from ...observe.cut import cut
from ...observe.trace import COMPUTE, Row, Trace
from ..measure import Data
from .app import App
from .ways import Through

WORK = COMPUTE | {"copy"}


def observed(app: App, devices: str, warm_up: int, runs: int) -> Data:
    """Return the runtime's cost in recorded runs after the warm-up, and how long a kernel took; medians over the runs."""
    with TemporaryDirectory() as folder:
        path = str(Path(folder, "trace.json"))
        way = Through(app, devices, path)
        try:
            begins = []
            for _ in range(warm_up + runs):
                begins.append(_last_moment(way))
                way.seconds()
            begins.append(_last_moment(way))
        finally:
            way.close()
        trace = Trace.load(path)
    found = [figures(cut(trace, *span)) for span in zip(begins[warm_up:-1], begins[warm_up + 1 :], strict=True)]
    return {key: median(one[key] for one in found) for key in found[0]}


def _last_moment(way: Through) -> float:
    """Return the present in the trace's time."""
    recorder = way.runtime._driver.recorder
    return recorder._since(recorder.clock())


def figures(trace: Trace) -> Data:
    """Return the cost of one recorded run, with a kernel's wait for the interpreter lock as part of it and without."""
    rows = [row for row in trace.work if row["kind"] in WORK]
    kernels = [row["stop"] - row["start"] for row in rows if row["kind"] == "kernel"]
    inside = {row.get("task") for row in rows}
    begin = min((task["submitted"] for task in trace.tasks if task["id"] in inside), default=0.0)
    makespan = max((row["stop"] for row in rows), default=begin) - begin
    return {
        "runtime_cost": makespan / (shortest(trace) or makespan or 1.0),
        "runtime_cost_with_gil": makespan / (shortest(trace, gil=False) or makespan or 1.0),
        "kernel_ms": median(kernels or [0.0]) * 1e3,
    }


def shortest(trace: Trace, *, gil: bool = True) -> float:
    """Return the makespan of a run's kernels and copies alone: same places, same order, nothing between them.

    Each begins when what it needs is over, when its lane is free and, for kernels, when every earlier kernel of its device
    is over that it did not overlap with. `gil=False` takes the time out that kernels waited for the interpreter lock.
    """
    ends: dict[int, float] = {}
    lanes: dict[tuple[str, int], float] = {}
    devices: dict[str, list[tuple[float, float]]] = {}  # (recorded stop, end here) of each kernel
    for row in trace.work:
        if row["kind"] not in WORK:
            continue
        lane = (row["device"], row.get("lane") or 0)
        start = max(lanes.get(lane, 0.0), _ready(trace, row["id"], ends))
        if row["kind"] in COMPUTE:
            before = devices.setdefault(row["device"], [])
            start = max(start, max((end for stop, end in before if stop <= row["start"]), default=0.0))
        end = start + _duration(row, gil)
        if row["kind"] in COMPUTE:
            before.append((row["stop"], end))
        ends[row["id"]] = lanes[lane] = end
    return max(ends.values(), default=0.0)


def _duration(row: Row, gil: bool) -> float:
    lost = 0.0 if gil else row.get("waited") or 0.0
    return float(max(0.0, row["stop"] - row["start"] - lost))


def _ready(trace: Trace, id: int, ends: dict[int, float]) -> float:
    """Return when all that an instruction needs is over; what takes no time here (an allocation) passes on what it needs."""
    seen: set[int] = set()
    open = list(trace.dependencies(id))
    latest = 0.0
    while open:
        other = open.pop()
        if other in ends:
            latest = max(latest, ends[other])
        elif other not in seen:
            seen.add(other)
            open.extend(trace.dependencies(other))
    return latest
