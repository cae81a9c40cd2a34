"""How full each memory was: from the rows of allocations.

Before: observe/trace.py.  After: observe/report.py.  A pure function of a trace.
"""

from __future__ import annotations

from .trace import Row, Trace

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
