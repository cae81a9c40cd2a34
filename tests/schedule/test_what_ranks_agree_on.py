"""What ranks must agree on depends on the program alone: not on time, on the collector, on threads, or on what is pending."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

import coexec as cx
from tests.clusters import cluster
from tests.repository import ROOT, child_environment
from tests.schedule import agreeing
from tests.schedule.agreeing import PERTURBATIONS, RANKS, Perturb, digest, everything, streams, watched


def unnumbered(stream: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return a stream without what is dealt to one rank and not to another."""
    return [entry[:-1] for entry in stream]


@pytest.mark.parametrize(
    ("name", "seed"), [*[(name, 1) for name in PERTURBATIONS], ("garbage", 2), ("everything", 2), ("everything", 3)]
)
def test_streams_are_the_same_whatever_happens_meanwhile(name: str, seed: int) -> None:
    perturb: Perturb = PERTURBATIONS.get(name, everything)
    plain, seen = streams(seed)
    perturbed, seen_then = streams(seed, perturb)
    assert seen_then == seen
    assert perturbed == plain
    assert len(plain[0]) > agreeing.STEPS
    assert unnumbered(plain[0]) == unnumbered(plain[1]) == unnumbered(plain[2])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_streams_are_the_same_whatever_happens_meanwhile(seed: int) -> None:
    assert streams(seed, everything) == streams(seed)


def test_without_a_collector_the_streams_are_the_same() -> None:
    plain = streams(3)
    gc.disable()
    try:
        assert streams(3) == plain
    finally:
        gc.enable()


def test_the_seed_of_hashes_does_not_matter(tmp_path: Path) -> None:
    environment = child_environment(tmp_path) | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-m", "tests.schedule.agreeing"]
    told = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert told.stdout == digest(range(2))


def test_values_that_only_the_collector_frees_are_copied_like_others() -> None:
    """Whether a value is gone when a call changes its element would depend on when the collector runs."""

    def names(*, collect: bool) -> list[str]:
        with watched(cluster(RANKS)) as (_, found):
            a = cx.array([1.0, 2.0, 3.0])
            agreeing.Knot(a[0])
            if collect:
                gc.collect()
            a[0] = 5.0
            return [entry[2] for entry in found[0].stream]

    assert names(collect=True) == names(collect=False)


def test_no_timer_ends_a_chain_among_ranks() -> None:
    with watched(cluster(RANKS)) as (ranks, _):
        assert [member.pump._chain_timer for member in ranks.members] == [None] * RANKS
        assert not any(member.pump.inline_calls for member in ranks.members)


def test_a_stream_that_differs_is_seen() -> None:
    assert streams(1)[0] != streams(2)[0]
