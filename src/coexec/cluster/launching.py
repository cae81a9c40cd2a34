"""How ranks are started on this machine: mpiexec from coexec's own environment, never whatever is on the PATH.

Before: errors.py.  After: launchers, tests.  Returns commands and variables; starts nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from ..errors import ClusterError, ConfigError

REMEDY = "pip install 'coexec[mpi]' brings mpi4py and an MPI, no system package"


def mpiexec() -> Path:
    """Return the mpiexec that was installed beside this Python. Raise ClusterError, naming the extra, if there is none."""
    if find_spec("mpi4py") is None:
        raise ClusterError(f"mpi4py is not installed here; {REMEDY}")
    found = Path(sys.prefix) / "bin" / "mpiexec"
    if not found.is_file():
        raise ClusterError(
            f"there is no {found}, and another MPI's mpiexec would start ranks that do not meet; {REMEDY}"
        )
    return found


def mpi_command(ranks: int, program: Sequence[str]) -> list[str]:
    """Return the command that runs `program` on so many ranks of this machine."""
    if ranks < 1:
        raise ConfigError(f"{ranks} ranks cannot do anything; 1 is the least")
    return [str(mpiexec()), "-n", str(ranks), *program]


def beside(program: Sequence[str]) -> list[str]:
    """Return the command that runs a program as one rank: its lines come out whole, and with the rank's number."""
    return [sys.executable, "-S", "-E", str(Path(__file__).with_name("rank.py")), *program]


def mpi_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for ranks of one machine: shared memory only, so that MPI opens no port to the network."""
    return {"UCX_TLS": "sm,self", **environ}


def python_command(script: str | os.PathLike[str], arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a script with this Python."""
    return [sys.executable, os.fspath(script), *arguments]
