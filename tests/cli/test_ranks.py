"""`coexec run -n`: ranks of a script, by whoever starts them, and wrong input in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Ended, call, child
from tests.cluster.processes import needs_mpi

SCRIPT = """
import os, sys
print("hello", sys.argv[1:], flush=True)
sys.exit(4 if os.environ.get("CX_RANK", os.environ.get("PMI_RANK")) == sys.argv[1] else 0)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(SCRIPT)
    return path


def run(script: Path, *options: str, fails: str = "none") -> Ended:
    return child(script.parent, "run", *options, script, fails)


def test_ranks_are_started_and_their_lines_are_told_apart(script: Path) -> None:
    ended = run(script, "-n", "2", "--on", "gloo")
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["hello ['none']", "rank 1: hello ['none']"]


def test_the_exit_code_of_a_failed_rank_is_ours_and_json_stands_alone(script: Path) -> None:
    ended = run(script, "--ranks", "2", "--on", "gloo", "--json", fails="1")
    assert ended.code == 4
    found = ended.data
    assert (found["ranks"], found["exit_code"]) == (2, 4)
    assert "rank 1: hello" in ended.err and "coexec: rank 1 ended with exit code 4" in ended.err


@needs_mpi
@pytest.mark.slow
def test_mpiexec_starts_ranks(script: Path) -> None:
    ended = run(script, "-n", "2")
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["hello ['none']", "rank 1: hello ['none']"]
    assert run(script, "-n", "2", "--on", "mpi", fails="1").code == 4


LOSES = """
import os, signal, sys, time
import coexec as cx

x = cx.zeros(1000)
cx.wait()
if cx.rank() == 1:
    if sys.argv[1] == "leaves":
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP if sys.argv[1] == "stops" else signal.SIGKILL)
while sys.argv[1] == "computes":
    time.sleep(1000)
float(cx.sum(x + 1))
cx.wait()
"""


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("leaves", 70), ("computes", 137), ("stops", 70)])
def test_whatever_mpiexec_says_a_lost_rank_is_told_by_the_others(how: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(LOSES)
    ended = run(path, "-n", "2", "--on", "mpi", "--trace", str(tmp_path / "run.json"), fails=how)
    assert ended.code == code
    assert "rank 1 on" in ended.err and "is gone: its process" in ended.err
    assert "coexec: rank 0 ended with exit code 70" in ended.err
    assert len(json.loads((tmp_path / "run.json").read_text())) > 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-n", "0"), "-n 0: 1 rank is the least"),
        (("-n", "2", "--on", "gloos"), "unknown starter of ranks 'gloos'; did you mean 'gloo'?"),
        (("-n", "2", "--devices", ","), "--devices names no device"),
    ],
)
def test_wrong_input_is_said_in_words(options: tuple[str, ...], words: str, script: Path) -> None:
    ended = call("run", *options, script)
    assert ended.code == 2
    assert words in ended.err
