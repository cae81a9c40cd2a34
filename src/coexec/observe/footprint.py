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
    said = trace.header.get("memories")
    listed = [memory for memory in said if isinstance(memory, dict)] if isinstance(said, list) else []
    limits = {memory.get("name"): memory.get("capacity") for memory in listed}
    return {name: {"peak": most, "capacity": limits.get(name)} for name, most in peak.items()}


def _changes(trace: Trace) -> list[tuple[float, int, str, int]]:
    """Return when how many bytes of a memory were taken or given back; what is given back at a time comes first."""
    given = [row for row in trace.rows if row["row"] == "given" and _tells(row, "t", "bytes")]
    found = [(row["t"], MADE, row["memory"], row["bytes"]) for row in given]
    for row in trace.ran:
        if row.get("state") == "done" and _tells(row, "start", "stop", "scratch" if "scratch" in row else "bytes"):
            found += _change(row)
    return found


def _tells(row: Row, *numbers: str) -> bool:
    """Tell whether a row is about a memory. Traces of other versions, or written by others, may say less."""
    return isinstance(row.get("memory"), str) and all(isinstance(row.get(name), int | float) for name in numbers)


def _change(row: Row) -> list[tuple[float, int, str, int]]:
    memory = row["memory"]
    if "scratch" in row:
        return [(row["start"], TEMPORARY, memory, row["scratch"]), (row["stop"], FREED, memory, -row["scratch"])]
    if row["kind"] == "free":
        return [(row["start"], FREED, memory, -row["bytes"])]
    return [(row["stop"], MADE, memory, row["bytes"])]
