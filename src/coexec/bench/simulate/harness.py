"""What simulations are worth: how close they come to this machine, and how large the machines may be.

Before: validation.py.  After: cli/ through bench.BENCHMARKS.
"""

from __future__ import annotations

from ..measure import Data, Progress, machine
from .validation import validate


def run(quick: bool, progress: Progress) -> Data:
    """Compare simulations of this machine with real runs of every example and of the dag benchmark."""
    return {"validation": validate(quick, progress), "machine": machine()}
