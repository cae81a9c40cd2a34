"""Which rank a process is, by what launchers put into the environment."""

from __future__ import annotations

import pytest

from coexec.cluster.launched import Launched, launched
from coexec.errors import ConfigError

SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PATH": "x", "RANK": "1"}, None),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "5"}, Launched(1, 2, "mpiexec", "mpi")),
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"},
            Launched(0, 2, "Open MPI's mpiexec", "mpi"),
        ),
        (SLURM, Launched(3, 4, "srun", "mpi")),
        ({**SLURM, "PMI_RANK": "1", "PMI_SIZE": "2"}, Launched(1, 2, "mpiexec", "mpi")),
        ({**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}, None),
        (
            {**SLURM, "RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"},
            Launched(5, 8, "torchrun", "gloo", "env:"),
        ),
        ({"CX_RANK": "0", "CX_SIZE": "2", "CX_MEET": "file:m"}, Launched(0, 2, "coexec", "gloo", "file:m")),
    ],
)
def test_launchers_are_recognised_the_inner_one_first(environ: dict[str, str], expected: Launched | None) -> None:
    assert launched(environ) == expected


def test_what_cannot_be_is_said_with_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"mpiexec says rank 2 of 2 \(PMI_RANK, PMI_SIZE\)"):
        launched({"PMI_RANK": "2", "PMI_SIZE": "2"})
    with pytest.raises(ConfigError, match="PMI_SIZE='two' is no number"):
        launched({"PMI_RANK": "0", "PMI_SIZE": "two"})
