"""Commands that start ranks: this environment's mpiexec, this Python, and no port to the network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coexec.cluster import launching
from coexec.errors import ClusterError, ConfigError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let there be an MPI in an environment of our own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(launching, "find_spec", lambda name: name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mpiexec").touch()
    return tmp_path / "bin" / "mpiexec"


def test_mpiexec_is_the_one_beside_this_python(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    command = launching.mpi_command(4, launching.python_command("app.py", ["--steps", "3"]))
    assert command == [str(installed), "-n", "4", sys.executable, "app.py", "--steps", "3"]


def test_a_missing_part_is_said_with_the_extra(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed.unlink()
    with pytest.raises(ClusterError, match=r"there is no .*mpiexec.*pip install 'coexec\[mpi\]'"):
        launching.mpiexec()
    monkeypatch.setattr(launching, "find_spec", lambda name: None)
    with pytest.raises(ClusterError, match=r"mpi4py is not installed here; pip install 'coexec\[mpi\]'"):
        launching.mpiexec()


def test_no_rank_is_refused(installed: Path) -> None:
    with pytest.raises(ConfigError, match="0 ranks cannot do anything"):
        launching.mpi_command(0, ["x"])


def test_ranks_of_one_machine_use_shared_memory_unless_told_otherwise() -> None:
    assert launching.mpi_environment({"HOME": "x"}) == {"HOME": "x", "UCX_TLS": "sm,self"}
    assert launching.mpi_environment({"UCX_TLS": "tcp"}) == {"UCX_TLS": "tcp"}
