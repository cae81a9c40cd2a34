"""Loops on several ranks of a simulated cluster: each rank replays them. Random programs on ranks are in tests/fuzz/."""

from __future__ import annotations

import numpy as np

import coexec as cx
from coexec.ranked import Ranks
from tests.clusters import cluster
from tests.test_ranked import smooth


def test_every_rank_replays_a_loop() -> None:
    data = np.random.default_rng(3).random(60)
    with cx.Runtime(platform=cluster(3), ranks=3, execute=True) as runtime:
        u, v = cx.array(data), cx.zeros(60)
        for _ in range(40):
            smooth(u, v)
            u, v = v, u
        got = np.asarray(u)
        assert isinstance(runtime._way, Ranks)
        assert [member.scheduler.counts.replayed > 15 for member in runtime._way.members] == [True] * 3
    a, b = data.copy(), np.zeros(60)
    for _ in range(40):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
        a, b = b, a
    np.testing.assert_array_equal(got, a)


def test_a_call_that_other_ranks_compute_is_replayed_without_instructions() -> None:
    """Recipes that are used often are written out; there is nothing to write of calls of others."""

    @cx.kernel(x=cx.read, y=cx.write)
    def whole(x, y):
        y[...] = x + 1

    with cx.Runtime(platform=cluster(2), ranks=2, execute=True):
        x, y = cx.zeros(8), cx.zeros(8)
        for _ in range(60):
            whole(x, y)
            x, y = y, x
        assert np.asarray(x).tolist() == [60.0] * 8
