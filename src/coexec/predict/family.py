"""What elementwise bodies on one device have in common: a chain that never ran is predicted from what others took.

Before: predict/model.py.  After: predict/learned.py.  Knows operations by class, bytes and seconds; no kernel.

Such a body reads and writes its arrays once, and computes a few operations per point. So its time is a sum: bytes at the
speed of whatever holds them, and points times operations of each class. One model of these features is taught by all of them.
"""

from __future__ import annotations

from math import exp, log

from .model import KernelModel
from .roofline import computing_type
from .window import centre
from .work import Estimate, Work

POINTS = 1  # which feature of a kernel counts the points
FURTHEST = 4.0  # times that a body may be slower or faster than its family says: beyond, something else was measured


class Family:
    """One elementwise body among all others on its device."""

    __slots__ = ("_mix", "shared")

    def __init__(self, shared: KernelModel, mix: tuple[float, ...]) -> None:
        self.shared = shared  # the model of all
        self._mix = mix  # operations per point, by class

    def _work(self, features: tuple[float, ...], kind: str) -> Work:
        points = features[POINTS]
        mine = (features[0], *[points * count for count in self._mix])
        return Work(mine, computing_type(kind), mine)  # a store keeps one row for each key

    def learn(self, work: Work, seconds: float, *, together: bool) -> None:
        """Take a measurement of this body."""
        self.shared.learn(self._work(work.features, work.kind), seconds, together=together)

    def estimate(self, work: Work, own: list[tuple[tuple[float, ...], float]], *, together: bool) -> Estimate | None:
        """Return how long this body takes by what the others took, or None if too few were measured.

        `own` are features and seconds of this body, too few for a fit of its own: they tell how far it is off.
        """
        found = self.shared.fitted(self._work(work.features, work.kind), together=together)
        if found is None:
            return None
        off = []
        for features, seconds in own:
            there = self.shared.fitted(self._work(features, work.kind), together=together)
            if there is not None and there.seconds > 0.0 and seconds > 0.0:
                off.append(min(max(log(seconds / there.seconds), -log(FURTHEST)), log(FURTHEST)))
        factor = exp(centre(off)) if off else 1.0
        return Estimate(found.seconds * factor, found.spread, "regression")
