"""Black-Scholes: a long formula for each option, and one reduction.

Before: app.py, examples/black_scholes.py.  After: harness.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .app import App, Results
from .programs import load
from .team import ThreadTeam

OPTIONS, QUICK_OPTIONS = 4_000_000, 60_000
RATE, VOLATILITY = 0.02, 0.3


def make(quick: bool) -> App:
    """Return the application."""
    options = QUICK_OPTIONS if quick else OPTIONS
    example: Any = load("black_scholes")

    def hand(team: ThreadTeam, spot: Any, strike: Any, years: Any, call: Any, put: Any, value: Any) -> Results:
        sums = np.zeros(team.size)

        def share(rank: int) -> None:
            part = team.part(options, rank)
            mine = spot[part], strike[part], years[part], call[part], put[part]
            team.compute(example.price, *mine, rate=RATE, volatility=VOLATILITY)
            team.compute(example.total, call[part], put[part], sums[rank, ...])

        team.run(share)
        value += sums.sum()
        return call, put, value

    inputs = example.start(options)
    return App(
        "black_scholes",
        f"{options:,} options",
        inputs,
        lambda *arrays: example.reference(*arrays, rate=RATE, volatility=VOLATILITY),
        lambda *arrays: example.compute(*arrays, rate=RATE, volatility=VOLATILITY),
        hand,
        nbytes=7.0 * inputs[0].nbytes,  # read three and write two; then read the two again
        rewritten=(5,),
    )
