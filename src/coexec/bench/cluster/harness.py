"""`coexec bench cluster`: real ranks of this machine over MPI, beside the same algorithms written by hand; and many, simulated.

Before: on_rank.py, simulated.py, scaling.py, cluster/launching.py.  After: cli/.  Starts processes; what they measure is theirs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ...backend.simulated import Costs
from ...calibrate.costs import measured_costs
from ...cluster.launching import mpi_command, mpi_environment
from ...config import PREFIX
from ...errors import ClusterError, ConfigError
from ..measure import Data, Others, Progress, bandwidth, machine, named, one_library_thread
from .apps import APPS
from .on_rank import EFFORTS
from .scaling import measure as scaled
from .simulated import compare

LONGEST = 3600.0
"""Seconds after which ranks that have not ended are taken for hung."""


PARTS = (*APPS, "messages", "scaling")
"""What `--only` chooses from: applications on real ranks, bare messages, and many ranks simulated."""


def run(quick: bool, progress: Progress, ranks: int = 2, *, full: bool = False, only: Sequence[str] = ()) -> Data:
    """Measure real ranks against hand-written MPI: time, messages, bytes, latency, and what a waiting rank uses."""
    if ranks < 2:
        raise ConfigError(f"--ranks {ranks}: messages need 2 ranks at least")
    parts = named("part of this benchmark", PARTS, only)
    real = [part for part in parts if part != "scaling"]
    found: Data = {"machine": machine()}
    if real:
        found |= _real(ranks, "quick" if quick else "full", real, progress)
    return found | ({"scaling": scaled(progress, quick=quick, full=full)} if "scaling" in parts else {})


def _real(ranks: int, effort: str, parts: Sequence[str], progress: Progress) -> Data:
    progress(f"{ranks} ranks over MPI, in turns with mpi4py")
    others = Others()
    with one_library_thread():
        costs, memory = measured_costs(), bandwidth()["threads_1_GB_per_s"] * 1e9
    found = measured(ranks, effort, costs, memory, parts)
    return {**found, "others_cores": others.cores()}


def measured(ranks: int, effort: str, costs: Costs, memory: float, parts: Sequence[str] = PARTS) -> Data:
    """Return what so many ranks of this machine found, and the same simulated; `effort` is one of on_rank.py's.

    The simulation takes what scheduling `costs` and how many bytes per second a core gets from `memory`.
    """
    with TemporaryDirectory(prefix="coexec-") as folder:
        file = Path(folder) / "found.json"
        module = [sys.executable, "-m", "coexec.bench.cluster.on_rank", effort, str(file), ",".join(parts)]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        ended = subprocess.run(  # noqa: S603 - our own module
            mpi_command(ranks, module),
            env=mpi_environment(environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        if ended.returncode or not file.is_file():
            last = ended.stderr.strip().splitlines()[-1:] or ["they said nothing"]
            raise ClusterError(f"the ranks ended with exit code {ended.returncode}: {last[0]}")
        found: Data = {"ranks": ranks, **json.loads(file.read_text())}
        with one_library_thread():
            compare(found, EFFORTS[effort], Path(folder), costs, memory)
    return found
