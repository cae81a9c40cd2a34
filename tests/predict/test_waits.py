"""How long kernels wait for the interpreter lock is learnt beside their own time, and kept."""

from __future__ import annotations

import pytest

import coexec as cx
from coexec.predict.learned import CONDITIONS
from coexec.predict.model import WAITS, Model
from coexec.predict.store import Store


def test_waits_are_averaged_over_runs_by_condition() -> None:
    model = Model()
    for waited in (0.0, 0.0, 0.3, 0.1):
        model.learn_wait(waited, 1.0)
    model.learn_wait(1.0, 2.0, together=True)
    assert model.waits() == {False: pytest.approx(0.1), True: pytest.approx(0.5)}


def test_old_waits_fade() -> None:
    model = Model()
    for _ in range(WAITS):
        model.learn_wait(1.0, 1.0)
    for _ in range(10 * WAITS):
        model.learn_wait(0.0, 1.0)
    assert model.waits()[False] < 1e-3


def test_a_run_that_others_kept_waiting_counts_as_one_that_waited_as_long_as_it_worked() -> None:
    model = Model()
    for waited in (0.0, 100.0):
        model.learn_wait(waited, 1.0)
    assert model.waits()[False] == pytest.approx(0.5)


def test_nothing_is_known_of_what_never_waited_or_took_no_time() -> None:
    model = Model()
    assert model.waits() == {}
    model.learn_wait(0.0, 0.0)
    assert model.waits() == {}


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
