"""Simulated ranks of the benchmark: each kernel takes what it took on its real rank, and none may be another."""

from __future__ import annotations

from pathlib import Path

import pytest

from coexec.backend.simulated.costs import NOTHING
from coexec.bench.cluster.on_rank import EFFORTS
from coexec.bench.cluster.simulated import compare
from coexec.bench.measure import Data

STEPS, RUNS = 3, 2
"""Of the stencil at its tiny size: steps of a run, and runs, of which the first does not count."""


def found(name: str, times: int) -> Data:
    """Return what two real ranks would tell whose kernels take 1 and 2 seconds, 5 and 7 in the first run."""
    kernels = [{name: ([first] * STEPS + [later] * STEPS)[:times]} for first, later in ((5.0, 1.0), (7.0, 2.0))]
    case = {"app": "wave_sim", "coexec_s": 8.0, "kernels": kernels}
    return {"ranks": 2, "bandwidth": {"coexec_GB_per_s": 1e9}, "latency_us": {"coexec": 0.0}, "cases": [case]}


def test_neighbours_go_at_the_pace_of_the_slower_one(tmp_path: Path) -> None:
    told = found("step (19, 38)", STEPS * RUNS)
    compare(told, EFFORTS["tiny"], tmp_path, NOTHING, memory=1e18)
    (case,) = told["cases"]
    assert case["simulated_s"] == pytest.approx(2.0 * STEPS, rel=1e-6)
    assert case["simulation_error"] == pytest.approx(-0.25, rel=1e-5)
    assert "kernels" not in case


@pytest.mark.parametrize(("name", "times"), [("step (19, 38)", STEPS * RUNS - 1), ("step (38, 38)", STEPS * RUNS)])
def test_a_kernel_that_no_real_rank_ran_is_an_error(name: str, times: int, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"wave_sim: simulated ranks run what real ones did not: step \(19, 38\)"):
        compare(found(name, times), EFFORTS["tiny"], tmp_path, NOTHING, memory=1e18)
