"""One stretch of a recorded run as a trace of its own, e.g. one of many repetitions.

Before: trace.py.  After: cli/.  Knows rows, not what they mean to the program.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..files import write_text
from .rows import TIMES, Row, rows_text
from .trace import Trace, check_replaceable


def cut(trace: Trace, start: float, stop: float) -> Trace:
    """Return the tasks submitted from `start` to `stop` and all that they led to; times count from `start`."""
    tasks = {task["id"] for task in trace.tasks if start <= task["submitted"] < stop}
    inside = {row["id"] for row in trace.instructions if row.get("task") in tasks}
    end = max((row["stop"] for row in trace.work if row["id"] in inside), default=stop)
    rows: list[Row] = []
    for row in trace.rows:
        kind = row["row"]
        if kind == "header":
            rows.append(row)
        elif kind in ("task", "command"):
            if row["id" if kind == "task" else "task"] in tasks:
                rows.append(_among(_shifted(row, start), "after", tasks))
        elif kind == "instruction":
            if row["id"] in inside:
                rows.append(_among(_among(row, "after", inside), "needs", inside))
        elif kind == "ran":
            if row["id"] in inside:
                rows.append(_shifted(row, start))
        elif kind in ("wait", "note") and start <= row["start" if kind == "wait" else "t"] < min(stop, end):
            rows.append(_shifted(row, start))
    return Trace([*rows, {"row": "end", "t": end - start}], trace.path)


def _shifted(row: Row, by: float) -> Row:
    return {key: round(value - by, 9) if key in TIMES and value is not None else value for key, value in row.items()}


def _among(row: Row, key: str, known: set[int]) -> Row:
    return {**row, key: [id for id in row.get(key, ()) if id in known]}


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace as a file that Trace.load reads, whole or not at all."""
    check_replaceable(Path(path), f"the trace {os.fspath(path)!r}")
    rows = [row for row in trace.rows if row["row"] != "end"]
    ends = [row for row in trace.rows if row["row"] == "end"]
    write_text(path, f"[\n{rows_text([*rows, *(ends[-1:] or [{'row': 'end'}])])}\n]\n", "the trace")
