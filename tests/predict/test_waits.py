"""How long kernels wait for the interpreter lock is learnt beside their own time, and kept."""

from __future__ import annotations

import pytest

import coexec as cx
from coexec.predict.learned import CONDITIONS
from coexec.predict.model import MEANS, RUNS, KernelModel, Waits
from coexec.predict.store import Store


def test_a_few_runs_are_averaged_by_condition() -> None:
    model = KernelModel()
    for waited in (0.0, 0.0, 0.3, 0.1):
        model.learn_wait(waited, 1.0)
    model.learn_wait(1.0, 2.0, together=True)
    assert model.waits() == {False: pytest.approx(0.1), True: pytest.approx(0.5)}


def test_waits_that_come_again_and_again_count_and_one_that_is_very_long_does_not() -> None:
    often, once = Waits(), Waits()
    for number in range(RUNS * MEANS):
        often.learn(1.0 if number % RUNS == 0 else 0.0, 1.0)
        once.learn(100.0 if number == 0 else 0.0, 1.0)
    assert often.share == pytest.approx(1.0 / RUNS)
    assert once.share == 0.0


def test_old_waits_are_forgotten() -> None:
    waits = Waits()
    for waited in (1.0, 0.0):
        for _ in range(RUNS * MEANS):
            waits.learn(waited, 1.0)
    assert waits.share == 0.0


def test_nothing_is_known_before_something_took_time() -> None:
    assert KernelModel().waits() == {}
    waits = Waits()
    waits.learn(0.0, 0.0)
    assert waits.share == 0.0


def test_waits_are_kept_in_the_store(tmp_path) -> None:
    @cx.kernel(x=cx.read, y=cx.write)
    def copied(x, y):
        y[...] = x

    path = tmp_path / "store.sqlite"
    with cx.Runtime("cpu:0", store=path, inline=False) as runtime:
        x, y = cx.zeros(300_000), cx.empty(300_000)
        for _ in range(3):
            copied(x, y)
        cx.wait()
        (key,) = [key for key in runtime.learned.models() if key.startswith("copied ")]
    (share, _) = Store(path).waits()[key, CONDITIONS[False]]
    assert share >= 0.0
