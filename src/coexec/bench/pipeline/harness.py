"""`coexec bench pipeline`: all three parts, and what each says.

Before: planner.py, real.py, drift.py.  After: bench/__init__.py.
"""

from __future__ import annotations

from ..measure import Data, Progress
from . import drift, planner, real


def run(quick: bool, progress: Progress) -> Data:
    """Streams in stages: plans against all schedules, real streams against all cuts, and data that changes in mid-stream."""
    return {
        "planner": planner.run(quick, progress),
        "real": real.run(quick, progress),
        "drift": drift.run(quick, progress),
    }
