"""The six programs at sizes that take no time, and the mixes of devices."""

from __future__ import annotations

from coexec.bench.dag import black_scholes, dl, hits, img, ml, vec
from coexec.bench.dag.harness import MIXES
from coexec.bench.dag.program import DagProgram

SIZES = {vec: 10_007, black_scholes: 1003, img: 37, ml: 103, hits: 101, dl: 60}
PROGRAMS: dict[str, DagProgram] = {program.name: program for program in (m.make(size) for m, size in SIZES.items())}
MIX_NAMES = {mix.name: mix for mix in MIXES}
