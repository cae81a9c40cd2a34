"""Every ufunc with OpenCL C, for every type, over all its values' ends: what is exact has NumPy's bits on a driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile import opencl_form
from coexec.compile.opencl_text import TEXTS
from coexec.compile.refused import Declined
from tests.compile.random_bodies import SPECIAL, bits

pytest.importorskip("pyopencl")
TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "?")
UNSEEN = "has no OpenCL C"


@pytest.fixture(scope="module")
def runtime() -> Any:
    with cx.Runtime("cpu:0,opencl:0", store="off", inline=False, compile_bodies="auto") as found:
        yield found


def drawn(dtype: str, seed: int) -> Any:
    """Return elements from all over a type, its ends and what is special among them."""
    random, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, 600).astype(bool)
    if kind.kind == "f":
        x = (random.normal(size=600) * 10.0 ** random.integers(-3, 4, 600)).astype(kind)
        special = np.array(SPECIAL)
        with np.errstate(all="ignore"):
            x[random.permutation(600)[: 3 * len(SPECIAL)]] = np.tile(special, 3).astype(kind)
        return x
    ends = np.iinfo(kind)
    x = random.integers(ends.min, ends.max, 600, dtype=kind, endpoint=True)
    x[random.permutation(600)[:60]] = np.tile(np.array([ends.min, ends.max, 0, 1, ends.max // 2, 2], kind), 10)
    return x


def functions(dtype: str) -> list[np.ufunc]:
    """Return the ufuncs that are exact for a type and have OpenCL C."""
    found = []
    for function, text in TEXTS.items():
        floats = np.dtype(dtype).kind == "f"
        if not (text.floats if floats else text.integers) or (text.ulp and floats):
            continue
        try:
            wanted = function.resolve_dtypes((np.dtype(dtype),) * function.nin + (None,))
        except TypeError:
            continue
        if len({*wanted[: function.nin], np.dtype(dtype)}) == 1:
            found.append(function)
    return found


@pytest.mark.parametrize("dtype", TYPES)
def test_functions_in_bodies_have_numpys_bits_for_every_type(dtype: str, runtime: Any) -> None:
    del runtime
    x, y = drawn(dtype, 3), drawn(dtype, 4)
    lines: list[str] = []
    results: dict[str, Any] = {}
    accesses: dict[str, Any] = {"x": cx.read(cx.all), "y": cx.read(cx.all)}
    for function in functions(dtype):
        call = f"np.{function.__name__}({', '.join('xy'[: function.nin])})"
        with np.errstate(all="ignore"):
            wanted = function(*(x, y)[: function.nin])
        space: dict[str, Any] = {"np": np}
        exec(f"def body(x, y, out):\n    out[...] = {call}", space)
        form = opencl_form(space["body"], {"x": x, "y": y, "out": wanted}, writes={"out"})
        if isinstance(form, Declined):
            assert UNSEEN in form.reason, form
            continue
        name = f"out{len(lines)}"
        lines.append(f"    {name}[...] = {call}")
        accesses[name], results[name] = cx.update, wanted
    space = {"np": np}
    exec(f"def body(x, y, {', '.join(results)}):\n" + "\n".join(lines), space)
    kernel = cx.kernel(over="out0", **accesses)(space["body"])
    given = {name: cx.array(np.zeros_like(wanted)) for name, wanted in results.items()}
    kernel.using(devices="opencl:0")(cx.array(x), cx.array(y), **given)
    for name, wanted in results.items():
        got = np.asarray(given[name])
        np.testing.assert_array_equal(bits(got), bits(wanted), lines[int(name.removeprefix("out"))])
    assert next(v.off for v in kernel.variants if v.name == "generated") == ""


def test_functions_in_single_precision_are_not_close_in_units_of_double_precision() -> None:
    def body(x, out):
        out[...] = out * np.exp(x)

    x = np.ones(40, np.float32)
    answer = opencl_form(body, {"x": x, "out": np.ones(40)}, writes={"out"})
    assert isinstance(answer, Declined) and "in single precision are not close" in answer.reason
    alike = opencl_form(body, {"x": x, "out": x}, writes={"out"})
    assert not isinstance(alike, Declined) and alike.numerics.ulp > 0
