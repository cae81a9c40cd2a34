"""Simulated devices: a platform on a virtual clock. Nothing is computed unless that is asked for.

Before: backend/base.py, machine/, predict/.  After: execute/, opening.py.  Same instructions, same order, another clock.
"""

from __future__ import annotations

from .answers import answers
from .backend import SimulatedBackend
from .costs import NOTHING, Costs
from .durations import Durations, GivenDurations, Law, Seconds, fixed_durations
from .energy import Energy
from .opening import simulate
from .scenario import Happening, Scenario
from .world import World

__all__ = [
    "NOTHING",
    "Costs",
    "Durations",
    "Energy",
    "GivenDurations",
    "Happening",
    "Law",
    "Scenario",
    "Seconds",
    "SimulatedBackend",
    "World",
    "answers",
    "fixed_durations",
    "simulate",
]
