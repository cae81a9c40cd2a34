"""A body in all its forms: NumPy's serves first, compiled ones only after they gave the same."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, Compiler, Declined, Forms, compile_body
from coexec.compile.verify import compare

rng = np.random.default_rng(0)


def axpy(a, x, y):
    y += a * x


def refused(x, y):
    y[...] = np.sort(x)


class Wrong:
    """A compiled form that does something else."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __call__(self, a: float, x: Any, y: Any) -> str:
        y += a * x
        y[-1] += 1e-300 if y[-1] == 0 else np.spacing(y[-1])
        return ""

    def fits(self, *arguments: Any) -> str:
        return ""


class Watched:
    """Counts the calls of a form."""

    def __init__(self, form: Compiled) -> None:
        self._form, self.calls, self.fits = form, 0, form.fits

    def __call__(self, *arguments: Any) -> str:
        self.calls += 1
        return self._form(*arguments)


def call(forms: Forms, n: int = 100, a: float = 2.0) -> None:
    x, y = rng.random(n), rng.random(n)
    wanted = y + a * x
    forms(a, x, y)
    np.testing.assert_array_equal(y, wanted)


def watched(made: list[Watched]) -> Any:
    def make(*args: Any, **options: Any) -> Any:
        form = compile_body(*args, **options)
        assert isinstance(form, Compiled)
        made.append(Watched(form))
        return made[-1]

    return make


def test_a_form_is_compared_with_numpy_once_per_size_class_and_then_used_alone() -> None:
    pytest.importorskip("llvmlite")
    made: list[Watched] = []
    ran: list[int] = []

    def counted(a, x, y):
        ran.append(1)
        axpy(a, x, y)

    forms = Forms(axpy, writes={"y"}, make=watched(made))
    call(forms)  # compiles
    forms.body = counted
    call(forms)  # compares
    assert (len(made), made[0].calls, len(ran)) == (1, 1, 1)
    for n in (100, 101, 127):
        call(forms, n)
    assert (made[0].calls, len(ran)) == (4, 1)
    call(forms, 128)  # another power of two
    assert (made[0].calls, len(ran)) == (5, 2)
    assert [state.answer for state in forms.states()] == ["compiled"]
    assert forms.states()[0].signature == "a: float, x: float64[1], y: float64[1]"


def test_a_form_that_differs_is_never_used_and_says_where() -> None:
    forms = Forms(axpy, writes={"y"}, make=lambda body, arguments, writes: Wrong(body))  # type: ignore[arg-type,return-value]
    for _ in range(4):
        call(forms)
    assert "y differs in 1 of 100 elements, first at (99,)" in forms.off
    assert forms.states()[0].answer.startswith("off: ")


def test_a_refusal_is_asked_for_once_and_a_fault_of_the_compiler_is_one() -> None:
    asked: list[int] = []

    def make(*_: Any, **__: Any) -> Declined:
        asked.append(1)
        raise RuntimeError("no more registers")

    forms = Forms(axpy, writes={"y"}, make=make)
    for _ in range(3):
        call(forms)
    assert len(asked) == 1
    assert forms.states()[0].answer == "the compiler failed: RuntimeError: no more registers"


def test_numpy_serves_while_another_thread_compiles() -> None:
    may_go = threading.Event()
    made: list[Watched] = []

    def make(*args: Any, **options: Any) -> Any:
        may_go.wait()
        return watched(made)(*args, **options)

    pytest.importorskip("llvmlite")
    with Compiler() as compiler:
        forms = Forms(axpy, writes={"y"}, compiler=compiler, make=make)
        call(forms)
        assert forms.states()[0].answer == "compiling"
        call(forms)
        may_go.set()
        compiler.wait()
        assert forms.states()[0].answer == "compiled, not compared yet"
        call(forms)
        call(forms)
        assert made[0].calls == 2
    other = Forms(axpy, writes={"y"}, compiler=compiler)
    call(other)
    assert other.states()[0].answer == "not worth it yet"  # nobody compiles any more
    assert not any(thread.name == "coexec-compile" for thread in threading.enumerate())


def test_debugging_compares_every_call() -> None:
    pytest.importorskip("llvmlite")
    forms = Forms(axpy, writes={"y"}, debug=True)
    for _ in range(4):
        call(forms)
    assert forms.off == ""


def test_shared_memory_is_numpys_business() -> None:
    pytest.importorskip("llvmlite")
    forms = Forms(axpy, writes={"y"})
    for _ in range(4):
        x = np.arange(50.0)
        wanted = x.copy()
        axpy(2.0, wanted[:40], wanted[10:])
        forms(2.0, x[:40], x[10:])
        np.testing.assert_array_equal(x, wanted)
        call(forms, 40)
    assert forms.off == ""


def test_a_refused_body_is_run_by_numpy() -> None:
    forms = Forms(refused, writes={"y"})
    x, y = rng.random(30), np.zeros(30)
    forms(x, y)
    forms(x, y)
    np.testing.assert_array_equal(y, np.sort(x))
    assert "np.sort" in forms.states()[0].answer or "llvmlite" in forms.states()[0].answer


def test_bits_are_compared_and_nans_are_alike() -> None:
    assert compare("x", np.array([np.nan, 1.0]), np.array([-np.nan, 1.0])) == ""
    assert compare("x", np.array([0.0]), np.array([-0.0])) != ""
    assert (
        compare("x", np.array(1), np.array(2))
        == "x differs in 1 of 1 elements, first at (): np.int64(2) instead of np.int64(1)"
    )
