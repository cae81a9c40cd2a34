"""n-body: every body pulls every other; each part reads all places.

Before: app.py, examples/nbody.py.  After: harness.py.
"""

from __future__ import annotations

from typing import Any

from .app import App, Results
from .programs import load
from .team import ThreadTeam

BODIES, STEPS = 4096, 8
QUICK_BODIES, QUICK_STEPS = 300, 3


def make(quick: bool) -> App:
    """Return the application."""
    bodies, steps = (QUICK_BODIES, QUICK_STEPS) if quick else (BODIES, STEPS)
    example: Any = load("nbody")

    def hand(team: ThreadTeam, place: Any, next: Any, speed: Any, mass: Any) -> Results:
        def share(rank: int) -> None:
            part = team.part(bodies, rank)
            old, new = place, next
            for _ in range(steps):
                team.compute(example.move, old, mass, old[part], speed[part], new[part], example.DT)
                old, new = new, old
                team.barrier()

        team.run(share)
        return (place if steps % 2 == 0 else next, speed)

    inputs = example.start(bodies)
    return App(
        "nbody",
        f"{bodies} bodies, {steps} steps",
        inputs,
        lambda *arrays: example.reference(*arrays, steps),
        lambda *arrays: example.compute(*arrays, steps),
        hand,
        nbytes=float(sum(array.nbytes for array in inputs) + inputs[2].nbytes) * steps,  # all once, the speeds twice
        rewritten=(0, 2),
    )
