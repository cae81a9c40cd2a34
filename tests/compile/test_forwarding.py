"""Temporaries that are written in parts and copied: the parts go to where the copy goes, and NumPy's bits stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile import Compiled, compile_body
from coexec.compile.forwarding import forwarded
from coexec.compile.trace import trace
from tests.compile.random_bodies import bits

pytest.importorskip("llvmlite")
MOVED = {
    "columns": "out[...] = np.stack([x[:, 0] + 1, x[:, 1] * 2, x[:, 0] * x[:, 2]], axis=1)",
    "halves": "t = np.empty_like(x); t[:, :1] = x[:, 1:2]; t[:, 1:] = x[:, :2] * 3; out[...] = t",
    "over zeros": "t = np.zeros_like(x); t[1:] = x[:-1]; out[...] = t",
    "backwards": "t = np.empty_like(x); t[:, 0] = 1; t[:, 1:] = x[:, 1:]; out[::-1] = t",
}
KEPT = {
    "into a part": "t = np.empty_like(x); t[:, 0] = 1; t[:, 1:] = x[:, 1:]; out[1:] = 5; out[:, 0] = 2; out[:, :] = t",
    "rows": "out[...] = np.stack([x[:, 0], x[:, 1], x[:, 2]]).T",
    "read again": "t = np.empty_like(x); t[:, 0] = 1; t[:, 1:] = x[:, 1:]; out[...] = t; out += t",
    "made of the result": "out[...] = np.stack([out[:, 2], out[:, 0], out[:, 1]], axis=1)",
    "read before it is written": "t = np.empty_like(x); t[:, 0] = 1; t[:, 1:] = out[:, 1:]; out[...] = t",
    "changed after the copy": "t = np.zeros_like(x); t[:, 0] = x[:, 0]; out[...] = t; t[:, 1] = 3; out[0] = t[1]",
    "the result is written between": "t = np.zeros_like(x); t[:, 0] = x[:, 0]; out[...] = 3; t[0] = 1; out[...] = t",
    "the result is read after": "t = np.zeros_like(x); t[:, 0] = x[:, 0]; out[...] = t; out[1:] = out[:-1]",
    "of another type": "t = np.zeros(x.shape, 'f4'); t[:, 0] = x[:, 0]; out[...] = t",
    "a part of it": "t = np.zeros_like(x); t[:, 0] = x[:, 0]; out[:, 1:] = t[:, :2]; out[:, 0] = 1",
}


def body_of(text: str) -> Any:
    space: dict[str, Any] = {"np": np}
    exec("def body(x, out):\n    " + text, space)
    return space["body"]


def drawn(rows: int, columns: int = 3) -> tuple[Any, Any]:
    random = np.random.default_rng(rows)
    return random.normal(size=(rows, columns)), random.normal(size=(rows, columns))


@pytest.mark.parametrize("name", [*MOVED, *KEPT])
def test_a_body_has_numpys_bits_with_the_copy_or_without(name: str) -> None:
    body, form = body_of((MOVED | KEPT)[name]), None
    for rows in (20, 5, 33, 64):
        x, wanted = drawn(rows)
        got = wanted.copy()
        body(x, wanted)
        form = form or compile_body(body, {"x": x, "out": got}, writes={"out"})
        assert isinstance(form, Compiled), form
        assert form(x, got) == ""
        np.testing.assert_array_equal(bits(got), bits(wanted))


@pytest.mark.parametrize("name", [*MOVED, *KEPT])
def test_a_copy_goes_only_if_nobody_sees_it(name: str) -> None:
    x, out = drawn(20)
    stores = trace(body_of((MOVED | KEPT)[name]), {"x": x, "out": out}, ("out",)).stores
    assert (len(forwarded(stores)) < len(stores)) == (name in MOVED)


@pytest.mark.parametrize("rows", [1, 7, 8, 45])
def test_columns_of_a_table_are_one_pass_on_opencl(rows: int) -> None:
    pytest.importorskip("pyopencl")

    @cx.kernel(over="out", x=cx.read(cx.all), out=cx.update)
    def turned(x, out):
        out[...] = np.stack([x[:, 0] + 1, x[:, 1] * out.shape[1], -x[:, 2]], axis=1)

    @cx.kernel(over="out", x=cx.read(cx.all), y=cx.read(cx.all), out=cx.update, numerics=cx.close(1024))
    def pulled(x, y, out):
        dx, dy, dz = (b[None, :] - a[:, None] for a, b in zip(x.T, y.T, strict=True))
        w = 1 / (dx**2 + dy**2 + dz**2 + 0.01) ** 1.5
        out[...] = np.stack([(w * d).sum(axis=1) for d in (dx, dy, dz)], axis=1)

    x, y = drawn(rows)
    for kernel, given in ((turned, (x,)), (pulled, (x, y[:5]))):
        wanted = np.zeros_like(x)
        kernel.function(*given, wanted)
        with cx.Runtime("cpu:0,opencl:0", store="off", inline=False, compile_bodies="auto"):
            out = cx.zeros(x.shape)
            kernel.using(devices="opencl:0")(*map(cx.array, given), out)
            np.testing.assert_allclose(np.asarray(out), wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())
        assert next(v.off for v in kernel.variants if v.name == "generated") == ""
