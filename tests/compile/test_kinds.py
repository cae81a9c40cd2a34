"""Bodies of kinds that strangers write, one each: NumPy's bits at two sizes, or a reason that names what is not compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, compile_body
from coexec.compile.refused import Declined
from tests.compile.random_bodies import bits

pytest.importorskip("llvmlite")
COMPILED = {
    "every other column, then the rest": ("f8", "out[:, ::2] = x[:, ::2] * 2; out[:, 1::2] = -x[:, 1::2]"),
    "written backwards": ("f8", "out[:, ::-1] = x + 1"),
    "read backwards": ("f8", "out[...] = x[:, ::-1] - x"),
    "a mask": ("f8", "out[...] = x; out[out > 0.5] = 0"),
    "a sum broadcast": ("f8", "out[...] = x.sum(axis=1, keepdims=True)"),
    "remainders by zero": ("i4", "out[...] = np.remainder(x, (x % 3).astype('i4'))"),
    "short integers, floats and unsigned ones": (
        "i2",
        "out[...] = (x * np.float32(0.1) + x.astype('u2')).astype('i8')",
    ),
    "nested choices": ("f8", "out[...] = np.where(x > 0, np.where(x > 1, np.sqrt(x), x), np.where(x < -1, -1.0, 0.0))"),
    "neighbours of itself": ("f8", "out[...] = x; out[:, 1:] += out[:, :-1]"),
    "neighbours behind": ("f4", "out[...] = x; out[:, :-1] *= out[:, 1:]"),
    "a NumPy number of a wider type": ("f4", "out[...] = x * np.float64(0.1)"),
    "a Python number beside bytes": ("i1", "out[...] = x * 3 + 100"),
    "halves that change places": (
        "f8",
        "h = x.shape[1] // 2; out[:, :h] = x[:, h:2 * h]; out[:, h:] = x[:, :x.shape[1] - h]",
    ),
    "a mean": ("f8", "out[...] = x - x.mean(axis=1, keepdims=True)"),
    "truths of rows": (
        "f8",
        "out[...] = np.where((x > 0).any(axis=1, keepdims=True) & ~(x > 9).all(axis=1)[:, None], x, -x)",
    ),
    "bytes that wrap": ("u1", "out[...] = x - 200 + x * x"),
    "rotated words": ("u8", "out[...] = (x << np.uint64(3)) ^ (x >> np.uint64(61))"),
    "powers of integers": ("i8", "out[...] = x ** 2 + abs(x) ** 3"),
    "a product of rows": ("f8", "out[...] = np.prod(x, axis=1, keepdims=True)"),
    "remainders of floats": ("f8", "out[...] = np.fmod(x, 0.3) + x % 0.7"),
    "places with their axis": (
        "f8",
        "out[...] = x.argmax(axis=1, keepdims=True) + np.argmin(x, axis=0, keepdims=True)",
    ),
    "the place of all": ("i4", "out[...] = x.argmin(keepdims=True)"),
    "a masked copy": ("f8", "np.copyto(out, x, where=x > 0.5); np.copyto(out, 7, where=x[:1] < -1)"),
    "a masked copy of another type": ("i8", "np.copyto(out, x.astype('f8') / 2, where=x % 3 == 0, casting='unsafe')"),
    "rows between bounds, backwards": ("f8", "out[...] = 0; out[1:5] = x[6:2:-1]; out[5:7] = x[-2:3:-3][:2]"),
    "truths": ("?", "out[...] = ~x | x[:, ::-1] ^ True"),
}
REFUSED = {
    "elements by a mask": ("f8", "out[...] = x; m = x < 0; out[m] = -x[m]", "a mask"),
    "half precision": ("f2", "out[...] = x * 2 + 1", "float16"),
    "complex numbers": ("c16", "out[...] = x * x.conj()", "complex128"),
    "sums in place": ("f8", "np.add.at(out, (slice(None), np.array([0, 0, 1])), 1.0)", "np.array"),
    "running sums": ("f8", "out[...] = np.cumsum(x, axis=1)", "np.cumsum"),
    "rounding to digits": ("f8", "out[...] = np.round(x, 1)", "np.round"),
    "its own errstate": ("i4", "with np.errstate(all='ignore'): out[...] = x // (x % 3)", "`with`"),
}


def body_of(text: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"np": np}
    exec("def body(x, out):\n    " + text, space)
    found: Callable[..., Any] = space["body"]
    return found


def drawn(dtype: str, rows: int, columns: int) -> Any:
    rng = np.random.default_rng(rows)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, (rows, columns)).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, (rows, columns), dtype=kind, endpoint=True)
    x = rng.normal(size=(rows, columns)).astype(dtype)
    x.flat[[3, 5, 17, 33]] = -0.0, 0.0, np.inf, np.nan
    return x


@pytest.mark.parametrize("name", COMPILED)
def test_it_has_numpys_bits(name: str) -> None:
    dtype, text = COMPILED[name]
    body = body_of(text)
    form = None
    for shape in ((24, 34), (9, 51), (40, 20)):
        x = drawn(dtype, *shape)
        kind = "i8" if name.startswith("short") else dtype
        wanted, got = np.zeros(shape, kind), np.zeros(shape, kind)
        with np.errstate(all="ignore"):
            body(x, wanted)
            form = form or compile_body(body, {"x": x, "out": got}, writes={"out"})
            assert isinstance(form, Compiled), form
            missed = form(x, got)
        if not missed:
            np.testing.assert_array_equal(bits(got), bits(wanted))
        assert not missed or shape != (24, 34), missed


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name: str) -> None:
    dtype, text, words = REFUSED[name]
    x = drawn(dtype, 24, 34)
    answer = compile_body(body_of(text), {"x": x, "out": np.zeros_like(x)}, writes={"out"})
    assert isinstance(answer, Declined) and words in answer.reason
