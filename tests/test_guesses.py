"""Divisions that nobody has measured are guesses: the program waits for a few of them, and then runs ahead and is replayed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.driver import GUESSES
from coexec.observe.trace import Trace
from tests.devices import CORES, TWO
from tests.small_loops import axpy

pytestmark = pytest.mark.skipif(CORES < 2, reason="one core divides nothing")

STEPS = 60


def repeated_axpy() -> None:
    x, y = cx.ones(300_000), cx.zeros(300_000)
    for _ in range(STEPS):
        axpy(x, y, 0.5)
    assert (np.asarray(y) == 0.5 * STEPS).all()


@cx.kernel(split=0, p=cx.read(cx.halo(1, border=0.0)), q=cx.write)
def apply(p: Any, q: Any) -> None:
    q[...] = 3 * p[1:-1] - p[:-2] - p[2:]


@cx.kernel(split=0, r=cx.read, p=cx.update)
def turn(r: Any, p: Any, along: Any) -> None:
    p *= along
    p += r


def conjugate_gradients() -> None:
    x, r = cx.zeros(300_000), cx.ones(300_000)
    p, q = r.copy(), cx.empty(300_000)
    left = float(np.vdot(r, r))
    for _ in range(STEPS):
        apply(p, q)
        length = left / float(np.vdot(p, q))
        axpy(p, x, length)
        axpy(q, r, -length)
        before, left = left, float(np.vdot(r, r))
        turn(r, p, left / before)
    assert left < 1e-6


@pytest.mark.parametrize("program", [repeated_axpy, conjugate_gradients])
def test_a_loop_on_like_cores_waits_for_its_first_measurements_only(
    program: Callable[[], None], tmp_path: Path
) -> None:
    """Like cores are guessed right, so that nothing about the division changes when they are measured."""
    file = tmp_path / "run.json"
    with cx.Runtime(TWO, trace=file, store="off", inline=False):
        program()
    waits = [row for row in Trace.load(file).waits if row["what"] == "first measurements"]
    assert len(waits) <= 4 * GUESSES
