"""What simulations are worth: how close they come to this machine, and how large the machines may be.

Before: validation.py, scale.py.  After: cli/ through bench.BENCHMARKS.
"""

from __future__ import annotations

from ..measure import Data, Progress, machine
from .scale import measure
from .validation import validate


def run(quick: bool, progress: Progress) -> Data:
    """Compare simulations of this machine with real runs of every program; simulate a cluster, and say how fast that was."""
    return {"validation": validate(quick, progress), "scale": measure(quick, progress), "machine": machine()}
