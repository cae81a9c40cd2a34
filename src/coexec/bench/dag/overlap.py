"""What ran beside what in one iteration through coexec: the four overlap figures and the lanes.

Before: ways.py, observe/.  After: harness.py.  Runs apart from the timed repetitions, because it writes a trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ...observe.intervals import Interval
from ...observe.overlap import overlap
from ...observe.trace import KERNELS, Trace
from ..measure import Data
from .program import Program
from .ways import Through


def observed(program: Program, devices: str, memory: Mapping[str, str], warm_up: int) -> Data:
    """Return overlap (CT, TC, CC, TOT) and the number of lanes of an iteration after the warm-up."""
    with TemporaryDirectory() as folder:
        path = str(Path(folder, "trace.json"))
        way = Through(program, devices, memory, trace=path)
        try:
            for _ in range(warm_up + 1):
                way.prepare()
                way.run()
            way.runtime.wait()
        finally:
            way.close()
        return figures(Trace.load(path), program)


def figures(trace: Trace, program: Program) -> Data:
    """Return the figures of the last iteration in a trace."""
    count = len(program.steps)
    names = {call.kernel.name for call in program.calls()} | {"fill", "set"}
    last = sorted(task["id"] for task in trace.tasks if task["name"] in names)[-count:]
    begin = next(task["submitted"] for task in trace.tasks if task["id"] == last[0])
    rows = [row for row in trace.work if row["start"] >= begin and row["kind"] in {*KERNELS, "copy"}]
    kernels: list[Interval] = [(row["start"], row["stop"]) for row in rows if row["kind"] in KERNELS]
    copies: dict[str, list[Interval]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "copy":
            copies[trace.link(row)].append((row["start"], row["stop"]))
    found = overlap(kernels, copies)
    lanes = {(row["device"], row.get("lane")) for row in rows if row["device"] != "host"}
    return {"overlap": {"CT": found.ct, "TC": found.tc, "CC": found.cc, "TOT": found.tot}, "lanes": len(lanes)}
