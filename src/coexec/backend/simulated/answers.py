"""What a simulation knows at its end and no record of it tells: what its devices drew.

Before: backend.py.  After: assembly.py, which gives it to the trace.  Plain data; asks the simulation, changes nothing.
"""

from __future__ import annotations

from typing import Any

from ...machine.platform import Platform
from .backend import SimulatedBackend


def answers(simulation: SimulatedBackend, platform: Platform) -> dict[str, Any]:
    """Return what a trace of the simulation ends with, as JSON-ready data. Energy in joules."""
    found = simulation.energy()
    return {
        "platform": platform.name,
        "about": platform.about,
        "nodes": platform.nodes,
        "executes": simulation.executes,
        "seconds": found.seconds,
        "joules": dict(found.devices),
        "no_watts": [name for name in found.active if name not in found.devices],
    }
