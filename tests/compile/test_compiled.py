"""Compiled bodies as they are called: guards, memory that is shared, flags, threads, and what is written in parts."""

from __future__ import annotations

import threading
import warnings
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, Declined, build, compile_body
from coexec.compile.build import load_llvm
from coexec.geometry import Box
from coexec.program.chunk import ChunkInfo
from tests.compile.random_bodies import bits

pytest.importorskip("llvmlite")
rng = np.random.default_rng(0)


def made(body: Any, writes: tuple[str, ...] = ("out",), **arguments: Any) -> Compiled:
    found = compile_body(body, arguments, writes=writes)
    assert isinstance(found, Compiled), found
    return found


def check(form: Compiled, body: Any, **arguments: Any) -> None:
    """Raise unless the form runs and has NumPy's bits."""
    wanted = {name: v.copy() if isinstance(v, np.ndarray) else v for name, v in arguments.items()}
    with np.errstate(all="ignore"):
        body(**wanted)
        assert form(*(arguments[name] for name in form.names)) == ""
    for name, value in wanted.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(bits(arguments[name]), bits(value), name)


def scaled(x, out, factor):
    out[...] = x * factor + 1


def arguments(n: int = 100, dtype: str = "f8") -> dict[str, Any]:
    return {"x": rng.normal(size=n).astype(dtype), "out": np.zeros(n, dtype), "factor": 0.1}


def test_one_form_serves_every_size_and_number() -> None:
    form = made(scaled, **arguments())
    for n in (1, 2, 7, 8, 9, 1000, 100_003):
        check(form, scaled, **arguments(n) | {"factor": n * 0.7})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"x": np.ones(100, "f4")}, "type of x"),
        ({"x": np.ones((100, 1))}, "type of x"),
        ({"x": [1.0] * 100}, "type of x"),
        ({"x": np.ones(200)[::2]}, "not neighbours"),
        ({"x": np.ones(99)}, "it decides by"),
        ({"factor": 2}, "factor is no float"),
        ({"factor": np.float64(2)}, "factor is no float"),
        ({"x": np.frombuffer(b"0" * 801, "u1")[1:].view("f8")}, "not aligned"),
        ({"x": np.ones(0), "out": np.ones(0)}, "x is empty"),
    ],
)
def test_a_call_that_does_not_fit_says_why_and_changes_nothing(changed: dict[str, Any], words: str) -> None:
    form = made(scaled, **arguments())
    given = arguments() | changed
    before = given["out"].copy()
    assert words in form(*given.values())
    np.testing.assert_array_equal(given["out"], before)


def test_shared_and_read_only_memory_is_left_to_numpy() -> None:
    form = made(scaled, **arguments())
    x = np.ones(150)
    assert "share it" in form(x[:100], x[50:], 1.0)
    assert "share it" in form(x[:100], x[:100], 1.0)
    assert form(x[:50], x[50:100], 1.0) == ""
    frozen = np.ones(100)
    frozen.flags.writeable = False
    assert form(np.ones(100), frozen, 1.0) == "memory: out is read-only"


def test_values_from_outside_that_change_are_noticed() -> None:
    space: dict[str, Any] = {"np": np, "ALPHA": 2.5}
    exec("def body(x, out):\n    out[...] = x * ALPHA\n", space)
    body = space["body"]
    assert isinstance(body, FunctionType)
    form = made(body, x=np.ones(50), out=np.ones(50))
    check(form, body, x=rng.random(50), out=np.ones(50))
    space["ALPHA"] = 3.5
    assert form(np.ones(50), np.ones(50)) == "ALPHA, which it takes from outside, has changed"


def overlapping(out):
    out[1:] = out[:-1]
    out[:-1] += out[1:]
    out[::2], out[1::2] = out[1::2], out[::2] * 2


def in_parts(x, out):
    t = np.empty(x.shape)
    t[:, 0] = x[:, 1]
    t[:, 1:] = x[:, :-1] * 2
    t[::2] += 1
    out[...] = t[::-1] + t


def old_contents(x, out):
    before = out + x
    first = out[0]
    out[...] = x
    out += before * first


def chain(x, out):
    np.multiply(x, 2, out=out)
    np.exp(out, out=out)
    out -= x[:, :1]
    out[out > 3] = -1


@pytest.mark.parametrize("body", [in_parts, old_contents, chain])
def test_order_of_writes_is_kept(body: Any) -> None:
    form = made(body, x=rng.random((30, 40)), out=rng.random((30, 40)))
    for shape in ((30, 40), (2, 17), (64, 2100)):
        check(form, body, x=rng.random(shape), out=rng.random(shape))


def test_writes_into_what_is_read_give_what_numpy_gives() -> None:
    form = made(overlapping, out=rng.random(40))
    for n in (40, 42, 1000):
        check(form, overlapping, out=rng.random(n))


def test_rows_of_larger_arrays_are_reached_by_their_strides() -> None:
    def body(x, out):
        out[...] = x[2:, 1:-1] - x[:-2, 2:] * np.exp(x[1:-1, :-2])

    form = made(body, x=np.ones((12, 22)), out=np.ones((10, 20)))
    x, out = rng.random((50, 60)), rng.random((70, 80))
    wanted = out.copy()
    body(x[3:23, 4:37], wanted[5:23, 6:37])
    assert form(x[3:23, 4:37], out[5:23, 6:37]) == ""
    np.testing.assert_array_equal(out, wanted)


def test_where_a_chunk_begins_is_a_number_of_the_call() -> None:
    def body(x, out, chunk):
        out[...] = x[chunk.at("x")] + chunk.lo[0] + 10.0 * np.arange(chunk.shape[0])

    def chunk(lo: int, hi: int) -> ChunkInfo:
        return ChunkInfo(Box((lo,), (hi,)), Box((0,), (99,)), {"x": Box((lo - 1,), (hi + 1,))})

    form = made(body, x=np.ones(22), out=np.ones(20), chunk=chunk(5, 25))
    for lo, hi in ((5, 25), (7, 40), (30, 90)):
        x, out, wanted = rng.random(hi - lo + 2), np.zeros(hi - lo), np.zeros(hi - lo)
        body(x, wanted, chunk(lo, hi))
        assert form(x, out, chunk(lo, hi)) == ""
        np.testing.assert_array_equal(out, wanted)


def divides(x, out):
    out[...] = np.where(x > 0, 1 / x, x)


def test_floating_point_flags_are_treated_as_errstate_says() -> None:
    form = made(divides, x=np.ones(100), out=np.ones(100))
    x, out = np.ones(100), np.ones(100)
    x[50], x[7] = np.nan, 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert form(x, out) == ""  # NaN alone raises no flag, as in NumPy
    x[97] = 0.0
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divides"):
        form(x, out)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        form(x, out)
    seen: list[tuple[str, int]] = []
    before = np.seterrcall(lambda words, code: seen.append((words, code)))
    with np.errstate(divide="call"):
        form(x, out)
    np.seterrcall(before)
    assert seen == [("divide by zero", 1)]
    with np.errstate(all="ignore"):
        assert form(x, out) == ""


@pytest.mark.parametrize("at", [0, 33, 63, 97])
def test_what_is_not_chosen_raises_its_flag_wherever_it_is(at: int) -> None:
    form = made(divides, x=np.ones(100), out=np.ones(100))
    x = np.ones(100)
    x[at] = 0.0
    with pytest.warns(RuntimeWarning, match="divide by zero"):  # processors with masks would compute chosen lanes alone
        form(x, np.ones(100))


MASKED = {
    "divide": "np.divide(x, y, out=out, where=y != 0)",
    "log": "np.log(y, out=out, where=y > 0)",
    "arccosh": "np.arccosh(y, out=out, where=y > 2)",
    "arctanh": "np.arctanh(x / 8, out=out, where=y != 0)",
    "power": "np.power(x, 0.5 + y, out=out, where=x >= 0)",
    "in place": "np.reciprocal(out, out=out, where=y != 0)",
}


@pytest.mark.parametrize("name", MASKED)
def test_what_where_leaves_out_raises_no_flag(name: str) -> None:
    space: dict[str, Any] = {"np": np}
    exec(f"def body(x, y, out):\n    {MASKED[name]}", space)
    body, rng = space["body"], np.random.default_rng(1)
    x, y = rng.normal(size=(7, 300)), np.maximum(rng.normal(size=(7, 300)), 0.0)
    out = np.where(y != 0, 3.0, 0.0)
    form = made(body, x=x, y=y, out=out)
    wanted, got = out.copy(), out.copy()
    with np.errstate(all="raise"):
        body(x, y, wanted)
        assert form(x, y, got) == ""
    np.testing.assert_array_equal(bits(got), bits(wanted))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "reciprocal"])
def test_integers_that_where_leaves_out_are_not_divided(name: str) -> None:
    given = "y" if name == "reciprocal" else "x, y"
    space: dict[str, Any] = {"np": np}
    exec(f"def body(x, y, out):\n    np.{name}({given}, out=out, where=y != 0)", space)
    x, y = np.arange(700).reshape(7, 100), np.arange(700).reshape(7, 100) % 3
    form = made(space["body"], x=x, y=y, out=np.zeros_like(x))
    wanted, got = np.full_like(x, -7), np.full_like(x, -7)
    with np.errstate(all="raise"):
        space["body"](x, y, wanted)
        assert form(x, y, got) == ""
    np.testing.assert_array_equal(got, wanted)


def test_an_array_that_is_broadcast_shows_what_is_written_later() -> None:
    def body(x, y, out):
        wide = np.broadcast_to(y[:1], x.shape)
        y *= 2
        out[...] = wide + x

    x, y = np.ones((5, 40)), np.arange(200.0).reshape(5, 40)
    form = made(body, x=x, y=y, out=x, writes=("y", "out"))
    wanted, got = (y.copy(), x.copy()), (y.copy(), x.copy())
    body(x, *wanted)
    assert form(x, *got) == ""
    np.testing.assert_array_equal(got[1], wanted[1])


def test_flags_of_numpys_own_loops_are_kept() -> None:
    def body(x, out):
        out[...] = np.exp(x)

    form = made(body, x=np.ones(3000), out=np.ones(3000))
    x = np.ones(3000)
    x[2999] = 1e4
    with pytest.warns(RuntimeWarning, match="overflow encountered in body"):
        form(x, np.ones(3000))


def test_many_threads_may_call_one_form() -> None:
    def body(x, out):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        out[...] = e / e.sum(axis=1, keepdims=True)

    form = made(body, x=np.ones((20, 300)), out=np.ones((20, 300)))
    failed: list[int] = []

    def work(seed: int) -> None:
        mine = np.random.default_rng(seed)
        for _ in range(50):
            x = mine.normal(size=(20, int(mine.integers(17, 700))))
            out, wanted = np.empty_like(x), np.empty_like(x)
            body(x, wanted)
            if form(x, out) or not np.array_equal(out, wanted):
                failed.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_without_llvmlite_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    load_llvm.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "llvmlite", None)
    found = compile_body(scaled, arguments(), writes={"out"})
    load_llvm.cache_clear()
    assert isinstance(found, Declined) and not found
    assert found.reason.startswith("llvmlite is not installed (pip install 'coexec[compile]')")


@pytest.mark.parametrize(
    ("features", "register"), [(["sse2", "avx"], 0), (["avx", "avx2"], 32), (["avx2", "avx512f"], 32)]
)
def test_processors_without_avx2_stay_with_numpy_and_others_use_the_vectors_that_they_have(
    features: list[str], register: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    binding = load_llvm()
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    load_llvm.cache_clear()
    build.register_bytes.cache_clear()
    try:
        found = build.register_bytes() if register else compile_body(scaled, arguments(), writes={"out"})
    finally:
        load_llvm.cache_clear()
        build.register_bytes.cache_clear()
    if register:
        assert found == register
    else:
        assert isinstance(found, Declined) and found.reason == "compiled forms need a processor with AVX2"


def test_values_kept_for_different_reasons_have_memory_of_their_own() -> None:
    def body(x, u, out):
        old = x * u
        out[1:] = out[:-1]  # kept, for it reads what it writes: a row less, of another type
        u[1:] = u[:-1]  # what `old` was computed from is overwritten
        out[...] = np.sin(old) + out + u

    given = {"x": np.random.default_rng(0).random((33, 129)), "u": np.random.default_rng(1).random((33, 129))}
    given["out"] = np.ones((33, 129), np.float32)
    form = compile_body(body, given, writes={"u", "out"})
    assert isinstance(form, Compiled)
    wanted, got = ({name: array.copy() for name, array in given.items()} for _ in range(2))
    body(**wanted)
    assert form(*got.values()) == ""
    for name in given:
        np.testing.assert_array_equal(got[name], wanted[name])
