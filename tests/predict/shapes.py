"""Matmul shapes, what they ask for, and devices that are exactly known: what the predictions are tested with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from coexec.predict.model import KernelModel
from coexec.predict.work import Work

Shape = tuple[int, int, int]
Truth = Callable[[Work], float]

FLOPS_AT = 5
SIDES = (256, 512, 1024, 2048)


def product(shape: Shape, *, keyed: bool = True) -> Work:
    """Return the work of an (m, k) by (k, n) matmul in float32."""
    m, n, k = map(float, shape)
    a, b, out = 4 * m * k, 4 * k * n, 4 * m * n
    return Work((a + b + out, m * n, a, b, out, 2 * m * n * k), "<f4 <f4 <f4", shape if keyed else None)


def steady(work: Work) -> float:
    """Return the seconds on a device that one line describes."""
    return 2e-6 + work.features[FLOPS_AT] / 1e11 + work.size / 2e10


def cached(work: Work) -> float:
    """Return the seconds on a device whose memory is slower than its cache, which ends at 4 MB, not sharply."""
    outside = 1.0 / (1.0 + (4e6 / work.size) ** 2)
    return 2e-6 + work.features[FLOPS_AT] / 1e11 + work.size * (1 / 4e10 + outside / 6e9)


def some_shapes(count: int, seed: int, low: int = 256, high: int = 2048) -> list[Shape]:
    """Return shapes spread evenly over the factors, tall and wide ones among them."""
    rng = np.random.default_rng(seed)
    sides = np.exp(rng.uniform(math.log(low), math.log(high), (count, 3)))
    return [(int(m), int(n), int(k)) for m, n, k in sides]


def calibrated(
    truth: Truth, shapes: Sequence[Shape], *, noise: float = 0.03, seed: int = 0, runs: int = 5
) -> KernelModel:
    """Return a model that saw each shape some times, with noise."""
    rng = np.random.default_rng(seed)
    model = KernelModel(flops_at=FLOPS_AT)
    for shape in shapes:
        work = product(shape)
        for _ in range(runs):
            model.learn(work, truth(work) * math.exp(rng.normal(0.0, noise)))
    return model


def relative_errors(
    model: KernelModel, truth: Truth, shapes: Sequence[Shape], *, together: bool = False
) -> list[float]:
    """Return how far the predictions lie from the truth."""
    found = []
    for shape in shapes:
        work = product(shape)
        seconds = model.seconds(work, together=together)
        assert seconds is not None
        found.append(abs(seconds / truth(work) - 1.0))
    return found


CALIBRATED = some_shapes(20, seed=11)
UNSEEN = some_shapes(40, seed=12)


def line(size: float, key: object = None, kind: str = "f8") -> Work:
    """Return work with one feature."""
    return Work((float(size),), kind, key)


def trained(*seconds: float, work: Work) -> KernelModel:
    """Return a model that has seen these seconds."""
    model = KernelModel()
    for value in seconds:
        model.learn(work, value)
    return model
