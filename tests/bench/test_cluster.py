"""The benchmark of real ranks: applications send exactly what they must, and its figures have their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import Costs
from coexec.bench.cluster.apps import APPS, TINY
from coexec.bench.cluster.harness import measured, run
from coexec.errors import ConfigError
from coexec.testing import on_teams
from tests.cli.commands import call
from tests.cluster.processes import needs_mpi
from tests.test_joined import driver
from tests.test_joined_messages import passed_on


class Alone:
    """A communicator of one rank."""

    rank, size = 0, 1

    def Sendrecv(self, *given: Any) -> None:
        """Give nobody anything."""

    def Allgatherv(self, mine: Any, into: Any) -> None:
        into[0][...] = mine

    def Allreduce(self, mine: Any, into: Any) -> None:
        into[...] = mine


def sent(name: str, size: int, steps: int, ranks: int) -> tuple[int, int, int]:
    """Return messages, bytes, and messages of reductions of all ranks together; the result is compared with one rank's."""
    app = APPS[name](size, steps, ranks)
    wanted = APPS[name](size, steps, 1).hand(Alone(), *[given.copy() for given in app.inputs])

    def program() -> tuple[int, int, int]:
        with cx.Runtime("cpu:0", store="off", policy="even", diagnostics="off") as runtime:
            arrays = [cx.array(given) for given in app.inputs]
            result = app.coexec(*arrays)
            cx.wait()
            network = driver(runtime).network
            counts = (network.messages - network.partials, network.bytes - network.partial_bytes, network.partials)
            np.testing.assert_allclose(np.asarray(result), wanted, atol=app.tolerance * np.abs(wanted).max(), rtol=0)
            return counts

    counts = on_teams(ranks, program)
    total = tuple([sum(column) for column in zip(*counts, strict=True)])
    assert total[1] == app.bytes_minimum
    return total[0], total[1], total[2]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_stencil_sends_the_rows_at_the_cuts_and_nothing_else(ranks: int) -> None:
    cuts, steps, inner = ranks - 1, 5, 60
    assert sent("wave_sim", inner + 2, steps, ranks) == (2 * cuts * (steps - 1), 2 * cuts * (steps - 1) * inner * 4, 0)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_places_of_bodies_go_to_all_ranks_once_per_step(ranks: int) -> None:
    messages, steps, bodies = passed_on(ranks), 4, 24
    assert sent("nbody", bodies, steps, ranks) == (messages * (steps - 1), (ranks - 1) * (steps - 1) * bodies * 24, 0)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_product_goes_to_all_ranks_once_per_step(ranks: int) -> None:
    pairs, steps, side = ranks * (ranks - 1), 3, 24
    assert sent("matmul", side, steps, ranks) == (pairs * (steps - 1), (ranks - 1) * (steps - 1) * side * side * 8, 0)


def test_conjugate_gradients_send_the_rows_at_the_cut_and_two_sums_each_way() -> None:
    ranks, steps, side = 2, 4, 300  # large enough that sums have blocks for both ranks
    rows = 2 * (steps - 1)
    assert sent("cg", side, steps, ranks) == (rows, rows * (side + 2) * 8, 2 * 2 * steps)


CASE = {"app", "ranks", "coexec_s", "handwritten_s", "vs_handwritten", "messages", "bytes", "bytes_minimum", "step_us"}
SIMULATED = {"simulated_s", "simulation_error"}


@needs_mpi
def test_real_ranks_are_measured_beside_mpi4py_and_simulated() -> None:
    found = measured(2, "tiny", Costs(), memory=8e9)
    assert found["ranks"] == 2
    assert [case["app"] for case in found["cases"]] == list(APPS) == list(TINY)
    for case in found["cases"]:
        assert set(case) >= CASE | SIMULATED
        assert case["simulated_s"] > 0
        assert case["simulation_error"] == pytest.approx(case["simulated_s"] / case["coexec_s"] - 1)
        assert case["ranks"] == 2 and case["coexec_s"] > 0 and case["handwritten_s"] > 0
        if case["app"] != "cg":  # which is so small here that one rank computes it
            assert case["bytes"] == case["bytes_minimum"] > 0
    assert set(found["latency_us"]) == {"coexec", "mpi4py"}
    assert found["bandwidth"]["vs_mpi4py"] > 0
    assert 0 <= found["blocked_core"] < 1


def test_one_rank_is_refused_and_ranks_are_for_this_benchmark_only() -> None:
    with pytest.raises(ConfigError, match="2 ranks at least"):
        run(True, print, ranks=1)
    ended = call("bench", "overhead", "--ranks", "2")
    assert ended.code == 2 and "--ranks goes with cluster" in ended.err


def test_parts_are_measured_alone_and_others_are_refused_by_name() -> None:
    ended = call("bench", "cluster", "--only", "cq")
    assert ended.code == 2 and "known: cg, matmul" in ended.err
    ended = call("bench", "overhead", "--only", "cg")
    assert ended.code == 2 and "--only goes with apps, cluster" in ended.err
