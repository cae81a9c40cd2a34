"""Ray and Dask start ranks: what goes to them, who sits where, and, where they are installed, for real."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from coexec.cluster import engines
from coexec.cluster.launching import python_command
from coexec.errors import ClusterError, ConfigError
from tests.cluster.processes import environment

HELLO = """
import os, sys
from coexec.cluster.collectives import allgather
from coexec.cluster.opening import open_transport
transport = open_transport()
with open(os.path.join(sys.argv[1], str(transport.rank)), "wb") as file:
    file.write(b" ".join(allgather(transport, f"rank{transport.rank}".encode())))
transport.close()
sys.exit(int(sys.argv[2]) if transport.rank == 1 else 0)
"""


def test_a_rank_gets_its_number_and_the_options_it_was_started_with(tmp_path: Path) -> None:
    given = engines.kept({"COEXEC_DEVICES": "cpu:0", "HOME": "elsewhere", "OMP_NUM_THREADS": "1", "PATH": "x"})
    assert given == {"COEXEC_DEVICES": "cpu:0", "OMP_NUM_THREADS": "1"}
    script = f'echo "$CX_RANK $CX_SIZE $CX_MEET $COEXEC_DEVICES" > {tmp_path / "out"}; exit 6'
    assert engines.run_rank(2, 4, "tcp:here:1", ["sh", "-c", script], given) == 6
    assert (tmp_path / "out").read_text() == "2 4 tcp:here:1 cpu:0\n"
    assert engines.run_rank(0, 1, "", ["sh", "-c", "kill -KILL $$"], {}) == 137


def test_ranks_spread_over_workers_before_they_share_one() -> None:
    assert engines._spread(["a", "a", "a", "b", "c", "c"], 5) == ["a", "b", "c", "a", "c"]


def test_a_place_to_meet_is_free() -> None:
    kind, host, port = engines.meeting_place().split(":")
    assert kind == "tcp" and host and 0 < int(port) < 65536


def test_ranks_that_could_not_run_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="5 ranks must run at once, and the Dask cluster has 2 threads"):
        engines._check_room(5, 2, "the Dask cluster", "threads")
    with pytest.raises(ConfigError, match="0 ranks"):
        engines._check_room(0, 2, "the Dask cluster", "threads")


def test_a_missing_engine_is_said_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"distributed is not installed here .*pip install 'coexec\[dask\]'"):
        engines.on_dask(2, ["true"], {})
    with pytest.raises(ClusterError, match=r"ray is not installed here .*pip install 'coexec\[ray\]'"):
        engines.on_ray(2, ["true"], {})


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "dask"])
@pytest.mark.filterwarnings("ignore")
def test_an_engine_runs_ranks_for_real(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec({"dask": "distributed"}.get(engine, engine)) is None:
        pytest.skip(f"needs the extra {engine}: pip install 'coexec[{engine}]'")
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    (tmp_path / "hello.py").write_text(HELLO)
    command = python_command(tmp_path / "hello.py", [str(tmp_path), "5"])
    codes = {"ray": engines.on_ray, "dask": engines.on_dask}[engine](2, command, os.environ)
    assert codes == [0, 5]
    assert [(tmp_path / str(rank)).read_bytes() for rank in range(2)] == [b"rank0 rank1"] * 2
