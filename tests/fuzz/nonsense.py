"""Teach every model of the current runtime an absurd speed: results must not depend on what is predicted."""

from __future__ import annotations

from coexec.predict.work import Work
from coexec.program import session

SPEEDS = (1e-9, 1e-6, 1e-3, 1.0)  # seconds per byte


def nonsense(choice: int) -> None:
    """Let each model believe in a speed that `choice` decides."""
    models = session.current().learned.models()  # type: ignore[attr-defined]
    for number, model in enumerate(list(models.values())):
        speed = SPEEDS[(choice >> number % 16) % len(SPEEDS)]
        for sample in model.samples()[:4]:
            work = Work(sample.features, sample.kind, None)
            for together in (False, True):
                model.learn(work, speed * sample.features[0], together=together)
