"""Short calls stay with the rank that alone has their data; all others are divided as ever."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.bench.cluster.apps import APPS
from coexec.cluster.staying import only_holder
from coexec.testing import on_teams
from tests.test_joined import driver

NUMBERS = 5_000  # few enough for one block of a reduction, so that one rank computes it


@pytest.mark.parametrize(
    ("held", "wanted", "rank"),
    [
        ([0, 80, 0], 80, 1),
        ([20, 80, 20], 80, 1),  # everybody has 20 of them
        ([80, 80, 80], 80, None),  # everybody has all: nothing would be sent
        ([80, 80, 0], 80, None),
        ([80, 30, 0], 80, None),  # one has all, another one some: it is divided, and was gathered
        ([40, 40, 0], 80, None),
        ([0, 0], 0, None),  # it reads nothing
    ],
)
def test_only_a_rank_that_alone_has_everything_keeps_a_call(held: list[int], wanted: int, rank: int | None) -> None:
    assert only_holder(held, wanted) == rank


@pytest.mark.parametrize(("flops", "divided"), [(2.0, False), (1e4, True), (None, True)])
def test_a_short_call_stays_where_a_small_reduction_left_its_data(flops: float | None, divided: bool) -> None:
    """Only what a kernel declares tells that it is short: what was measured differs between ranks."""

    @cx.kernel(split=0, x=cx.update, total=cx.reduce("sum", fresh=True))
    def advance(x, total):
        x += 1
        total += x.sum()

    @cx.kernel(split=0, x=cx.update, flops=flops)
    def turn(x):
        x *= 2

    def program() -> tuple[int, int]:
        with cx.Runtime("cpu:0", store="off", policy="even", diagnostics="off") as runtime:
            x, total = cx.array(np.ones(NUMBERS)), cx.zeros(())
            for _ in range(3):
                advance(x, total)
                turn(x)
            cx.wait()
            network = driver(runtime).network
            counts = network.messages - network.partials, network.bytes - network.partial_bytes
            assert float(total) == 11.0 * NUMBERS and np.asarray(x).tolist() == [22.0] * NUMBERS
            return counts

    messages, sent = (sum(column) for column in zip(*on_teams(2, program), strict=True))
    half = NUMBERS // 2 * 8
    assert (messages, sent) == ((5, 5 * half) if divided else (0, 0))  # there three times, and back twice


def test_a_solver_of_few_points_sends_its_sums_and_nothing_else() -> None:
    steps = 4
    app = APPS["cg"](60, steps, 2)

    def program() -> tuple[int, int]:
        with cx.Runtime("cpu:0", store="off", policy="even", diagnostics="off") as runtime:
            app.coexec(*[cx.array(given) for given in app.inputs])
            cx.wait()
            network = driver(runtime).network
            return network.messages - network.partials, network.partials

    messages, partials = (sum(column) for column in zip(*on_teams(2, program), strict=True))
    assert (messages, partials) == (0, 2 * steps)
