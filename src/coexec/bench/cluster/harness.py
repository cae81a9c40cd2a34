"""`coexec bench cluster`: real ranks of this machine over MPI, beside the same algorithms written by hand; and many, simulated.

Before: on_rank.py, simulated.py, scaling.py, cluster/launching.py.  After: cli/.  Starts processes; what they measure is theirs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ...backend.simulated import Costs
from ...calibrate.costs import measured_costs
from ...cluster.launching import mpi_command, mpi_environment
from ...config import PREFIX
from ...errors import ClusterError, ConfigError
from ..measure import Data, Others, Progress, bandwidth, machine, one_library_thread
from .on_rank import EFFORTS
from .scaling import measure as scaled
from .simulated import compare

LONGEST = 3600.0
"""Seconds after which ranks that have not ended are taken for hung."""


def run(quick: bool, progress: Progress, ranks: int = 2, *, full: bool = False) -> Data:
    """Measure real ranks against hand-written MPI: time, messages, bytes, latency, and what a waiting rank uses."""
    if ranks < 2:
        raise ConfigError(f"--ranks {ranks}: messages need 2 ranks at least")
    progress(f"{ranks} ranks over MPI, in turns with mpi4py")
    others = Others()
    with one_library_thread():
        costs, memory = measured_costs(), bandwidth()["threads_1_GB_per_s"] * 1e9
    found = measured(ranks, "quick" if quick else "full", costs, memory)
    busy = others.cores()  # beside the real ranks; simulated ones have a clock of their own
    return {"machine": machine(), **found, "others_cores": busy, "scaling": scaled(progress, quick=quick, full=full)}


def measured(ranks: int, effort: str, costs: Costs, memory: float) -> Data:
    """Return what so many ranks of this machine found, and the same simulated; `effort` is one of on_rank.py's.

    The simulation takes what scheduling `costs` and how many bytes per second a core gets from `memory`.
    """
    with TemporaryDirectory(prefix="coexec-") as folder:
        file = Path(folder) / "found.json"
        module = [sys.executable, "-m", "coexec.bench.cluster.on_rank", effort, str(file)]
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
