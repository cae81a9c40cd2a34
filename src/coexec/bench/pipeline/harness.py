"""`coexec bench pipeline`: all three parts, and what each says.

Before: planner.py, real.py, drift.py.  After: bench/__init__.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ConfigError
from ..measure import Data, Progress
from . import drift, planner, real


def run(quick: bool, progress: Progress, only: Sequence[str] = ()) -> Data:
    """Streams in stages: plans against all schedules, real streams against all cuts, and data that changes in mid-stream."""
    found: Data = {}
    if all(word in "planner" for word in only):
        found["planner"] = planner.run(quick, progress)
    if real.named(quick, only):
        found["real"] = real.run(quick, progress, only)
    if all(word in "drift" for word in only):
        found["drift"] = drift.run(quick, progress)
    if not found:
        raise ConfigError(
            f"no part's name contains {' '.join(only)!r}; parts are planner, {', '.join(real.named(quick))}, drift"
        )
    return found
