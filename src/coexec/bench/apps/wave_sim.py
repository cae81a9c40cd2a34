"""wave_sim: a stencil over two arrays that swap their roles.

Before: app.py, examples/wave_sim.py.  After: harness.py.
"""

from __future__ import annotations

from typing import Any

from .app import App, Results
from .programs import load
from .team import ThreadTeam

SIDE, STEPS = 2048, 40
QUICK_SIDE, QUICK_STEPS = 300, 6


def make(quick: bool) -> App:
    """Return the application."""
    side, steps = (QUICK_SIDE, QUICK_STEPS) if quick else (SIDE, STEPS)
    example: Any = load("wave_sim")

    def hand(team: ThreadTeam, before: Any, now: Any) -> Results:
        def share(rank: int) -> None:
            part = team.part(side - 2, rank)
            old, new = before, now
            for _ in range(steps):
                team.compute(example.step, new[part.start : part.stop + 2], old[1:-1, 1:-1][part], example.SPEED)
                old, new = new, old
                team.barrier()

        team.run(share)
        return (before, now) if steps % 2 == 0 else (now, before)

    inputs = example.start(side)
    return App(
        "wave_sim",
        f"{side} x {side}, {steps} steps",
        inputs,
        lambda *arrays: example.reference(*arrays, steps),
        lambda *arrays: example.compute(*arrays, steps),
        hand,
        nbytes=3.0 * inputs[0].nbytes * steps,  # read both, write one
        rewritten=(0, 1),
        tolerance=1e-5,  # float32
    )
