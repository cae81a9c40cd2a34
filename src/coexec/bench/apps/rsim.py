"""RSim: step t reads rows [0, t) of the light's history and writes row t.

Before: app.py, examples/rsim.py.  After: harness.py.
"""

from __future__ import annotations

from typing import Any

from .app import App, Results
from .programs import load
from .team import ThreadTeam

EDGE, STEPS = 20, 40
QUICK_EDGE, QUICK_STEPS = 5, 6


def make(quick: bool) -> App:
    """Return the application."""
    edge, steps = (QUICK_EDGE, QUICK_STEPS) if quick else (EDGE, STEPS)
    example: Any = load("rsim")

    def hand(team: ThreadTeam, form: Any, when: Any, history: Any) -> Results:
        def share(rank: int) -> None:
            part = team.part(len(form), rank)
            mine, mine_when = form[part], when[part]
            for t in range(len(history) - steps, len(history)):
                team.compute(example.bounce, mine, mine_when, history[:t], history[t, part])
                team.barrier()

        team.run(share)
        return (history,)

    form, when, history = example.start(edge, steps)
    return App(
        "rsim",
        f"{len(form)} patches, {steps} steps",
        (form, when, history),
        lambda *arrays: example.reference(*arrays, steps),
        lambda *arrays: example.compute(*arrays, steps),
        hand,
        nbytes=float(form.nbytes + when.nbytes) * steps,  # the history is small
        rewritten=(2,),
    )
