"""Where data is decides the first division of a loop, and not those of all later turns: like devices come to share alike."""

from __future__ import annotations

from typing import Any

import pytest

import coexec as cx

SIDE, STEPS = 4096, 60


@cx.kernel(split=0, u=cx.read(cx.halo(1, border=0.0)), out=cx.update, flops=8.0)
def wave(u: Any, out: Any) -> None:
    near = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    out[...] = 0.25 * near + u[1:-1, 1:-1] - out


def shares_of_wave(start: Any, steps: int) -> dict[str, float]:
    """Return who has which share of a step after some, on four devices that are alike."""
    gpus = ",".join([f"gpu:{number}" for number in range(4)])
    with cx.Runtime(gpus, platform="a100x4", store="off", diagnostics="off"):
        before, now = cx.zeros((SIDE, SIDE)), cx.zeros((SIDE, SIDE))
        start(now)
        for _ in range(steps):
            wave(now, before)
            before, now = now, before
        cx.wait()
        shares: dict[str, float] = wave.plan(now, before).shares
        return shares


def a_point(u: Any) -> None:
    u[SIDE // 2, SIDE // 2] = 1.0


def a_band(u: Any) -> None:
    u[3 * SIDE // 8 : 5 * SIDE // 8] = 1.0


@pytest.mark.parametrize("start", [a_point, a_band])
def test_a_loop_that_starts_from_zeros_and_a_little_more_is_divided_evenly_over_like_devices(start: Any) -> None:
    """What is copied once decides no longer who computes what in every step."""
    first = shares_of_wave(start, 1)
    assert max(first.values()) - min(first.values()) > 0.03  # otherwise there is nothing to be left behind
    shares = shares_of_wave(start, STEPS)
    assert len(shares) > 1
    assert shares == pytest.approx(dict.fromkeys(shares, 1 / len(shares)), abs=0.03)
