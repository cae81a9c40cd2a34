"""Compiled bodies in a runtime: one more variant of a kernel, there once it is known to be right."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import coexec as cx
from coexec.bench.measure import current
from coexec.compile import Declined, build, serving
from coexec.compile.compiled import compile_body
from coexec.compile.forms import Forms
from coexec.compile.refused import Untraceable

pytest.importorskip("llvmlite")
rng = np.random.default_rng(0)
CALLS = 4  # NumPy; compiled and compared; compiled, and once more
SETTLED = 12  # calls after which the planner has seen each variant more than once: a first run may be cold


def runtime(**options: Any) -> cx.Runtime:
    given = {"devices": "cpu:0", "store": "off", "compile_bodies": "always", "inline": False, **options}
    return cx.Runtime(**given)


def heat_kernel() -> cx.Kernel:
    @cx.kernel(split=0, u=cx.read(cx.halo(1, border="edge")), out=cx.write)
    def heat(u, out, k):
        new = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
        for _ in range(20):  # the same number; so that NumPy is slower by far, however busy the machine is
            new = new * 0.5 + new * 0.5
        out[...] = new

    return heat


def heat_wanted(u: Any, k: float) -> Any:
    out = np.empty_like(u)
    heat_kernel().function(np.pad(u, 1, mode="edge"), out, k)
    return out


def compiled_runs(kernel: cx.Kernel) -> list[str]:
    """Return the answers for each signature of a kernel's calls."""
    return [state.answer for state in serving.reasons(kernel)]


def variants(kernel: cx.Kernel) -> dict[str, str]:
    return {variant.name: variant.off for variant in kernel.variants}


@pytest.mark.parametrize("devices", ["cpu:0", "cpu:0,cpu:1"])
def test_a_body_becomes_one_more_variant_with_numpys_bits_and_plans_name_it(devices: str) -> None:
    heat = heat_kernel()
    u = rng.random((300, 200))
    with runtime(devices=devices) as rt:
        given, out = cx.array(u), cx.zeros(u.shape)
        for _ in range(SETTLED):
            heat(given, out, 0.2)
            np.testing.assert_array_equal(np.asarray(out), heat_wanted(u, 0.2))
        plan = heat.plan(given, out, 0.2)
        rt.wait()
    assert variants(heat) == {"python": "", "compiled": ""}
    if devices == "cpu:0":  # else cuts and so what was measured depend on how busy the cores are
        assert {part.variant for part in plan.parts} == {"compiled"}
        assert "as 'compiled'" in plan.explain()


def test_it_can_be_turned_off_and_the_environment_can_too(monkeypatch: pytest.MonkeyPatch) -> None:
    heat, u = heat_kernel(), rng.random((50, 50))
    monkeypatch.setenv("COEXEC_COMPILE_BODIES", "off")
    for options in ({"compile_bodies": "off"}, {"compile_bodies": None}):
        with runtime(**options):
            given, out = cx.array(u), cx.zeros(u.shape)
            for _ in range(CALLS):
                heat(given, out, 0.2)
            np.testing.assert_array_equal(np.asarray(out), heat_wanted(u, 0.2))
    assert variants(heat) == {"python": ""} and heat.compiled is None


def test_what_was_compiled_serves_the_next_runtime_but_not_one_that_is_told_not_to() -> None:
    heat, u = heat_kernel(), rng.random((50, 60))
    with runtime():
        given, out = cx.array(u), cx.zeros(u.shape)
        for _ in range(CALLS):
            heat(given, out, 0.2)
    for mode, variant in (("auto", "compiled"), ("off", "python")):
        with runtime(compile_bodies=mode):
            given, out = cx.array(u), cx.zeros(u.shape)
            for _ in range(SETTLED):
                heat(given, out, 0.2).wait()
            assert heat.plan(given, out, 0.2).parts[0].variant == variant
            np.testing.assert_array_equal(np.asarray(out), heat_wanted(u, 0.2))


def test_it_is_compiled_aside_and_the_thread_ends_with_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PATIENCE", 0.0)
    may_go, asked = threading.Event(), threading.Event()
    threads: list[str] = []

    def make(*args: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        asked.set()
        may_go.wait()
        return compile_body(*args, **options)

    monkeypatch.setattr("coexec.compile.forms.compile_body", make)
    monkeypatch.setattr(serving, "Forms", lambda *a, **k: Forms(*a, make=make, **k))
    heat, u = heat_kernel(), rng.random((40, 30))
    with runtime(compile_bodies="auto") as rt:
        given, out = cx.array(u), cx.zeros(u.shape)
        heat(given, out, 0.2).wait()
        asked.wait()
        heat(given, out, 0.2).wait()
        assert variants(heat) == {"python": ""}  # it is invisible so far
        np.testing.assert_array_equal(np.asarray(out), heat_wanted(u, 0.2))
        may_go.set()
        rt._driver.parts.bodies.compiler.wait()
        heat(given, out, 0.2).wait()
        assert variants(heat) == {"python": "", "compiled": ""}
    assert threads == ["coexec-compile"]
    assert not any(thread.name == "coexec-compile" for thread in threading.enumerate())


def test_what_the_end_of_a_runtime_left_undone_is_done_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    heat, u = heat_kernel(), rng.random((40, 30))
    monkeypatch.setattr(serving, "PATIENCE", 0.0)
    monkeypatch.setattr("coexec.compile.compiler.Compiler.submit", lambda self, job: not job.drop())
    with runtime(compile_bodies="auto"):
        heat(cx.array(u), cx.zeros(u.shape), 0.2).wait()
    monkeypatch.undo()
    assert compiled_runs(heat) == ["not worth it yet"]
    with runtime():
        for _ in range(CALLS):
            heat(cx.array(u), cx.zeros(u.shape), 0.2).wait()
    assert compiled_runs(heat) == ["compiled"]


def test_a_refusal_is_told_once_in_the_variants_and_in_the_trace(tmp_path: Path) -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def middle(x, y):
        y[...] = np.median(x, axis=1, keepdims=True)

    x = rng.random((20, 31))
    with runtime(trace=tmp_path / "run.json"):
        y = cx.zeros(x.shape)
        for _ in range(CALLS):
            middle(cx.array(x), y)
        np.testing.assert_array_equal(np.asarray(y), np.broadcast_to(np.median(x, axis=1, keepdims=True), x.shape))
        assert "variant 'compiled' is off: np.median" in middle.plan(cx.array(x), y).explain()
    assert variants(middle) == {"python": "", "compiled": "np.median is not compiled"}
    assert "off: np.median" in repr(middle.variants[-1])
    rows = json.loads((tmp_path / "run.json").read_text())
    notes = [row["text"] for row in rows if row["row"] == "note"]
    assert [note for note in notes if "compiled" in note] == [
        "kernel 'middle': variant 'compiled' is off: np.median is not compiled"
    ]


def test_a_form_that_differs_is_never_used_again_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(body: Any, arguments: Any, *, writes: Any, returns: Any = ()) -> Any:
        del returns

        def other(u, out, k):
            out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1])

        return compile_body(other, arguments, writes=writes)

    monkeypatch.setattr(serving, "Forms", lambda *a, **k: Forms(*a, make=wrong, **k))
    heat, u = heat_kernel(), rng.random((40, 30))
    with runtime() as rt:
        given, out = cx.array(u), cx.zeros(u.shape)
        for _ in range(CALLS):
            heat(given, out, 0.2)
            np.testing.assert_array_equal(np.asarray(out), heat_wanted(u, 0.2))
        assert heat.plan(given, out, 0.2).parts[0].variant == "python"
        rt.wait()
    assert "out differs in 1200 of 1200 elements" in variants(heat)["compiled"]


def test_debug_compares_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    original = Forms._try

    def counted(self: Any, *args: Any) -> Any:
        compared.append("")
        return original(self, *args)

    monkeypatch.setattr(Forms, "_try", counted)
    heat, u = heat_kernel(), rng.random((40, 30))
    with runtime(debug=True):
        given, out = cx.array(u), cx.zeros(u.shape)
        for _ in range(CALLS):
            heat(given, out, 0.2)
        np.testing.assert_array_equal(np.asarray(out), heat_wanted(u, 0.2))
    assert len(compared) == CALLS - 1


def test_without_llvmlite_the_numpy_body_serves_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise Untraceable("llvmlite is not installed (pip install 'coexec[compile]')")

    monkeypatch.setattr("coexec.compile.compiled.load_llvm", missing)
    heat, u = heat_kernel(), rng.random((40, 30))
    with runtime():
        given, out = cx.array(u), cx.zeros(u.shape)
        for _ in range(CALLS):
            heat(given, out, 0.2)
        np.testing.assert_array_equal(np.asarray(out), heat_wanted(u, 0.2))
    assert variants(heat)["compiled"].startswith("llvmlite is not installed")


def test_an_untested_llvm_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "TESTED", range(2, 3))
    build.load_llvm.cache_clear()
    try:
        answer = compile_body(heat_kernel().function, {}, writes={"out"})
    finally:
        build.load_llvm.cache_clear()
    assert isinstance(answer, Declined) and "are known to work" in answer.reason


def test_what_np_errstate_says_holds_for_compiled_bodies() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def inverse(x, y):
        y[...] = 1.0 / x + x

    x = np.arange(100.0)
    with runtime():
        given, y = cx.array(x[1:]), cx.zeros(99)
        for _ in range(CALLS):
            inverse(given, y).wait()
        assert compiled_runs(inverse) == ["compiled"]
        given, y = cx.array(x), cx.zeros(100)
        with np.errstate(divide="ignore"):
            inverse(given, y)
            np.testing.assert_array_equal(np.asarray(y), 1.0 / x + x)
        with np.errstate(divide="raise"):
            task = inverse(given, y)
        assert isinstance(task.exception(), FloatingPointError)
        with pytest.raises(FloatingPointError):
            np.asarray(y)


def test_outside_values_are_those_of_the_call() -> None:
    scale = 1.0

    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def scaled(x, y):
        y[...] = x * scale + 1

    x = rng.random(500)
    with runtime():
        for scale in [1.0, 2.0, 3.0] * 4 + [float(n) for n in range(20)]:
            y = cx.zeros(x.shape)
            scaled(cx.array(x), y)
            np.testing.assert_array_equal(np.asarray(y), x * scale + 1)
    assert len(scaled.compiled._forms) == serving.OUTSIDE


def test_arguments_that_overlap_never_reach_a_compiled_form() -> None:
    @cx.kernel(x=cx.read, y=cx.update)
    def shifted(x, y):
        y += 2 * x

    with runtime(diagnostics="off"):
        for _ in range(CALLS):
            a, plain = cx.array(np.arange(60.0)), np.arange(60.0)
            shifted(a[:40], a[10:50])
            shifted.function(plain[:40], plain[10:50])
            np.testing.assert_array_equal(np.asarray(a), plain)
            b, c = cx.array(np.arange(40.0)), cx.ones(40)
            shifted(b, c)
            np.testing.assert_array_equal(np.asarray(c), 1 + 2 * np.arange(40.0))


def test_results_chunks_keywords_namespaces_and_reductions_are_compiled_too() -> None:
    @cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
    def returning(x, *, power):
        return x**2 + power

    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def placed(x, y, chunk, xp):
        y[...] = xp.sqrt(x) + chunk.lo[0]
        y[:, 0] = chunk.hi[0] - chunk.lo[0]

    @cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
    def summed(x, total):
        total += (x * 2).sum(axis=0)

    x = rng.random((300, 7))
    with runtime(devices="cpu:0,cpu:1"):
        given = cx.array(x)
        for _ in range(CALLS):
            np.testing.assert_array_equal(np.asarray(returning(given, power=3)), x**2 + 3)
            y, total = cx.zeros(x.shape), cx.zeros(7)
            placed(given, y)
            got = np.asarray(y)
            summed(given, total)
            np.testing.assert_allclose(np.asarray(total), 2 * x.sum(axis=0))
            assert got[0, 0] in (300, 150) or got[0, 0] > 0
    for kernel in (returning, placed, summed):
        assert compiled_runs(kernel) == ["compiled"], kernel.name


def test_a_chain_of_operations_is_compiled_as_one_body() -> None:
    x, y = rng.random((200, 300)), rng.random((200, 300)).astype(np.float32)
    before = set(serving.compiled_bodies())
    with runtime():
        a, b = cx.array(x), cx.array(y)
        for _ in range(50):  # a busy machine may end a chain early, and then it is another one
            z = np.exp(a) * b + 1 - a[:1]
            np.testing.assert_array_equal(np.asarray(z), np.exp(x) * y + 1 - x[:1])
            made = [body for body in serving.compiled_bodies() if body not in before]
            if any(state.answer == "compiled" for body in made for state in body.states()):
                break
        assert "compiled" in [state.answer for body in made for state in body.states()]
        assert all("+" in body.kernel_name for body in made)


def test_a_saved_plan_is_followed_where_nothing_is_compiled_yet(tmp_path: Path) -> None:
    heat, u = heat_kernel(), rng.random((40, 30))
    with runtime():
        given, out = cx.array(u), cx.zeros(u.shape)
        for _ in range(CALLS):
            heat(given, out, 0.2).wait()
        plan = heat.plan(given, out, 0.2)
        plan = replace(plan, parts=tuple(replace(part, variant="compiled") for part in plan.parts))
        plan.save(tmp_path / "plan.json")
    again = heat_kernel()
    with runtime(plan=tmp_path / "plan.json", compile_bodies="off"):
        given, out = cx.array(u), cx.zeros(u.shape)
        again(given, out, 0.2)
        np.testing.assert_array_equal(np.asarray(out), heat_wanted(u, 0.2))


def test_reproducible_runs_stay_with_the_numpy_body() -> None:
    heat, u = heat_kernel(), rng.random((40, 30))
    with runtime(reproducible=True):
        given, out = cx.array(u), cx.zeros(u.shape)
        for _ in range(CALLS):
            heat(given, out, 0.2).wait()
        assert heat.plan(given, out, 0.2).parts[0].variant == "python"
        np.testing.assert_array_equal(np.asarray(out), heat_wanted(u, 0.2))
    assert heat.compiled is None


def test_a_simulation_predicts_the_compiled_form_if_that_was_measured(tmp_path: Path) -> None:
    heat, u = heat_kernel(), rng.random((400, 300))
    store = tmp_path / "store.sqlite"
    with runtime(store=store) as rt:
        given, out = cx.array(u), cx.zeros(u.shape)
        for _ in range(SETTLED):
            heat(given, out, 0.2).wait()
        platform = rt.platform
    for mode, variant in (("auto", "compiled"), ("off", "python")):
        with cx.Runtime(platform=platform, store=store, compile_bodies=mode):
            given, out = cx.array(u), cx.zeros(u.shape)
            assert heat_kernel().plan(given, out, 0.2).parts[0].variant == variant


def test_whether_a_body_is_one_to_compile_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @cx.kernel(x=cx.read, y=cx.update)
    def nothing(x, y):
        """Compute nothing."""

    look = Mock(wraps=serving.compilable)
    monkeypatch.setattr(serving, "compilable", look)
    with runtime():
        x, y = cx.zeros(8), cx.zeros(8)
        for _ in range(5):
            nothing(x, y).result()
    look.assert_called_once_with(nothing)


def test_what_one_runtime_compiled_is_told_to_the_planners_of_all() -> None:
    """Or a step that another one repeats would go on with the NumPy body for good."""
    heat, u = heat_kernel(), rng.random((300, 200))
    with runtime() as first, runtime() as second:
        planning: list[Any] = [r._driver.scheduler.plan.planner for r in (first, second)]
        marks = [planner._candidates.mark for planner in planning]
        with current(first):
            for _ in range(CALLS):
                heat(cx.array(u), cx.empty(u.shape), 0.1)
            first.wait()
        assert variants(heat) == {"python": "", "compiled": ""}
        after = [planner._candidates.mark for planner in planning]
    assert all(mark is not before for mark, before in zip(after, marks, strict=True))
