"""Random programs on ranks that are slow, stop, come back or are lost: NumPy's result or the named error, and never a hang."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster.by_seed import TROUBLES, Sea, sail
from tests.repository import ROOT


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_every_run_ends_in_numpys_result_or_the_named_error(first: int) -> None:
    wrong = {seed: end for seed in range(first, first + 40) if (end := sail(seed)).wrong}
    assert not wrong, f"repeat with tests.cluster.by_seed.sail({next(iter(wrong))})"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(240, 4_240, 500))
def test_many_runs_end_in_numpys_result_or_the_named_error(first: int) -> None:
    wrong = {seed: end for seed in range(first, first + 500) if (end := sail(seed)).wrong}
    assert not wrong, f"repeat with tests.cluster.by_seed.sail({next(iter(wrong))})"


def test_a_seed_repeats_a_run_and_all_troubles_come() -> None:
    ends = [sail(seed) for seed in range(30)]
    assert ends == [sail(seed) for seed in range(30)]
    assert {end.trouble for end in ends} == set(TROUBLES)
    gave_up = [end for end in ends if any(end.broken)]
    assert gave_up and all(end.trouble in ("stopped", "back", "lost") for end in gave_up)
    assert len({Sea(seed).ranks for seed in range(30)}) == 5


def test_a_command_runs_as_many_seeds_as_one_likes() -> None:
    command = [sys.executable, "-m", "tests.cluster.by_seed", "--first", "7", "--seeds", "3"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == "3 seeds, 0 bad"
