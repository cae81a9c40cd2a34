"""The devices that tests use: two cores, or a core and OpenCL on the other, as far as this machine has them."""

from __future__ import annotations

from coexec.machine.cores import available_cores

CORES = len(available_cores())
TWO = "cpu:0,cpu:1" if CORES > 1 else "cpu:0"
"""Two single-core devices on one memory."""
MIXED = "cpu:0,opencl:0@1" if CORES > 1 else "cpu:0,opencl:0"
"""A core, and an OpenCL device that leaves it alone."""
