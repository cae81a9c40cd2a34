"""Which rank this process is, from what its launcher put into the environment. Starts nothing.

Before: errors.py.  After: cluster/opening.py.  A process without a launcher is rank 0 of 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..errors import ConfigError

RANK, SIZE, MEET = "CX_RANK", "CX_SIZE", "CX_MEET"
"""What coexec's own starters say: rank, number of ranks, and where gloo's processes meet (file:PATH or tcp:HOST:PORT)."""


class Launched(NamedTuple):
    """What a launcher says."""

    rank: int
    size: int
    by: str
    """The launcher, as errors call it."""
    transport: str
    """mpi or gloo."""
    meet: str = ""
    """Where gloo's processes meet; env: for torch's own variables."""


class Signs(NamedTuple):
    """The variables by which a launcher is recognised."""

    by: str
    transport: str
    rank: str
    size: str
    meet: str = ""


# The inner one first: torchrun and mpiexec may run inside a Slurm job, whose variables are then about the job.
LAUNCHERS = (
    Signs("coexec", "gloo", RANK, SIZE, MEET),
    Signs("torchrun", "gloo", "RANK", "WORLD_SIZE", "MASTER_PORT"),
    Signs("Open MPI's mpiexec", "mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    Signs("mpiexec", "mpi", "PMI_RANK", "PMI_SIZE"),
    Signs("srun", "mpi", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def launched(environ: Mapping[str, str]) -> Launched | None:
    """Return what the launcher says; None if there is none. Raise ConfigError for what cannot be."""
    for signs in LAUNCHERS:
        if not all(environ.get(name) for name in (signs.rank, signs.size, signs.meet or signs.rank)):
            continue
        rank, size = _number(environ, signs.rank), _number(environ, signs.size)
        if not 0 <= rank < size:
            raise ConfigError(f"{signs.by} says rank {rank} of {size} ({signs.rank}, {signs.size}), which cannot be")
        if size == 1 and signs.by == "srun":
            continue  # a job with one task is no cluster
        meet = ("env:" if signs.by == "torchrun" else environ[signs.meet]) if signs.meet else ""
        return Launched(rank, size, signs.by, signs.transport, meet)
    return None


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise ConfigError(f"{name}={environ[name]!r} is no number; a launcher sets it, a program should not") from None
