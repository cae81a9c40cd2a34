"""Beside a rank: whole lines with its number, its own exit code, its own trace file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from coexec.cluster.launching import beside
from coexec.cluster.rank import environment, pump, rank_of


def as_rank(rank: int, script: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = beside(["sh", "-c", script])
    given = {**os.environ, "PMI_RANK": str(rank), "PMI_SIZE": "4"}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False, **more)


def test_the_launcher_says_which_rank_it_is() -> None:
    assert rank_of({}) == 0
    assert rank_of({"PMI_RANK": "3"}) == 3
    assert rank_of({"SLURM_PROCID": "7", "PMI_RANK": "2"}) == 2
    assert rank_of({"CX_RANK": "1", "PMI_RANK": "2"}) == 1
    assert rank_of({"PMI_RANK": "no number", "SLURM_PROCID": "5"}) == 5


def test_each_rank_has_a_trace_of_its_own() -> None:
    assert environment({"COEXEC_TRACE": "a.b/run.json"}, 0) == {"COEXEC_TRACE": "a.b/run.json"}
    assert environment({"COEXEC_TRACE": "a.b/run.json"}, 2) == {"COEXEC_TRACE": "a.b/run.rank2.json"}
    assert environment({"COEXEC_TRACE": "a.b/run"}, 2) == {"COEXEC_TRACE": "a.b/run.rank2"}
    assert environment({"X": "1"}, 2) == {"X": "1"}


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [(b"", b"one\ntw"), (b"rank 1: ", b"rank 1: one\nrank 1: tw\n")],
)
def test_lines_of_other_ranks_come_whole_and_with_their_number(prefix: bytes, expected: bytes) -> None:
    inner, outer = os.pipe(), os.pipe()
    os.write(inner[1], b"one\ntw")
    os.close(inner[1])
    with os.fdopen(inner[0], "rb") as source:
        pump(source, outer[1], prefix)
    os.close(outer[1])
    with os.fdopen(outer[0], "rb") as found:
        assert found.read() == expected


def test_an_unfinished_line_of_rank_0_comes_out_after_a_moment() -> None:
    inner, outer = os.pipe(), os.pipe()
    with os.fdopen(inner[0], "rb") as source, os.fdopen(outer[0], "rb") as found:
        thread = threading.Thread(target=pump, args=(source, outer[1], b""))
        thread.start()
        os.write(inner[1], b"name? ")
        assert os.read(found.fileno(), 100) == b"name? "
        os.write(inner[1], b"done\n")
        os.close(inner[1])
        thread.join()
        assert os.read(found.fileno(), 100) == b"done\n"
        os.close(outer[1])


def test_a_program_runs_as_a_rank() -> None:
    first, second = (as_rank(rank, "echo out; echo err >&2; cat; exit 5", input="typed") for rank in (0, 1))
    assert (first.returncode, first.stdout, first.stderr) == (5, "out\ntyped", "err\n")
    assert (second.returncode, second.stdout, second.stderr) == (5, "rank 1: out\n", "rank 1: err\n")


def test_a_program_that_a_signal_ends_says_so_in_its_exit_code() -> None:
    assert as_rank(1, "kill -KILL $$").returncode == 128 + signal.SIGKILL


def test_signals_reach_the_program(tmp_path: Path) -> None:
    script = "import signal, sys; signal.signal(15, lambda *_: sys.exit(9)); print('ready', flush=True); signal.pause()"
    with subprocess.Popen(beside([sys.executable, "-c", script]), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 9
