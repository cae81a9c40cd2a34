"""Elementwise bodies teach each other: chains that never ran, and sizes that never ran, are predicted from their own work."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

import coexec as cx
from coexec.predict.family import Family
from coexec.predict.learned import ELEMENTWISE
from coexec.predict.model import KernelModel
from coexec.predict.work import Estimate, Work
from coexec.program.cost import MIX, mix_of

SECONDS = dict(zip(MIX, (0.1e-9, 0.8e-9, 3e-9, 9e-9), strict=True))  # per point and operation
CACHE = 4e6  # bytes
BODIES = {
    "add": (["add"], 3),
    "sqrt": (["sqrt"], 2),
    "exp": (["exp"], 2),
    "sin": (["sin"], 2),
    "axpy": (["multiply", "add"], 3),
    "long": (["multiply", "add", "sqrt", "divide", "add"], 3),
}
UNSEEN = {
    "gauss": (["multiply", "negative", "exp", "multiply"], 3),
    "wave": (["sin", "multiply", "add", "add"], 4),
    "ratio": (["add", "multiply", "divide", "subtract", "maximum"], 3),
}


def took(names: list[str], arrays: int, points: int) -> float:
    """Return what a machine takes whose memory is six times slower than its cache."""
    nbytes = 8.0 * arrays * points
    moving = nbytes / 60e9 if nbytes < CACHE else nbytes / 10e9
    return 3e-6 + moving + points * sum(n * s for n, s in zip(mix_of(names), SECONDS.values(), strict=True))


def work_of(arrays: int, points: int) -> Work:
    nbytes = 8.0 * points
    return Work((arrays * nbytes, float(points), *[nbytes] * arrays), " ".join(["<f8"] * arrays), (arrays, points))


class Bodies:
    """Models of bodies that share what they learn."""

    def __init__(self, *, shared: bool = True) -> None:
        self._shared = KernelModel()
        self._related = shared
        self._rng = np.random.default_rng(0)

    def model(self, names: list[str]) -> KernelModel:
        model = KernelModel()
        model.family = Family(self._shared, mix_of(names)) if self._related else None
        return model

    def run(self, model: KernelModel, names: list[str], arrays: int, points: int) -> None:
        for _ in range(4):
            model.learn(work_of(arrays, points), took(names, arrays, points) * self._rng.normal(1.0, 0.02))


def taught() -> Bodies:
    bodies = Bodies()
    for names, arrays in BODIES.values():
        model = bodies.model(names)
        for power in (13, 15, 17, 19, 21, 23):
            bodies.run(model, names, arrays, 1 << power)
    return bodies


def test_a_chain_that_never_ran_is_predicted_from_its_operations_and_bytes() -> None:
    bodies, errors = taught(), []
    for names, arrays in UNSEEN.values():
        model = bodies.model(names)
        for points in (700_000, 1_500_000, 5_000_000, 20_000_000):
            found = model.estimate(work_of(arrays, points))
            assert found is not None and found.source == "regression"
            assert model.seconds(work_of(arrays, points)) == found.seconds
            errors.append(abs(found.seconds / took(names, arrays, points) - 1.0))
    assert median(errors) <= 0.10
    assert max(errors) <= 0.35


def test_a_chain_that_ran_in_cache_is_predicted_from_memory_where_it_will_not_fit() -> None:
    names, arrays = UNSEEN["ratio"]
    large = work_of(arrays, 20_000_000)
    guesses: list[Estimate | None] = []
    for bodies in (taught(), Bodies(shared=False)):
        model = bodies.model(names)
        bodies.run(model, names, arrays, 1 << 15)  # fits into the cache
        guesses.append(model.estimate(large))
    ours, alone = guesses
    assert ours is not None and alone is not None
    truth = took(names, arrays, 20_000_000)
    assert abs(ours.seconds / truth - 1.0) < 0.2
    assert abs(alone.seconds / truth - 1.0) > 0.4


def test_what_was_measured_itself_counts_more() -> None:
    bodies = taught()
    names, arrays = UNSEEN["wave"]
    model = bodies.model(names)
    for points in (1 << 16, 1 << 17, 1 << 18, 1 << 19):
        for _ in range(4):
            model.learn(work_of(arrays, points), 2.0 * took(names, arrays, points))  # this one is slow
    found = model.estimate(work_of(arrays, 1 << 17))
    assert found is not None and found.source == "history"
    between = model.estimate(work_of(arrays, 200_000))
    assert between is not None and 1.5 < between.seconds / took(names, arrays, 200_000) < 2.5


@pytest.mark.parametrize("wrong", [10.0, 0.1, 1000.0])
def test_a_poisoned_measurement_of_one_body_does_not_spoil_the_others(wrong: float) -> None:
    bodies = taught()
    names, arrays = UNSEEN["gauss"]
    for points in (1 << 14, 1 << 16):
        bodies.model(["multiply"]).learn(work_of(3, points), wrong * took(["multiply"], 3, points))
    found = bodies.model(names).estimate(work_of(arrays, 5_000_000))
    assert found is not None
    assert abs(found.seconds / took(names, arrays, 5_000_000) - 1.0) < 0.35


def test_without_a_fit_bodies_say_nothing_about_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = taught()
    names, arrays = UNSEEN["ratio"]
    monkeypatch.setattr("coexec.predict.model.at_hand", lambda: False)
    assert bodies.model(names).estimate(work_of(arrays, 5_000_000)) is None


def test_nothing_is_predicted_from_nothing() -> None:
    model = Bodies().model(["add"])
    assert model.estimate(work_of(3, 1000)) is None
    assert model.seconds(work_of(3, 1000)) is None
    model.learn(work_of(3, 1000), 1e-5)
    found = model.estimate(work_of(3, 2000))
    assert found is not None and found.seconds == pytest.approx(2e-5, rel=0.2)  # in proportion to its one measurement


def test_every_class_of_operations_is_counted_once() -> None:
    assert mix_of(["add", "divide", "exp", "sin", "maximum", "no_such"]) == (3.0, 1.0, 1.0, 1.0)


def test_real_runs_teach_the_family_and_chains_are_predicted_before_they_run() -> None:
    with cx.Runtime("cpu:0", store="off", inline=False) as runtime:
        for size in (1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20):
            x = cx.array(np.linspace(0.5, 1.5, size))
            for function in (np.sqrt, np.exp, np.negative):
                for _ in range(2):
                    function(x)
                    cx.wait()
        models = runtime._driver.learned.models()
        (shared,) = [model for key, model in models.items() if key.startswith(ELEMENTWISE)]
        known = shared.fitted(Work((1e7, 1e6, 0.0, 1e6, 0.0), "float64"), together=False)
        assert known is not None and known.seconds > 0.0
