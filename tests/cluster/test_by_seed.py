"""Random programs on ranks that are slow, stop, come back or are lost: NumPy's result or the named error, and never a hang."""

from __future__ import annotations

import pytest

from tests.cluster.by_seed import TROUBLES, Sea, sail


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_every_run_ends_in_numpys_result_or_the_named_error(first: int) -> None:
    wrong = {seed: end for seed in range(first, first + 40) if (end := sail(seed)).wrong}
    assert not wrong, f"repeat with tests.cluster.by_seed.sail({next(iter(wrong))})"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(240, 20_240, 1000))
def test_many_runs_end_in_numpys_result_or_the_named_error(first: int) -> None:
    wrong = {seed: end for seed in range(first, first + 1000) if (end := sail(seed)).wrong}
    assert not wrong, f"repeat with tests.cluster.by_seed.sail({next(iter(wrong))})"


def test_a_seed_repeats_a_run_and_all_troubles_come() -> None:
    ends = [sail(seed) for seed in range(30)]
    assert ends == [sail(seed) for seed in range(30)]
    assert {end.trouble for end in ends} == set(TROUBLES)
    gave_up = [end for end in ends if any(end.broken)]
    assert gave_up and all(end.trouble in ("stopped", "back", "lost") for end in gave_up)
    assert len({Sea(seed).ranks for seed in range(30)}) == 5
