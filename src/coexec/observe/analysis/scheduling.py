"""What scheduling cost a run: how long it took, how much of it was hidden behind execution, and what was not.

Before: trace.py, intervals.py.  After: report.py, gantt.py, perfetto.py.  Knows rows only.

The scheduler is whoever records a task: it is busy from the call until the task's instructions are handed over. While it
is busy and no device computes or copies, the devices starve.
"""

from __future__ import annotations

from typing import NamedTuple

from ..trace import COMPUTE, Row, Trace
from .intervals import Interval, intersect, length, merge, subtract


class Scheduling(NamedTuple):
    """Where scheduling and execution lie in a run, as merged intervals, and the run's length."""

    busy: list[Interval]  # some task was being scheduled
    hidden: list[Interval]  # ... while a device worked
    starved: list[Interval]  # ... while none did
    active: float  # seconds in which something was scheduled or executed
    makespan: float

    @property
    def starvation(self) -> float:
        """Seconds that scheduling cost the run."""
        return length(self.starved)

    @property
    def share(self) -> float:
        """Starvation as a share of the run."""
        return self.starvation / self.makespan if self.makespan > 0 else 0.0

    @property
    def share_of_active(self) -> float:
        """Starvation as a share of the time in which anything happened."""
        return self.starvation / self.active if self.active > 0 else 0.0


def scheduling_interval(task: Row) -> Interval:
    """Return when a task was being scheduled."""
    return task["submitted"], task["submitted"] + (task.get("scheduling") or 0.0)


def scheduling(trace: Trace) -> Scheduling:
    """Return what scheduling cost a run. In virtual time it takes none, and costs nothing."""
    start, stop = trace.window
    busy = [] if virtual(trace) else merge(scheduling_interval(task) for task in trace.tasks)
    worked = merge((row["start"], row["stop"]) for row in trace.work if row["kind"] in COMPUTE or row["kind"] == "copy")
    inside = intersect(busy, [(start, stop)]) if stop > start else []
    starved = subtract(inside, worked)
    active = length(merge([*inside, *worked]))
    return Scheduling(busy, intersect(busy, worked), starved, active, stop - start)


def virtual(trace: Trace) -> bool:
    """Tell whether the run's times are those of a simulation, in which the program itself takes no time."""
    return bool(trace.header.get("virtual"))
