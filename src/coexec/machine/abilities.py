"""What devices can do by their kind: declared here once, so that nobody else compares the names of kinds.

Before: nothing.  After: machine/parts.py: `Device.abilities`; plan/ and backend/, which ask.  Knows no speeds.
"""

from __future__ import annotations

from typing import NamedTuple


class Abilities(NamedTuple):
    """What the devices of one kind can do."""

    runs_python: bool = False  # Python bodies run on it
    on_numpy: bool = (
        False  # its arrays are NumPy's own: every type, every border, and any thread can stand in for a core
    )
    takes_source: bool = False  # it runs OpenCL C that coexec makes of a Python body
    loops: bool = False  # it computes the pieces of a chunk one after the other, with nobody handing them over
    driven: bool = True  # a backend of ours drives such a device
    invented: bool = False  # it only seems to run a body, so that any body will do


DECLARED = {
    "cpu": Abilities(runs_python=True, on_numpy=True, loops=True),
    "opencl": Abilities(takes_source=True),
    "torch": Abilities(runs_python=True, loops=True),
    "null": Abilities(runs_python=True, driven=False, invented=True),
    "simulated": Abilities(runs_python=True, driven=False, invented=True),
}
"""The kinds that have a backend in this package."""
UNDECLARED = Abilities(driven=False)
"""All other kinds: those of a platform that is only simulated (gpu, fpga), and those that other packages drive.
What the latter can do, their backends say (`Backend.runs_python`, `Backend.supports`)."""


def abilities_of(kind: str) -> Abilities:
    """Return what devices of a kind can do."""
    return DECLARED.get(kind, UNDECLARED)
