"""Ufuncs of any types into any type, on values at the ends of their range: what NumPy gives, on every kind of device.

Calls are drawn anew in every run, within a budget of seconds; a failure names the call.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

import coexec as cx
from coexec.backend.opencl.probe import probe
from coexec.backend.torch.driver import installed
from coexec.compile.opencl_text import TEXTS

SECONDS = 2.0
TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
COMPILED = ("bool", "int32", "int64", "float32", "float64")
NUMBERS: tuple[Any, ...] = (
    2, -1, 0.5, True, -0.0, 2**40, float("nan"), np.float64(0.1), np.float32(0.1), np.int64(3),
)  # fmt: skip
UFUNCS = [u for u in vars(np).values() if isinstance(u, np.ufunc) and u.nout == 1 and u.nin < 3 and not u.signature]
CLOSE = {4: 84.0, 8: 4504.0}
"""Units in the last place by which torch may differ: backend/torch/check.py's tolerance."""


class Drawn(NamedTuple):
    """A call: operands are names of types, or numbers by value."""

    function: Any
    operands: tuple[Any, ...]
    options: dict[str, Any]

    def data(self) -> list[Any]:
        """Return operands in which every special value of one meets every one of the other."""
        taken = [special(operand) if isinstance(operand, str) else operand for operand in self.operands]
        arrays = [x for x in taken if isinstance(x, np.ndarray)]
        met = iter(np.meshgrid(*arrays, indexing="ij"))
        return [next(met).ravel() if isinstance(x, np.ndarray) else x for x in taken]

    def run(self, values: list[Any], namespace: Any) -> Any:
        """Return what the call gives with arrays of NumPy's or coexec's, or the kind of error."""
        options = dict(self.options)
        length = next(len(x) for x in values if isinstance(x, np.ndarray))
        if "out" in options:
            options["out"] = namespace.zeros(length, options["out"])
        try:
            return np.asarray(
                self.function(*[namespace.array(x) if isinstance(x, np.ndarray) else x for x in values], **options)
            )
        except (TypeError, ValueError, OverflowError) as error:
            return type(error)


def special(dtype: str) -> Any:
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([False, True])
    if kind.kind == "f":
        info: Any = np.finfo(kind)
        ends = [info.max, info.min, info.tiny, info.smallest_subnormal, np.nan, np.inf, -np.inf]
        return np.array([0.0, -0.0, 1.0, -1.5, 0.5, 3.0, 256.0, 0.1, *ends], kind)
    info = np.iinfo(kind)
    return np.array([0, 1, 2, 7, 100, info.max, info.min, info.max - 1, info.max // 3, info.min // 5], kind)


def drawn(rng: random.Random, ufuncs: list[Any], types: tuple[str, ...]) -> Drawn:
    function = rng.choice(ufuncs)
    operands: list[Any] = [rng.choice(types) for _ in range(function.nin)]
    if function.nin == 2 and rng.random() < 0.3:
        operands[rng.randrange(2)] = rng.choice(NUMBERS)
    options: dict[str, Any] = {}
    if rng.random() < 0.7:
        options[rng.choice(["out", "out", "dtype"])] = rng.choice(types)
    if rng.random() < 0.5:
        options["casting"] = "unsafe"
    return Drawn(function, tuple(operands), options)


def differs(call: Drawn, values: list[Any], wanted: Any, found: Any, ulp: float) -> str:
    """Return in words how a result differs from NumPy's beyond its tolerance, or nothing."""
    if isinstance(wanted, type) or isinstance(found, type):
        return "" if isinstance(wanted, type) and isinstance(found, type) else f"{found} instead of {wanted}"
    if (wanted.dtype, wanted.shape) != (found.dtype, found.shape):
        return f"{found.dtype}{found.shape} instead of {wanted.dtype}{wanted.shape}"
    computed = call._replace(options={k: v for k, v in call.options.items() if k != "out"}).run(values, np)
    if computed.dtype.kind == "f" and wanted.dtype.kind in "iu":
        # Undefined beyond the type's range, in NumPy too; and a result just below a whole number is another one.
        info = np.iinfo(wanted.dtype)
        near = np.abs(computed - np.rint(computed)) <= ulp * np.spacing(np.abs(computed))
        wrong = (wanted != found) & (computed > info.min) & (computed < info.max) & ~(near & (ulp > 0))
    elif wanted.dtype.kind == "f":
        narrow = computed.dtype if computed.dtype.kind == "f" and computed.dtype < wanted.dtype else wanted.dtype
        a, b = wanted.astype(narrow), found.astype(narrow)
        gap = np.abs(a.astype(float) - b.astype(float)) / np.spacing(np.abs(a)).astype(float)
        wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (gap <= ulp))
    else:
        wrong = wanted != found
    if not wrong.any():
        return ""
    at = int(np.flatnonzero(wrong)[0])
    given = [x[at] if isinstance(x, np.ndarray) else x for x in values]
    return f"{found[at]!r} instead of {wanted[at]!r} for {given}"


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def swept(devices: str, ufuncs: list[Any], types: tuple[str, ...]) -> list[str]:
    """Draw calls until the budget is spent; return those that differ from NumPy's."""
    seed = random.SystemRandom().randrange(1 << 32)
    rng, until, found = random.Random(seed), time.monotonic() + SECONDS, []
    torch = devices.startswith("torch")
    with quiet(), cx.Runtime(devices):
        while time.monotonic() < until:
            call = drawn(rng, ufuncs, types)
            if not any(isinstance(operand, str) for operand in call.operands):
                continue
            values = call.data()
            wanted = call.run(values, np)
            if torch:  # trusted after a first use, which had nothing special
                call.run([np.ones_like(x) if isinstance(x, np.ndarray) else x for x in values], cx)
            size = 8 if isinstance(wanted, type) else wanted.dtype.itemsize
            ulp = CLOSE.get(size, CLOSE[4]) if torch else TEXTS[call.function].ulp
            said = differs(call, values, wanted, call.run(values, cx), ulp)
            if said:
                found.append(f"np.{call.function.__name__}{call.operands} {call.options}: {said} (seed {seed})")
    return found


@pytest.mark.skipif(not probe().devices, reason="no OpenCL")
def test_on_opencl() -> None:
    assert swept("opencl:0", sorted(TEXTS, key=lambda u: str(u.__name__)), COMPILED) == []


@pytest.mark.skipif(not installed(), reason="no torch")
def test_on_torch() -> None:
    assert swept("torch:cpu", UFUNCS, TYPES) == []


CASES = [
    Drawn(np.divide, ("float32", np.float64(3)), {}),  # a NumPy number's type counts
    Drawn(np.not_equal, (np.float64(0.1), "float32"), {"out": "float32"}),
    Drawn(np.power, ("int16", np.int64(3)), {"out": "float64"}),
    Drawn(np.equal, ("uint8", -1), {}),  # compared exactly
    Drawn(np.less, (2**40, "int32"), {"out": "float64"}),
    Drawn(np.fmax, ("bool", -1), {"out": "int16"}),
    Drawn(np.remainder, ("float32", "float64"), {}),  # of quotients that overflow
    Drawn(np.floor_divide, ("int32", "int64"), {"out": "int8"}),  # by zero
    Drawn(np.left_shift, ("int8", "int8"), {}),
    Drawn(np.power, ("float32", 0.5), {}),  # a root of -inf
    Drawn(np.power, ("float64", 0.5), {}),
    Drawn(np.power, ("float64", 0.5), {"dtype": "float32"}),
    Drawn(np.power, ("bool", np.float64(0.5)), {"dtype": "float32"}),
]


@pytest.mark.parametrize("devices", ["opencl:0", "torch:cpu"])
def test_what_was_once_drawn(devices: str) -> None:
    if not (probe().devices if devices == "opencl:0" else installed()):
        pytest.skip(f"no {devices}")
    with quiet(), cx.Runtime(devices):
        for call in CASES:
            values = call.data()
            call.run([np.ones_like(x) if isinstance(x, np.ndarray) else x for x in values], cx)
            wanted = call.run(values, np)
            said = differs(call, values, wanted, call.run(values, cx), CLOSE.get(wanted.dtype.itemsize, CLOSE[4]))
            assert said == "", call


@pytest.mark.skipif(not probe().devices, reason="no OpenCL")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function", [u for u, text in TEXTS.items() if text.wide and u.nin == 1], ids=lambda u: str(u.__name__)
)
def test_neighbours_in_a_vector_do_not_matter(function: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    info: Any = np.finfo(dtype)
    small = np.exp(rng.uniform(np.log(float(info.tiny)), 5, 512))
    call = Drawn(function, (dtype,), {})
    with quiet(), cx.Runtime("opencl:0"):
        for large in (1e3, 1e5, 3e6, 1e8, 1e20, info.max, np.inf, np.nan, 0.0):
            values = [small.astype(dtype)]
            values[0][rng.integers(0, 8) :: 8] = large
            wanted = call.run(values, np)
            assert differs(call, values, wanted, call.run(values, cx), TEXTS[function].ulp) == "", large


@pytest.mark.skipif(not probe().devices, reason="no OpenCL")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_come_close_for_numbers_of_all_sizes_beside_each_other(dtype: str) -> None:
    rng = np.random.default_rng(4)
    info: Any = np.finfo(dtype)
    least, most, n = float(np.log(info.tiny)) * 0.999, float(np.log(info.max)) * 0.999, 2000
    sizes = [np.exp(rng.uniform(least, most, n)) * rng.choice([-1, 1], n) for _ in range(2)]
    whole = np.concatenate([special(dtype), np.array([2.0, 1e8, 700, -88], dtype)])
    first = np.concatenate([np.repeat(whole, len(whole)), sizes[0], rng.uniform(-10, 10, n)]).astype(dtype)
    second = np.concatenate([np.tile(whole, len(whole)), sizes[1], rng.uniform(-10, 10, n)]).astype(dtype)
    found = {}
    with quiet(), cx.Runtime("opencl:0"):
        for function in (u for u, text in TEXTS.items() if text.wide):
            values = [first, second][: function.nin]
            call = Drawn(function, (dtype,) * function.nin, {})
            found[function] = differs(call, values, call.run(values, np), call.run(values, cx), TEXTS[function].ulp)
    assert {function.__name__: said for function, said in found.items() if said} == {}
