"""The applications of examples/ with their bodies as NumPy runs them and compiled, on two cores.

Before: bench/apps/, compile/.  After: bench/compile/harness.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ...compile.serving import compiled_bodies
from ...compile.verify import compare
from ..apps.ways import AppThroughCoexec, InNumPy
from ..measure import Data, in_turns, one_library_thread
from ..split.harness import usable
from ..split.through import store_at

CORES = "cpu:0,cpu:1"
WARM_UP = 4  # runs that are dropped: bodies are compiled and compared, and the planner learns which of them to take


def app_case(name: str, rounds: tuple[int, int], seconds: float, *, quick: bool) -> Data:
    """Return the figures of an application: plain NumPy, and through coexec by NumPy's bodies and by compiled ones."""
    said: Data = {"name": f"app_{name}", "devices": "core:2"}  # bodies beside it have such names, too
    if not usable([CORES])[0]:
        return said | {"refused": "there are not two cores"}
    app = import_module(f"..apps.{name}", __package__).make(quick)
    before = list(compiled_bodies())  # kept, so that none of them is gone from the sum
    with (
        one_library_thread(),
        TemporaryDirectory() as folder,
        store_at(str(Path(folder) / "store.sqlite")),
        closing(InNumPy(app, 2)) as numpy,
        closing(AppThroughCoexec(app, CORES, compile_bodies="off")) as blocked,
        closing(AppThroughCoexec(app, CORES, compile_bodies="always")) as compiled,
    ):
        ways = {"numpy": numpy.seconds, "blocked": blocked.seconds, "compiled": compiled.seconds}
        for _ in range(1 if quick else WARM_UP):
            blocked.seconds()
            compiled.seconds()
        times = {way: min(found) for way, found in in_turns(ways, rounds, seconds).items()}
        bits = how_equal([np.asarray(r) for r in blocked.results], [np.asarray(r) for r in compiled.results])
    return said | {
        **{f"{way}_ms": took * 1e3 for way, took in times.items()},
        "gb_per_s": app.nbytes / times["compiled"] / 1e9,
        "bits": bits,
        "compile_ms": sum(body.seconds for body in compiled_bodies() if body not in before) * 1e3,
    }


def how_equal(wanted: Sequence[np.ndarray[Any, Any]], got: Sequence[np.ndarray[Any, Any]]) -> str:
    """Return "equal" if all results have the same bits, else how far they lie apart in units of the largest one's last place."""
    pairs = list(zip(wanted, got, strict=True))
    if not any(compare("it", one, other) for one, other in pairs):
        return "equal"
    gaps = []
    for one, other in pairs:
        unit = float(np.finfo(one.dtype).eps * np.abs(one).max()) if one.dtype.kind == "f" else 1.0
        gaps.append(float(np.abs(one - other).max()) / unit)
    return f"{max(gaps):.3g} ulp"
