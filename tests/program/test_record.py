"""Steps that a program names."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from tests.devices import TWO
from tests.small_loops import SIZE, axpy, bent, mixed, opened, values

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


def test_a_named_step_tells_how_often_it_was_replayed() -> None:
    step = cx.record("turn")
    with opened(TWO):
        x, y = cx.array(values()), cx.zeros(SIZE)
        for _ in range(30):
            with step:
                axpy(x, y, 1.0)
                axpy(bent(x), y, 0.5)
        assert step.steps == 30 and step.replayed >= 15, step.why  # plans are made anew a few times
        assert repr(step) == f"<cx.record turn: {step.replayed} of 30 replayed>"


def test_what_lies_between_named_steps_is_replayed_with_them() -> None:
    first, second = cx.record("first"), cx.record("second")
    with opened(TWO):
        x, y, tops = cx.array(values()), cx.zeros(SIZE), []
        for _ in range(12):
            with first:
                axpy(x, y, 1.0)
            axpy(bent(x), y, 0.5)
            with second:
                axpy(x, y, -1.0)
            tops.append(float(y[7]))
        assert first.replayed >= 5 and second.replayed >= 5, (first, second, first.why)
        expected = np.cumsum([0.5 * bent.function(values())[7]] * 12)
        np.testing.assert_allclose(tops, expected)


def test_a_named_step_may_be_longer_than_those_that_are_found() -> None:
    step = cx.record()
    with opened(TWO):
        x, y = cx.array(values()), cx.zeros(SIZE)
        for _ in range(9):
            with step:
                for _ in range(300):
                    axpy(x, y, 1.0)
            float(y[0])
        assert step.replayed >= 2, step.why
        np.testing.assert_allclose(np.asarray(y), 2700 * values())


def test_a_step_that_an_exception_leaves_is_over() -> None:
    step = cx.record()
    with opened(TWO) as runtime:
        x, y = cx.array(values()), cx.zeros(SIZE)
        with pytest.raises(KeyError), step:
            axpy(x, y, 1.0)
            raise KeyError("left")
        assert step.steps == 0
        for _ in range(10):
            axpy(x, y, 1.0)
        assert runtime._driver.scheduler.counts.replayed > 3
        np.testing.assert_allclose(np.asarray(y), 11 * values())


def test_calls_beside_named_steps_are_no_part_of_them() -> None:
    step = cx.record()
    with opened(TWO):
        x, y, z = cx.array(values()), cx.zeros(SIZE), cx.zeros(SIZE)
        for turn in range(12):
            if turn % 3:
                with step:
                    axpy(x, y, 1.0)
                    axpy(x, z, 1.0)
            mixed(x, z, 1.0, 0.0)
            bent(x)
        np.testing.assert_allclose(np.asarray(y), 8 * values())
        np.testing.assert_allclose(np.asarray(z), 20 * values())


def test_without_replay_a_step_says_so() -> None:
    step = cx.record()
    with opened(TWO, replay=False):
        x, y = cx.array(values()), cx.zeros(SIZE)
        for _ in range(5):
            with step:
                axpy(x, y, 1.0)
        assert (step.steps, step.replayed, step.why) == (5, 0, "replay is off")
