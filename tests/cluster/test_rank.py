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

from coexec.cluster import rank as rank_module
from coexec.cluster.launching import beside
from coexec.cluster.rank import (
    ENDS,
    USUAL,
    End,
    Patience,
    environment,
    failures,
    note_end,
    note_met,
    patience,
    pump,
    rank_of,
    size_of,
    wait_for_others,
    watch,
)
from coexec.config import Config


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


# Ranks of one run ---------------------------------------------------------------------------------------------------------


AT_ONCE, SOON, EVER = Patience(0.0, 0.0), Patience(0.1, 0.1), Patience(float("inf"), float("inf"))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody have time for anything."""
    for name in ("LOOK", "LAST", "SOON"):
        monkeypatch.setattr(rank_module, name, 0.01)


def test_failures_are_told_in_the_order_in_which_ranks_ended(tmp_path: Path) -> None:
    for end in (End(7.5, 0, 70), End(7.25, 3, 137), End(1.0, 1, 0)):
        note_end(tmp_path, end)
    (tmp_path / ".2").write_text("half")
    assert failures(tmp_path) == [End(7.25, 3, 137), End(7.5, 0, 70)]
    note_end(tmp_path / "gone", End(1.0, 1, 3))  # the launcher has ended


def test_a_program_is_left_alone_while_no_rank_has_failed(tmp_path: Path, at_once: None) -> None:
    note_end(tmp_path, End(1.0, 1, 0))
    assert watch(subprocess.Popen(["sh", "-c", "sleep 0.1; exit 6"]), tmp_path, 0, AT_ONCE) == 6
    assert watch(subprocess.Popen(["sh", "-c", "exit 5"]), None, 0, AT_ONCE) == 5


def test_a_program_that_does_not_end_after_another_rank_failed_is_ended(tmp_path: Path, at_once: None) -> None:
    note_end(tmp_path, End(1.0, 1, 3))
    asked = subprocess.Popen(["sh", "-c", "trap 'exit 9' TERM; while true; do sleep 0.01; done"])
    deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; while true; do sleep 0.01; done"])
    stays = subprocess.Popen(["sh", "-c", "kill -STOP $$"])
    assert watch(asked, tmp_path, 0, SOON) in (
        9,
        -signal.SIGTERM,
        -signal.SIGKILL,
    )  # it may not have come to its first line
    assert watch(deaf, tmp_path, 0, SOON) in (-signal.SIGTERM, -signal.SIGKILL)
    assert watch(stays, tmp_path, 0, EVER) == -signal.SIGKILL


def test_a_program_that_has_met_no_rank_is_ended_sooner(tmp_path: Path, at_once: None) -> None:
    note_end(tmp_path, End(1.0, 1, 3))
    waits = ["sleep", "60"]
    assert watch(subprocess.Popen(waits), tmp_path, 0, EVER._replace(unmet=0.0)) == -signal.SIGTERM
    note_met({ENDS: str(tmp_path), "PMI_RANK": "2"})
    assert watch(subprocess.Popen(waits), tmp_path, 2, EVER._replace(met=0.0)) == -signal.SIGTERM
    assert failures(tmp_path) == [End(1.0, 1, 3)]  # which a note that ranks have met is none of
    note_met({ENDS: str(tmp_path / "gone")})  # the launcher has ended
    note_met({})


def test_whoever_has_ended_waits_for_the_others(tmp_path: Path, at_once: None) -> None:
    note_end(tmp_path, End(1.0, 0, 0))
    waits = threading.Thread(target=wait_for_others, args=(tmp_path, 2, 0.0))
    waits.start()
    note_end(tmp_path, End(2.0, 1, 0))
    waits.join(30.0)
    assert not waits.is_alive()
    note_end(tmp_path, End(2.0, 1, 3))
    wait_for_others(tmp_path, 3, 0.0)  # one has failed: the third is waited for no longer than it takes to end it
    wait_for_others(tmp_path / "gone", 3, 0.0)


def test_how_long_and_for_how_many_is_said_by_the_environment() -> None:
    assert patience({}) == patience({"COEXEC_PATIENCE": "no number"}) == Patience(6.0, 2.0)
    assert patience({"COEXEC_PATIENCE": "20"}) == Patience(22.0, 10.0)
    assert patience({"COEXEC_PATIENCE": "0"}) == EVER
    assert Config().patience == USUAL  # this file imports no coexec, so it has a figure of its own
    assert size_of({"PMI_SIZE": "4"}) == size_of({"OMPI_COMM_WORLD_SIZE": "4"}) == 4
    assert size_of({}) == size_of({"PMI_SIZE": "4", "CX_RANK": "1"}) == 1


def test_a_rank_notes_how_it_ended_and_its_program_has_a_group_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("1.0 0 0")
    given = {**os.environ, "PMI_RANK": "1", "PMI_SIZE": "2", ENDS: str(tmp_path)}
    script = "import os, sys; print(os.getpgrp() == os.getpid(), flush=True); os.kill(os.getpid(), 9)"
    ended = subprocess.run(
        beside([sys.executable, "-c", script]),
        env=given,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (137, "rank 1: True\n")
    assert [(end.rank, end.code) for end in failures(tmp_path)] == [(1, 137)]
