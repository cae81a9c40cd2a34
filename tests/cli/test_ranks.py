"""`coexec run -n`: ranks of a script, by whoever starts them, and wrong input in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Ended, call, child
from tests.cluster.injections import inject
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


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code"), [("_exit 0", 70), ("computes", 137), ("stop", 70), ("early", 3), ("SIGINT", 70)]
)
def test_whatever_mpiexec_says_all_ranks_end_and_say_why(how: str, code: int, tmp_path: Path) -> None:
    found = inject(how, "mpi", tmp_path)
    assert (found.code, found.wrong) == (code, ()), found.err


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("stop", 70), ("SIGTERM", 70)])
def test_over_gloo_all_ranks_end_and_say_why(how: str, code: int, tmp_path: Path) -> None:
    found = inject(how, "gloo", tmp_path)
    assert (found.code, found.wrong) == (code, ()), found.err


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
