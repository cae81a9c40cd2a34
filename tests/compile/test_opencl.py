"""Generated OpenCL C: checked on a real driver, divided in every way, against the NumPy body."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile import Declined
from coexec.compile.opencl import OpenClForm, opencl_form
from coexec.testing import check_kernel

rng = np.random.default_rng(0)


def heat(u, out, k):
    out[...] = u[1:-1, 1:-1] + k * (
        u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - (2 + 2 * k) * u[1:-1, 1:-1]
    )


def masked(x, y, out, limit):
    out[...] = np.where(x > limit, out + 0.5 * (y - x), np.minimum(out, y) * 0.9)


def prices(spot, years, call, put):
    d = np.log(spot / 100.0) / np.sqrt(years)
    call[...] = spot * np.exp(-d * d)
    put[...] = call * 0.5 + spot


def nearest(x, label):
    label[...] = (x * x - x[:, ::-1]).argmin(axis=1)


def totals(x, out):
    out[...] = (x * 2).max(axis=1) + x[0, 0]


def counted(n, out):
    out[...] = (n * 3 - 7) & 1023


def form_of(body: Any, writes: set[str], **arguments: Any) -> OpenClForm:
    found = opencl_form(body, arguments, writes=writes)
    assert isinstance(found, OpenClForm), found
    return found


def check(body: Any, accesses: dict[str, Any], seen: dict[str, Any] | None = None, **arguments: Any) -> OpenClForm:
    """Let a kernel with the generated variant pass check_kernel; `seen` are arrays as the body sees them, if larger."""
    writes = {name for name, access in accesses.items() if access.writes}
    form = form_of(body, writes, **arguments | (seen or {}))
    kernel = cx.kernel(split=0, **accesses)(body)
    kernel.opencl(form.source, numerics=form.numerics)
    check_kernel(kernel, **arguments)
    return form


def test_a_stencil_runs_on_opencl_with_numpys_bits() -> None:
    def padded(u, out, k):
        out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] - 2 * u[1:-1, 1:-1])

    form = form_of(heat, {"out"}, u=rng.random((34, 42)), out=rng.random((32, 40)), k=0.2)
    assert form.numerics == cx.exact and form.guards == {}
    assert "u(i0 + 1L, i1 + 1L)" in form.source
    accesses = {"u": cx.read(cx.halo(1, border="edge")), "out": cx.write}
    u, seen = rng.random((34, 42)), {"u": np.ones((36, 44))}
    form = check(padded, accesses, seen, u=u, out=rng.random((34, 42)), k=0.2)
    assert form.numerics == cx.exact


def test_elementwise_bodies_run_on_opencl() -> None:
    x, y, out = (rng.random(1000).astype("f4") for _ in range(3))
    form = check(masked, {"x": cx.read, "y": cx.read, "out": cx.update}, x=x, y=y, out=out, limit=0.5)
    assert form.numerics == cx.exact
    spot, years = rng.uniform(50, 150, 500), rng.uniform(0.5, 2, 500)
    accesses = {"spot": cx.read, "years": cx.read, "call": cx.write, "put": cx.write}
    form = check(prices, accesses, spot=spot, years=years, call=np.zeros(500), put=np.zeros(500))
    assert form.numerics.ulp > 0
    check(
        counted,
        {"n": cx.read, "out": cx.write},
        n=rng.integers(-(1 << 31), 1 << 31, 300, dtype="i4"),
        out=np.zeros(300, "i4"),
    )


def test_reductions_of_rows_that_do_not_depend_on_the_order_run_on_opencl() -> None:
    rows = cx.read
    x = rng.random((60, 21))
    check(nearest, {"x": rows, "label": cx.write}, x=x, label=np.zeros(60, np.intp))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("out[...] = x.sum()", "the same elements for many points"),
        ("out[...] = np.sin(x)", "np.sin has no OpenCL C"),
        ("out[1:] = x[1:]", "a part of an array"),
        ("out[...] = x.astype(int)", "beyond their ends"),
        ("out[...] = x[::-1]; out += out[::-1]", "several passes"),
        ("out[...] = np.sort(x)", "np.sort is not compiled"),
    ],
)
def test_what_opencl_cannot_do_alike_is_refused(text: str, words: str) -> None:
    space: dict[str, Any] = {"np": np}
    exec(f"def body(x, out):\n    {text}\n", space)
    found = opencl_form(space["body"], {"x": np.ones(50), "out": np.ones(50)}, writes={"out"})
    assert isinstance(found, Declined) and words in found.reason


def test_numbers_that_the_host_computes_are_refused_in_single_precision() -> None:
    def body(x, out, k):
        out[...] = x * (2 - 4 * k)

    single = {"x": np.ones(50, "f4"), "out": np.ones(50, "f4"), "k": 0.3}
    found = opencl_form(body, single, writes={"out"})
    assert isinstance(found, Declined) and "is computed on the host" in found.reason
    double = {"x": np.ones(50), "out": np.ones(50), "k": 0.3}
    assert isinstance(opencl_form(body, double, writes={"out"}), OpenClForm)


def test_what_the_text_takes_for_granted_is_listed() -> None:
    def body(x, out, k):
        out[...] = x * 2 if k > 1 else x

    form = form_of(body, {"out"}, x=np.ones(50), out=np.ones(50), k=3)
    assert list(form.guards.values()) == [True]


def test_extremes_of_rows_and_columns_are_exact() -> None:
    def highest(x, out):
        out[...] = x.max(axis=1)

    def columns(x, out):
        out[...] = x.max(axis=0)

    x = np.ones((20, 30))
    by_rows = opencl_form(highest, {"x": x, "out": np.ones(20)}, writes={"out"})
    by_columns = opencl_form(columns, {"x": x, "out": np.ones(30)}, writes={"out"})
    assert isinstance(by_rows, OpenClForm) and by_rows.numerics == cx.exact
    assert isinstance(by_columns, OpenClForm) and by_columns.numerics == cx.exact
