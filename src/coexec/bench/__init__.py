"""The benchmarks, by name. `coexec bench NAME` runs one.

Before: the public names, which benchmarks use as users do.  After: cli/bench.py.  Prints nothing.
"""

from __future__ import annotations

BENCHMARKS: dict[str, str] = {}
"""Name -> "module:function". The function takes (quick, progress): `quick` asks for small sizes, `progress` is called
with a line of text now and then. It returns JSON-ready data: plain values, lists of dicts (tables) and dicts (groups)."""
