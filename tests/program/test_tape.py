"""A tape: calls are written down once, and their bodies run again give what calls give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.program import array as arrays, session
from coexec.program.tape import CallTape, NotTaped


def run(tape: CallTape) -> None:
    for step in tape.steps:
        step.function(*step.arguments)


@cx.kernel(split=0, x=cx.read, total=cx.reduce("sum"))
def summed(x: Any, total: Any) -> None:
    """Add up."""
    total[...] += x.sum()


def test_steps_compute_anew_from_what_is_in_the_input_then() -> None:
    tape = CallTape()
    with session.within(tape):
        x = arrays.fresh((5, 7), np.float32)
        w = arrays.array(np.arange(21, dtype=np.float32).reshape(7, 3))
        y = cx.relu(cx.matmul(x, w) - 3.0)[:, ::-1]
    for seed in range(3):
        given = np.random.default_rng(seed).standard_normal((5, 7)).astype(np.float32)
        tape.memory(x)[...] = given
        run(tape)
        expected = np.maximum(given @ np.arange(21, dtype=np.float32).reshape(7, 3) - np.float32(3), 0)[:, ::-1]
        np.testing.assert_allclose(tape.memory(y), expected, rtol=1e-5, atol=1e-5)


def test_memory_of_arrays_that_are_gone_is_used_again_and_that_of_others_is_not() -> None:
    tape = CallTape()
    with session.within(tape):
        x = arrays.fresh((1000,), np.float64)
        tape.keep(x)
        first = x + 1.0
        y = x
        for _ in range(20):
            y = y * 1.5 + 1.0
    memories = {step.arguments[-1].__array_interface__["data"][0] for step in tape.steps}
    assert len(tape.steps) == 41
    assert len(memories) <= 5, "two that take turns, what was kept, and some on the way"
    tape.memory(x)[...] = np.arange(1000.0)
    run(tape)
    expected = np.arange(1000.0)
    for _ in range(20):
        expected = expected * 1.5 + 1.0
    np.testing.assert_array_equal(tape.memory(y), expected)
    np.testing.assert_array_equal(tape.memory(first), np.arange(1000.0) + 1)


def test_an_array_of_zeros_is_zero_in_every_run() -> None:
    tape = CallTape()
    with session.within(tape):
        x = arrays.fresh((4,), np.float64)
        total = arrays.zeros((4,))
        total += x
    tape.memory(x)[...] = [1, 2, 3, 4]
    run(tape)
    run(tape)
    np.testing.assert_array_equal(tape.memory(total), [1, 2, 3, 4])


def test_what_is_no_body_on_memory_is_refused() -> None:
    tape = CallTape()
    with session.within(tape):
        x, given = arrays.fresh((4,), np.float64), arrays.array(np.ones(4))
        for call, reason in (
            (lambda: np.asarray(x), "nothing is computed"),
            (lambda: x * x[0], "a value that is computed"),
            (lambda: given.__iadd__(x), "changes an array that was given"),
            (lambda: summed(x, arrays.zeros(())), "no body on arrays alone"),
            (tape.wait, "not computed"),
        ):
            with pytest.raises(NotTaped, match=reason):
                call()
    with cx.Runtime("cpu:0", store="off"), pytest.raises(NotTaped, match="another runtime"):
        tape.memory(cx.ones(3))


def test_a_number_of_an_array_that_was_given_is_known() -> None:
    tape = CallTape()
    with session.within(tape):
        x, given = arrays.fresh((4,), np.float64), arrays.array(np.array([2.0, 3.0]))
        y = x * given[1]
    tape.memory(x)[...] = [1, 2, 3, 4]
    run(tape)
    np.testing.assert_array_equal(tape.memory(y), [3, 6, 9, 12])
