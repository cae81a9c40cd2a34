"""What is traced and what is refused, with which reason; nothing runs that could do harm."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coexec.compile.refused import Untraceable
from coexec.compile.trace import trace

FACTOR = 2.0
settings = SimpleNamespace(factor=2.0)
calls: list[int] = []


def helper(x):
    t = np.empty_like(x)
    t[...] = x * FACTOR
    return t


def reason(body: Any, **arguments: Any) -> str:
    given = {"x": np.ones(20), "out": np.ones(20)} | arguments
    with pytest.raises(Untraceable) as caught:
        trace(body, given, {"out"})
    return str(caught.value)


def prints(x, out):
    print("here")  # noqa: T201 - what is tested
    out[...] = x


def counts(x, out):
    global FACTOR
    FACTOR = 3.0
    out[...] = x


def appends(x, out):
    calls.append(1)
    out[...] = x


def reads_an_object(x, out):
    out[...] = x * settings.factor


def looks_at_the_clock(x, out):
    out[...] = x * time.time()


def imports(x, out):
    import random

    out[...] = x * random.random()


def catches(x, out):
    try:
        out[...] = x
    except ValueError:
        out[...] = 0


def branches(x, out):
    out[...] = 1 if x[0] > 0 else 2


def draws(x, out):
    out[...] = np.random.random(len(x))  # noqa: NPY002 - what is tested


def multiplies(x, out):
    out[...] = np.outer(x, x) @ x


def writes_its_input(x, out):
    x[...] = 0
    out[...] = x


def returns(x, out):
    out[...] = x
    return out


def loops_over_elements(x, out):
    for i in range(len(x)):
        for j in range(len(x)):
            out[i] += x[j]


def raises(x, out):
    out[...] = x / (1 // 0)


def sorts(x, out):
    out[...] = np.sort(x)


def unset(x, out):
    t = np.empty_like(x)
    out[...] = t + x


def does_nothing(x, out):
    x + 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (prints, "it uses print"),
        (counts, "it changes FACTOR"),
        (appends, "it uses calls, a list from outside"),
        (reads_an_object, "it uses settings, a SimpleNamespace from outside"),
        (looks_at_the_clock, "it uses the module time"),
        (imports, "it imports a module"),
        (catches, "it handles exceptions"),
        (branches, "it branches by the values of an array"),
        (draws, "np.random is not compiled"),
        (multiplies, "np.outer"),
        (writes_its_input, "it writes into 'x', which is only read"),
        (returns, "it returns a value"),
        (raises, "it raises ZeroDivisionError"),
        (sorts, "np.sort is not compiled"),
        (unset, "it reads a temporary that it has not written"),
        (does_nothing, "it writes nothing"),
        (math.sin, "it is no plain Python function"),
    ],
)
def test_a_body_that_cannot_be_traced_says_why(body: Any, words: str) -> None:
    assert words in reason(body)
    assert FACTOR == 2.0 and calls == []


def test_a_loop_over_elements_is_refused_before_it_takes_long() -> None:
    assert "a Python loop over elements?" in reason(loops_over_elements, x=np.ones(5000), out=np.ones(5000))


@pytest.mark.parametrize("dtype", ["f2", "c16", "O", "M8[s]", ">f8", "U3"])
def test_types_without_compiled_forms_are_named(dtype: str) -> None:
    def body(x, out):
        out[...] = x

    assert "are not compiled" in reason(body, x=np.zeros(20, dtype))


def test_a_python_integer_that_does_not_fit_is_refused_as_numpy_refuses_it() -> None:
    def body(x, out):
        out[...] = x + 300

    assert "does not fit into uint8" in reason(body, x=np.zeros(20, "u1"))


def test_helpers_and_constants_are_looked_through_and_remembered() -> None:
    def body(x, out):
        out[...] = helper(x) + math.pi

    traced = trace(body, {"x": np.ones(20), "out": np.ones(20)}, {"out"})
    assert {name for _, name, _ in traced.captured} == {"FACTOR", "np", "math", "helper", "__code__"}
    assert len(traced.stores) == 1


def test_what_a_body_decides_by_sizes_and_numbers_becomes_a_guard() -> None:
    def body(x, out, limit, mode):
        if limit > 1 and mode == "fast" and len(x) > 10:
            out[...] = x[: len(out)]
        else:
            out[...] = 0

    given = {"x": np.ones(20), "out": np.ones(20), "limit": 1.5, "mode": "fast"}
    guards = trace(body, given, {"out"}).guards
    assert guards.answers["mode"] == "fast"
    assert guards.least["x__0"] == 11
    assert any("limit" in text for text in guards.answers)


def test_extents_stay_symbols_and_short_last_axes_become_constants() -> None:
    def body(x, out):
        out[...] = x[1:-1].sum(axis=1)

    traced = trace(body, {"x": np.ones((32, 3)), "out": np.ones(30)}, {"out"})
    assert traced.guards.answers["x__1"] == 3
    assert traced.guards.least["x__0"] == 3
    assert "x__0" not in traced.guards.answers


def test_types_are_asked_for_as_the_body_would_see_them() -> None:
    def body(x, out, k):
        if isinstance(x, np.ndarray) and isinstance(k, (int, np.integer)) and not isinstance(k, float):
            out[...] = x.astype(int) + np.zeros(x.shape, dtype=float) + float(k)

    traced = trace(body, {"x": np.ones(20), "out": np.ones(20), "k": 3}, {"out"})
    assert len(traced.stores) == 1

    def asks(x, out, k):
        out[...] = x if np.isscalar(k) else 0

    assert reason(asks, k=3) == "np.isscalar is not compiled"
