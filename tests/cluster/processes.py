"""Start the ranks of a cluster as processes, for tests: over gloo by their environment, over MPI by mpiexec."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from coexec.cluster.launched import MEET, RANK, SIZE
from coexec.cluster.launching import mpi_command, mpi_environment, mpiexec, python_command
from coexec.errors import ClusterError
from tests.repository import ROOT, child_environment

PROGRAM = ROOT / "tests" / "cluster" / "rank_program.py"
TIMEOUT = 240  # s; on a busy machine importing torch alone may take ten


class Ended(NamedTuple):
    """How a rank ended."""

    code: int
    out: str
    err: str


def mpi_missing() -> bool:
    """Tell whether this environment has no MPI."""
    try:
        return not mpiexec().is_file()
    except ClusterError:
        return True


needs_mpi = pytest.mark.skipif(mpi_missing(), reason="needs the extra mpi: pip install 'coexec[mpi]'")


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a rank."""
    return {**child_environment(home), "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def over_gloo(size: int, home: Path, *arguments: str, more: Mapping[str, str] | None = None) -> list[Ended]:
    """Run the program on so many ranks over gloo, and return how each ended."""
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            env={**environment(home), RANK: str(rank), SIZE: str(size), MEET: f"file:{home / 'meet'}", **(more or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        return [Ended(*_end(process)) for process in started]
    finally:
        for process in started:
            process.kill()


def _end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out, err


def over_mpi(size: int, home: Path, *arguments: str) -> Ended:
    """Run the program on so many ranks over MPI, and return how the launcher ended."""
    command = mpi_command(size, python_command(PROGRAM, arguments))
    given = mpi_environment(environment(home))
    run = subprocess.run(command, env=given, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return Ended(run.returncode, run.stdout, run.stderr)
