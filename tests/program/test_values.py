"""Values that a body takes: arguments by value, 0-d arrays, and what it finds outside of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError
from tests.devices import TWO
from tests.holding import closed_gate, pass_gate

FACTOR = 3
TABLE = [1, 2, 3]


@pytest.fixture(autouse=True)
def two_cores():
    with cx.Runtime(TWO):
        yield


def divided(kernel):
    return kernel.using(devices=TWO)


@cx.kernel(x=cx.update)
def add(x, a, b=10, *, c=100):
    x += a + b + c


def test_arguments_by_position_name_and_default() -> None:
    x = cx.zeros(2, int)
    add(x, 1)
    add(x, 2, 20)
    add(x, a=3, c=0)
    add(x=x, a=4, b=0, c=0)
    assert int(x[0]) == 111 + 122 + 13 + 4


def test_arguments_that_do_not_fit_are_refused_at_the_call() -> None:
    x = cx.zeros(2, int)
    for args, kwargs in [((), {}), ((x,), {}), ((x, 1, 2, 3), {}), ((x, 1), {"d": 1}), ((x, 1), {"a": 2})]:
        with pytest.raises(ArgumentError, match=r"kernel 'add' takes \(x, a, b, c\)"):
            add(*args, **kwargs)
    with pytest.raises(ArgumentError, match=r"'x' is declared update and takes a coexec array, got ndarray.*cx.array"):
        add(np.zeros(2), 1)
    with pytest.raises(ArgumentError, match=r"shape \(2,\) passed for 'a'.*declare a=cx.read"):
        add(x, cx.zeros(2))
    for value in ([1], {}, np.zeros(2), np.zeros(()), object(), bytearray(b"x")):
        with pytest.raises(ArgumentError, match="could change before the kernel runs"):
            add(x, value)
    assert np.asarray(x).tolist() == [0, 0]


def test_special_parameters_are_not_passed() -> None:
    @cx.kernel(x=cx.update)
    def special(x, chunk, xp, a=1):
        x += a

    x = cx.zeros(1)
    special(x)
    special(x, 5)
    special(x, a=7)
    assert float(x) == 13
    with pytest.raises(ArgumentError, match="given by coexec"):
        special(x, chunk=1)


def test_every_plain_value_passes() -> None:
    @cx.kernel(x=cx.update)
    def take(x, value):
        x += 1

    x = cx.zeros(1)
    values: list[Any] = [
        1,
        1.5,
        True,
        None,
        "text",
        b"bytes",
        (1, (2.0, "x")),
        np.float16(1),
        np.datetime64("2020-01-01"),
        ...,
    ]
    values += [slice(1, 2), range(3), np.dtype(float), float, frozenset({1}), 1j]
    for value in values:
        take(x, value)
    assert float(x) == len(values)


def test_a_zero_d_array_passed_as_a_scalar_is_a_dependency() -> None:
    @cx.kernel(s=cx.write)
    def late(s):
        pass_gate("late")
        s[...] = 5

    @cx.kernel(split=0, x=cx.update)
    def scale(x, s, t):
        assert isinstance(s, np.floating)
        x *= s
        x += t

    s, x = cx.zeros(()), cx.ones(300_000)
    with closed_gate("late"):
        late(s)
        first = scale(x, s, s)
        second = divided(scale)(x, s, 1.0)
        s[...] = -1  # after both, in program order
        assert not first.done() and not second.done()
    assert np.unique(np.asarray(x)).tolist() == [51.0]
    assert float(s) == -1


def test_globals_and_closures_are_copied_at_the_call() -> None:
    global FACTOR
    step = 10

    @cx.kernel(x=cx.update)
    def outside(x):
        pass_gate("outside")
        x += FACTOR * step

    x = cx.zeros(1)
    with closed_gate("outside"):
        outside(x)
        FACTOR, step = 4, 20
        outside(x)
        FACTOR, step = 1000, 1000
    FACTOR = 3
    assert float(x) == 3 * 10 + 4 * 20


def test_mutable_values_from_outside_are_refused() -> None:
    @cx.kernel(x=cx.update)
    def table(x):
        x += TABLE[0]

    with pytest.raises(ArgumentError, match=r"takes 'TABLE' \(list\) from outside.*pass it as an argument"):
        table(cx.zeros(1))
    weights = np.ones(3)

    @cx.kernel(x=cx.update)
    def closure(x):
        x += weights[0]

    with pytest.raises(ArgumentError, match="'weights'"):
        closure(cx.zeros(1))
    mine = cx.zeros(3)

    @cx.kernel(x=cx.update)
    def coexec_array(x):
        x += mine[0]

    with pytest.raises(ArgumentError, match="'mine'"):
        coexec_array(cx.zeros(1))


def test_functions_and_modules_from_outside_are_fine() -> None:
    def helper(x):
        return np.sqrt(x) + 1

    @cx.kernel(x=cx.update)
    def calls(x):
        x[...] = helper(x)

    x = cx.full(2, 9.0)
    calls(x)
    assert np.asarray(x).tolist() == [4, 4]


def test_inputs_are_read_only_in_the_body() -> None:
    @cx.kernel(x=cx.read, y=cx.write)
    def sneaky(x, y):
        x += 1

    with pytest.raises(ValueError, match="read-only"):
        sneaky(cx.zeros(3), cx.zeros(3)).result()
