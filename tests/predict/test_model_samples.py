"""What a store keeps of a model, and what a model takes back."""

from __future__ import annotations

from threading import Thread

import pytest

from coexec.predict.model import KernelModel
from coexec.predict.sample import Sample
from coexec.predict.table import KEYS
from coexec.predict.window import SETTLED
from tests.predict.shapes import (
    CALIBRATED,
    FLOPS_AT,
    UNSEEN,
    calibrated,
    line,
    product,
    steady,
    trained,
)


def test_samples_loaded_into_another_model_predict_the_same() -> None:
    model = calibrated(steady, CALIBRATED)
    model.learn(line(1000), 1e-3, together=True)
    other = KernelModel(flops_at=FLOPS_AT)
    other.load(model.samples())
    assert other.version > 0 and other.changed() == []
    for shape in (*CALIBRATED, *UNSEEN):
        assert other.seconds(product(shape)) == pytest.approx(model.seconds(product(shape)), rel=1e-9)
    assert other.seconds(line(1000), together=True) == 1e-3
    assert other.measured(product(CALIBRATED[0])) == 4  # the cold one was dropped
    assert sorted(other.samples()) == sorted(model.samples())


def test_a_sample_has_the_newest_first_and_a_stable_key() -> None:
    model = trained(9.0, 1.0, 2.0, 3.0, work=line(1000, ((10, 20), "<f4")))
    assert model.samples() == [Sample("f8", "((10, 20), '<f4')", (1000.0,), (3.0, 2.0, 1.0), False)]


def test_changed_gives_what_was_learnt_since_it_was_last_asked() -> None:
    model = KernelModel()
    model.learn(line(1000, "a"), 1.0)
    model.learn(line(2000, "b"), 1.0, together=True)
    assert [(s.key, s.together) for s in model.changed()] == [("'a'", False), ("'b'", True)]
    assert model.changed() == []
    model.learn(line(2000, "b"), 2.0, together=True)
    assert [s.seconds for s in model.changed()] == [(2.0,)]


def test_loading_beside_what_was_measured_already_joins_both() -> None:
    model = trained(9.0, 1.0, work=line(1000, "a"))
    model.load([Sample("f8", "'a'", (1000.0,), (3.0, 2.0), False)])
    assert [s.seconds for s in model.samples()] == [(1.0, 3.0, 2.0)]


def test_a_call_with_other_features_than_were_measured_is_unknown() -> None:
    model = calibrated(steady, CALIBRATED)
    assert model.seconds(product(UNSEEN[0])) is not None
    wider = product(UNSEEN[0])._replace(features=(*product(UNSEEN[0]).features, 1.0))
    assert model.seconds(wider) is None
    model.learn(wider, 3.0)
    assert model.seconds(wider) == 3.0 and model.seconds(product(UNSEEN[1])) is None


def test_samples_with_other_features_than_the_kernel_declares_now_are_forgotten() -> None:
    model = KernelModel()
    model.load([Sample("f8", f"'{i}'", (1000.0 * i, 1.0), (1.0, 1.0), False) for i in range(1, 8)])
    assert model.seconds(line(3000, "new")) is None
    model.learn(line(3000, "new"), 5.0)
    assert model.seconds(line(3000, "new")) == 5.0 and model.seconds(line(6000, "other")) == pytest.approx(10.0)


def test_memory_stays_bounded() -> None:
    model = KernelModel()
    for i in range(3 * KEYS):
        model.learn(line(1000 + i, i), 1e-3)
        model.learn(line(5000, "again and again"), 1e-3)
    samples = model.samples()
    assert len(samples) == KEYS and all(len(s.seconds) <= 7 for s in samples)
    assert model.measured(line(5000, "again and again")) > SETTLED  # what is still used is not forgotten


def test_threads_may_learn_and_ask_at_once() -> None:
    model = calibrated(steady, CALIBRATED, noise=0.0)
    answers: list[float | None] = []

    def learn() -> None:
        for shape in UNSEEN * 5:
            model.learn(product(shape), steady(product(shape)))

    def ask() -> None:
        answers.extend(model.seconds(product(shape)) for shape in UNSEEN * 5)

    threads = [Thread(target=work) for work in (learn, ask, learn, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 10 * len(UNSEEN) and None not in answers
    assert all(model.measured(product(shape)) == 10 for shape in UNSEEN)
