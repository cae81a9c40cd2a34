"""k-means: labels and sums in one divided task, then a small one that moves the centres.

Before: app.py, examples/kmeans.py.  After: harness.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .app import App, Results
from .programs import load
from .team import ThreadTeam

POINTS, CLUSTERS, STEPS = 1_000_000, 16, 5
QUICK_POINTS, QUICK_CLUSTERS, QUICK_STEPS = 40_000, 5, 2


def make(quick: bool) -> App:
    """Return the application."""
    points, clusters, steps = (QUICK_POINTS, QUICK_CLUSTERS, QUICK_STEPS) if quick else (POINTS, CLUSTERS, STEPS)
    example: Any = load("kmeans")

    def hand(team: ThreadTeam, x: Any, centre: Any, label: Any, sums: Any, count: Any) -> Results:
        mine = [(np.empty_like(sums), np.empty_like(count)) for _ in range(team.size)]

        def share(rank: int) -> None:
            part = team.part(points, rank)
            for _ in range(steps):
                for array in mine[rank]:
                    array[...] = 0
                team.compute(example.assign, x[part], centre, label[part], *mine[rank])
                team.barrier()
                if rank == 0:
                    np.sum([found for found, _ in mine], axis=0, out=sums)
                    np.sum([found for _, found in mine], axis=0, out=count)
                    team.compute(example.move, sums, count, centre)
                team.barrier()

        team.run(share)
        return label, centre

    inputs = example.start(points, clusters)
    return App(
        "kmeans",
        f"{points:,} points, {clusters} clusters, {steps} steps",
        inputs,
        lambda *arrays: example.reference(*arrays, steps=steps),
        lambda *arrays: example.compute(*arrays, steps=steps),
        hand,
        nbytes=float(inputs[0].nbytes + inputs[2].nbytes) * steps,  # read the points, write the labels
        rewritten=(1,),
        libraries=True,
        tolerance=1e-6,  # of the points may be half-way between two centres, and go either way
    )
