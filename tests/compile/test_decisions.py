"""What decides in a body decides at every call: flags, types, text, defaults; and tracing is bounded."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from coexec.compile import Forms, compile_body, cuda_form, opencl_form
from coexec.compile.refused import Declined

pytest.importorskip("llvmlite")


class Settings(NamedTuple):
    factor: float


settings = Settings(2.0)


def agree(
    body: Callable[..., Any], calls: list[tuple[Any, ...]], change: Callable[[int], None] = lambda _: None
) -> str:
    """Check each call against the body itself; return why the body is not compiled, or nothing."""
    forms = Forms(body, writes={"out"})
    for number, (x, *more) in enumerate(calls):
        change(number)
        wanted, got = np.zeros_like(x), np.zeros_like(x)
        body(x, wanted, *more)
        forms(x, got, *more)
        np.testing.assert_array_equal(got, wanted, f"call {number}")
    return forms.refusal


ones = np.ones(64)


def test_a_flag_that_is_compared_by_identity_decides_at_every_call() -> None:
    def body(x, out, flag):
        if flag is True:
            out[...] = 2 * x
        else:
            out[...] = x

    assert agree(body, [(ones, False), (ones, False), (ones, False), (ones, True), (ones, True), (ones, True)]) == ""


def test_other_identities_are_refused() -> None:
    def body(x, out, a, b):
        out[...] = x if a is b else 2 * x

    assert "(`is`)" in agree(body, [(ones, 5, 5), (ones, 5, 5), (ones, 5, 5), (ones, 5000, int("5001"))])


@pytest.mark.parametrize("kind", ["f8", "f4", "i8"])
def test_types_are_asked_for_as_numpy_answers(kind: str) -> None:
    def body(x, out):
        small = 3 if x.dtype == int else 1e-12 if x.dtype in (int, float) else 1e-6
        out[...] = np.maximum(x, small)

    assert agree(body, [(np.full(64, k, kind),) for k in (1, 1, 1, 1e-9)]) == ""


def test_a_union_of_types_is_asked_for_as_python_answers() -> None:
    def body(x, out, k):
        out[...] = np.maximum(x, 1e-12 if isinstance(k, int | float) else 1e-6)

    assert agree(body, [(np.full(64, k), 1) for k in (1, 1, 1, 1e-9)]) == ""


def test_what_a_number_looks_like_decides_at_every_call() -> None:
    def body(x, out, k):
        out[...] = x if f"{k!r}" == "1" else 2 * x

    assert agree(body, [(ones, 1), (ones, 1), (ones, 1), (ones, 2), (ones, 2)]) == ""


def test_defaults_of_helpers_are_values_from_outside() -> None:
    def scaled(x, by=2.0, *, more=1.0):
        return x * by + more

    def body(x, out):
        out[...] = scaled(x)

    def change(number: int) -> None:
        if number == 3:
            scaled.__defaults__ = (3.0,)
        if number == 5:
            assert scaled.__kwdefaults__ is not None
            scaled.__kwdefaults__["more"] = 5.0

    assert agree(body, [(ones,)] * 8, change) == ""


def test_a_helper_whose_code_is_replaced_is_traced_anew() -> None:
    def doubled(x):
        return 2 * x

    def tripled(x):
        return 3 * x

    def body(x, out):
        out[...] = doubled(x)

    def change(number: int) -> None:
        if number == 3:  # as tools do that load modules anew
            doubled.__code__ = tripled.__code__

    assert agree(body, [(ones,)] * 6, change) == ""


def test_a_body_whose_code_is_replaced_is_traced_anew() -> None:
    def body(x, out):
        out[...] = 2 * x

    def other(x, out):
        out[...] = 3 * x

    def change(number: int) -> None:
        if number == 3:
            body.__code__ = other.__code__

    assert agree(body, [(ones,)] * 6, change) == ""


def test_a_name_that_hides_a_builtin_is_seen() -> None:
    space: dict[str, Any] = {}
    exec("def body(x, out):\n    out[...] = x * abs(-2)\n", space)

    def change(number: int) -> None:
        if number == 3:
            space["abs"] = other

    def other(value: float) -> float:
        return value * 3

    assert agree(space["body"], [(ones,)] * 6, change) == ""


def test_whether_a_chunk_is_the_whole_decides_at_every_call() -> None:
    class Part(NamedTuple):
        whole: bool
        lo: tuple[int, ...] = (0,)
        hi: tuple[int, ...] = (64,)
        shape: tuple[int, ...] = (64,)

    def body(x, out, chunk):
        out[...] = x if chunk.whole is True else 2 * x

    assert agree(body, [(ones, Part(k)) for k in (False, False, False, True, True)]) == ""


def test_parameters_may_have_any_name_but_those_of_expressions() -> None:
    def body(error, address, scratch, number):
        address[...] = np.exp(error) * number + scratch

    given = {"error": ones, "address": np.zeros(64), "scratch": ones, "number": 2.0}
    form = compile_body(body, given, writes={"address"})
    assert not isinstance(form, Declined)
    assert form(*given.values()) == "" and (given["address"] == np.exp(1.0) * 2 + 1).all()
    assert form(ones, given["address"], ones, 3) == "number is no float"

    def clash(x, x__0, out):
        out[...] = x[:x__0]

    answer = compile_body(clash, {"x": ones, "x__0": 3, "out": np.zeros(3)}, writes={"out"})
    assert isinstance(answer, Declined) and "has the name of something else" in answer.reason


def deep(x, out):
    y = x
    for _ in range(400):
        y = y * 0.5 + x
    out[...] = y


def test_values_that_are_nested_too_deeply_are_refused_by_every_writer() -> None:
    given = {"x": ones, "out": np.zeros(64)}
    for make in (compile_body, opencl_form, cuda_form):
        answer: Any = make(deep, given, writes={"out"})
        assert isinstance(answer, Declined) and "nested too deeply" in answer.reason


def test_named_tuples_from_outside_and_as_parameters_are_their_fields() -> None:
    def body(x, out, more):
        out[...] = x * settings.factor + more.factor

    assert agree(body, [(ones, Settings(k)) for k in (1.0, 1.0, 1.0, 2.0, 2.0)]) == ""


def test_tuples_of_what_may_change_are_refused() -> None:
    def body(x, out, pair):
        out[...] = x * pair[0][0]

    given: list[float] = [1.0]

    def change(number: int) -> None:
        given[0] = float(number)

    assert "of what may change" in agree(body, [(ones, (given,))] * 5, change)


def test_integer_powers_fail_where_numpy_fails() -> None:
    def body(x, out, k):
        out[...] = x**k

    numbers = np.arange(1, 65)
    assert agree(body, [(numbers, k) for k in (3, 3, 3, 0, 2)]) == ""
    forms = Forms(body, writes={"out"})
    for k in (3, 3, 3):
        forms(numbers, np.zeros_like(numbers), k)
    with pytest.raises(ValueError, match="negative integer powers"):
        forms(numbers, np.zeros_like(numbers), -1)

    def by_elements(x, out, k):
        out[...] = x**k

    exponents = np.full(64, 2)
    assert "exponent is negative" in agree(by_elements, [(numbers, exponents)] * 3)


def test_numbers_that_grow_with_each_step_are_refused_before_they_fill_memory() -> None:
    def newton(x, out, k):
        for _ in range(200):
            k = k * (2 - k)
        out[...] = x * k

    assert "too many steps" in agree(newton, [(ones, 0.5)] * 3)


def test_values_that_grow_with_each_step_are_refused_before_they_fill_memory() -> None:
    def adds(x, out):
        y = x
        for _ in range(10_000_000):
            y = y + x
        out[...] = y

    answer = compile_body(adds, {"x": ones, "out": np.zeros(64)}, writes={"out"})
    assert isinstance(answer, Declined) and "a Python loop" in answer.reason


def test_a_name_without_a_value_is_a_reason_and_numpys_error_stays() -> None:
    def body(x, out):
        out[...] = x * later  # noqa: F821 - what is tested

    answer = compile_body(body, {"x": ones, "out": np.zeros(64)}, writes={"out"})
    assert isinstance(answer, Declined) and "later, which has no value yet" in answer.reason
    later = 2.0
    del later


def test_tracing_leaves_the_filters_of_warnings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(x, out):
        out[...] = x * math.pi

    def changed(*_: Any, **__: Any) -> None:
        raise AssertionError("filters belong to all threads")

    monkeypatch.setattr(warnings, "catch_warnings", changed)
    monkeypatch.setattr(warnings, "simplefilter", changed)
    assert not isinstance(compile_body(body, {"x": ones, "out": np.zeros(64)}, writes={"out"}), Declined)
