"""Ranks that are threads and of unlike speed: shares change, results do not."""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx
from coexec.testing import on_teams
from tests.test_joined import driver, half_of, on
from tests.test_ranked import half, smooth, total_of


class Unlike:
    """What a rank says that it measured: other speeds each time that it is asked."""

    def __init__(self, rank: int) -> None:
        self._rank, self._times = rank, 0

    def told(self) -> dict[str, tuple[int, float]]:
        self._times += 1
        return {"step": (10, 0.1 * (1 + 3 * ((self._rank + self._times // 4) % 3)))}

    def forget(self) -> None:
        pass


def test_shares_that_change_again_and_again_change_no_result() -> None:
    data = np.random.default_rng(3).random(5000)

    def program(runtime: cx.Runtime) -> Any:
        way = driver(runtime)
        way.balance.measures = [Unlike(cx.rank())]
        u, v, total = cx.array(data), cx.zeros(5000), cx.zeros(())
        seen, sums = [way.balance.shares], []
        for step in range(40):
            smooth(u, v)
            u, v = v, u
            if step % 3 == 0:
                total_of(u, total)
                sums.append(float(total))
            cx.wait()
            if way.balance.shares != seen[-1]:
                seen.append(way.balance.shares)
        return np.asarray(u), sums, seen

    first, *others = on(3, program)
    a, b, wanted = data.copy(), np.zeros(5000), 0.0
    for step in range(40):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
        a, b = b, a
        wanted += a.sum() * (step % 3 == 0)
    np.testing.assert_array_equal(first[0], a)
    np.testing.assert_allclose(first[1][-1], wanted)
    assert len(first[2]) > 4
    for found, sums, seen in others:
        np.testing.assert_array_equal(found, a)
        assert (sums, seen) == (first[1], first[2])


def test_ranks_with_unlike_numbers_of_cores_begin_with_unlike_shares() -> None:
    def program() -> Any:
        with cx.Runtime("cpu:0,cpu:1" if cx.rank() else "cpu:0", store="off") as runtime:
            y = half(cx.array(np.arange(90.0)))
            np.testing.assert_array_equal(np.asarray(y), np.arange(90.0) / 2)
            return driver(runtime).balance.shares

    assert on_teams(2, program) == [(1 / 3, 2 / 3)] * 2


def test_ranks_tell_each_other_their_speeds_also_if_the_program_never_waits() -> None:
    def program(runtime: cx.Runtime) -> tuple[float, ...]:
        way = driver(runtime)
        way.balance.measures = [Unlike(cx.rank())]
        y = cx.zeros(300)
        for _ in range(200):
            half_of(y)
        np.testing.assert_array_equal(np.asarray(y), 0)
        return way.balance.shares

    first, second, third = on(3, program)
    assert first == second == third != (1 / 3,) * 3
