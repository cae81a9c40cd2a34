"""Every ufunc and every type: NumPy's bits, special values included, or a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, compile_body
from tests.compile.random_bodies import bits

pytest.importorskip("llvmlite")

DTYPES = ("f8", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
INLINE: tuple[str, ...] = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "less",
    "less_equal",
    "greater",
    "equal",
)
INLINE += (
    "not_equal",
    "negative",
    "absolute",
    "sqrt",
    "square",
    "reciprocal",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "isnan",
)
INLINE += ("copysign", "logical_and", "logical_or", "logical_not", "logical_xor", "bitwise_and", "invert", "positive")
OTHERS: tuple[str, ...] = (
    "exp",
    "log",
    "tanh",
    "sin",
    "cos",
    "power",
    "arctan2",
    "hypot",
    "floor_divide",
    "remainder",
    "fmod",
    "sign",
)
OTHERS += ("log1p", "expm1", "exp2", "cbrt", "fmax", "left_shift", "right_shift", "gcd", "isfinite", "float_power")
FLOATS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, 1e-310, 1e-42, 1e300, -1e300, 3e38, 7.0, 1e10)


def values(dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, 1500).astype(bool)
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            special = np.array(FLOATS).astype(dtype)
        drawn = (rng.normal(size=1500) * 10.0 ** rng.integers(-8, 9, 1500)).astype(dtype)
        drawn[:256] = np.repeat(special, 16) if seed else np.tile(special, 16)
        return drawn
    info = np.iinfo(dtype)
    drawn = rng.integers(info.min, info.max, 1500, dtype=dtype, endpoint=True)
    drawn[:500] = rng.integers(0, 9, 500)
    drawn[500:504] = info.min, info.max, 0, 1
    return np.roll(drawn, seed * 7)


def outcome(name: str, dtype: str) -> str:
    """Return "same" if the compiled ufunc has NumPy's bits, else why there is none."""
    function = getattr(np, name)
    x, y = values(np.dtype(dtype), 0), values(np.dtype(dtype), 1)
    given = (x, y)[: function.nin]
    try:
        wanted = function(*given)
    except (TypeError, ValueError) as error:
        return f"NumPy: {error}"
    space: dict[str, Any] = {"np": np}
    exec(f"def body(x, y, out):\n    out[...] = np.{name}({'x' if function.nin == 1 else 'x, y'})\n", space)
    out = np.zeros(1500, wanted.dtype)
    form = compile_body(space["body"], {"x": x, "y": y, "out": out}, writes={"out"})
    if not isinstance(form, Compiled):
        return form.reason
    assert form(x, y, out) == ""
    np.testing.assert_array_equal(bits(out), bits(wanted), f"{name} {dtype}")
    return "same"


def check(pairs: list[tuple[str, str]]) -> int:
    found = {}
    with np.errstate(all="ignore"):
        for name, dtype in pairs:
            found[name, dtype] = outcome(name, dtype)
    allowed = (
        "NumPy",
        "same",
        "elements of type float16 are not compiled",
        "np.power raises",
        "has no inner loop",
        "depends on where",
    )
    assert {pair: why for pair, why in found.items() if not any(words in why for words in allowed)} == {}
    return sum(why == "same" for why in found.values())


def test_inline_ufuncs_have_numpys_bits_for_floats() -> None:
    assert check([(name, dtype) for name in INLINE for dtype in ("f8", "f4")][::3]) >= 14


def test_other_types_have_numpys_bits_too() -> None:
    pairs = [(name, dtype) for name in INLINE + OTHERS for dtype in DTYPES]
    assert check(pairs[:: len(pairs) // 25]) >= 10


@pytest.mark.parametrize("name", ["fmax", "fmin"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_zeros_of_both_signs_are_left_to_numpy_where_it_answers_by_their_place(name: str, dtype: str) -> None:
    assert "0.0 and -0.0 depends on where in memory" in outcome(name, dtype)
    assert outcome(name, "i4") == "same"

    space: dict[str, Any] = {"np": np}
    exec(f"def body(x, out, low):\n    out[...] = np.{name}(np.{name}(x, low), 2.5)\n", space)
    x = values(np.dtype(dtype), 0)[:37]
    wanted, got = np.empty_like(x), np.empty_like(x)
    form = compile_body(space["body"], {"x": x, "out": got, "low": 0.5}, writes={"out"})
    assert isinstance(form, Compiled), form
    space["body"](x, wanted, 0.5)
    assert form(x, got, 0.5) == ""
    np.testing.assert_array_equal(bits(got), bits(wanted))
    assert form(x, got, 0.0) != ""  # the guard: NumPy's body serves


@pytest.mark.slow
def test_every_ufunc_has_numpys_bits_for_every_type() -> None:
    names = [n for n in dir(np) if isinstance(f := getattr(np, n), np.ufunc) and f.nout == 1 and not f.signature]
    names = [name for name in names if getattr(np, name).nin <= 2]
    assert check([(name, dtype) for name in names for dtype in DTYPES]) > 400


@pytest.mark.parametrize("bounds", ["0, 9", "-0.0, 9", "-9, 0.0", "-9, -0.0", "None, 0.0", "None, -0.0", "0, None"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_clip_has_numpys_sign_of_zero(bounds: str, dtype: str) -> None:
    space: dict[str, Any] = {"np": np}
    exec(f"def body(x, out):\n    out[...] = np.clip(x, {bounds})\n", space)
    x = np.resize(np.array([-0.0, 0.0, -1, np.nan, 9, 10, -0.0], dtype), 37)
    wanted, got = np.empty_like(x), np.empty_like(x)
    form = compile_body(space["body"], {"x": x, "out": got}, writes={"out"})
    assert isinstance(form, Compiled), form
    space["body"](x, wanted)
    assert form(x, got) == ""
    np.testing.assert_array_equal(bits(got), bits(wanted))
