"""Borders per axis: what a body sees beyond each edge is what np.pad puts there, whole, divided and on OpenCL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ShapeError
from tests.devices import MIXED, TWO

BORDERS = ("clip", "inside", "wrap", "edge", "reflect", 0, -2.5)


def padded(u: np.ndarray[Any, Any], borders: tuple[Any, ...], widths: tuple[tuple[int, int], ...]) -> Any:
    """Return what a body sees of all of `u`: one axis after the other, as np.pad puts it."""
    for axis, (border, width) in enumerate(zip(borders, widths, strict=True)):
        pads = [width if a == axis else (0, 0) for a in range(u.ndim)]
        if border not in ("clip", "inside"):
            options: dict[str, Any] = {"mode": border} if isinstance(border, str) else {"constant_values": border}
            u = np.pad(u, pads, **options)
    return u


def copies(borders: tuple[Any, ...], widths: tuple[tuple[int, int], ...]) -> Any:
    """Return a kernel that gives each point all that it sees: one more axis, of the window's elements."""
    shape = tuple(before + after + 1 for before, after in widths)

    @cx.kernel(split=(0, 1), u=cx.read(cx.halo(widths, border=borders)), out=cx.update)
    def windows(u: Any, out: Any, chunk: Any) -> None:
        place = chunk.at("u")
        for number, shift in enumerate(np.ndindex(shape)):
            for point in np.ndindex(out.shape[:2]):
                at = [p + s.start + d - w[0] for p, s, d, w in zip(point, place, shift, widths, strict=True)]
                if all(0 <= a < n for a, n in zip(at, u.shape, strict=True)):
                    out[(*point, number)] = u[tuple(at)]

    return windows


@settings(max_examples=60)
@given(st.data())
def test_each_axis_has_its_own_border(data: st.DataObject) -> None:
    borders = tuple(data.draw(st.sampled_from(BORDERS)) for _ in range(2))
    widths = tuple((data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in range(2))
    shape = tuple(data.draw(st.integers(3, 6)) for _ in range(2))
    u = np.arange(1.0, 1 + shape[0] * shape[1]).reshape(shape)
    window = tuple(before + after + 1 for before, after in widths)
    expected = np.full((*shape, int(np.prod(window))), -1.0)
    wide = padded(u, borders, widths)
    grown = [(0, 0) if border in ("clip", "inside") else width for border, width in zip(borders, widths, strict=True)]
    for point in np.ndindex(shape):
        inside = all(
            border != "inside" or (p >= w[0] and p + w[1] < n)
            for p, n, w, border in zip(point, shape, widths, borders, strict=True)
        )
        for number, shift in enumerate(np.ndindex(window)):
            at = [p + d - w[0] + g[0] for p, d, w, g in zip(point, shift, widths, grown, strict=True)]
            if inside and all(0 <= a < n for a, n in zip(at, wide.shape, strict=True)):
                expected[(*point, number)] = wide[tuple(at)]
    kernel = copies(borders, widths)
    for devices, policy in (("cpu:0", "static"), (TWO, "even")):
        with cx.Runtime(TWO, policy=policy, debug=policy == "even"):
            out = cx.full(expected.shape, -1.0)
            kernel.using(devices=devices)(cx.array(u), out)
            np.testing.assert_array_equal(np.asarray(out), expected)


@cx.kernel(split=0, u=cx.read(cx.halo(1, border=("wrap", "edge"))), out=cx.write)
def cylinder(u: Any, out: Any) -> None:
    out[...] = u[:-2, 1:-1] + 2 * u[2:, 1:-1] + 4 * u[1:-1, :-2] + 8 * u[1:-1, 2:] + 16 * u[:-2, :-2]


cylinder.opencl("out(i, j) = u(i, j+1) + 2*u(i+2, j+1) + 4*u(i+1, j) + 8*u(i+1, j+2) + 16*u(i, j);", numerics=cx.exact)


@pytest.mark.parametrize("memory", ["own", "shared"])
@pytest.mark.parametrize("devices", ["cpu:0", "opencl:0", "cpu:0,opencl:0"])
def test_padded_chunks_run_on_opencl_too(devices: str, memory: str) -> None:
    u = np.random.default_rng(0).integers(0, 9, (40, 30)).astype(np.float32)
    wide = padded(u, ("wrap", "edge"), ((1, 1), (1, 1)))
    expected = wide[:-2, 1:-1] + 2 * wide[2:, 1:-1] + 4 * wide[1:-1, :-2] + 8 * wide[1:-1, 2:] + 16 * wide[:-2, :-2]
    with cx.Runtime(MIXED, policy="even", memory=f"opencl:0={memory}"):
        out = cx.zeros((30, 40), np.float32)
        task = cylinder.using(devices=devices)(cx.array(u.T.copy()).T, out.T)
        np.testing.assert_array_equal(np.asarray(out), expected.T)
        assert "," not in devices or "over 2 devices" in task.why


@settings(max_examples=12)
@given(st.data())
def test_every_border_is_the_same_on_opencl_as_in_numpy(data: st.DataObject) -> None:
    borders = tuple(data.draw(st.sampled_from(BORDERS[2:])) for _ in range(2))
    widths = tuple((data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))) for _ in range(2))
    shape = tuple(data.draw(st.integers(1, 7)) for _ in range(2))
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int32, np.uint8, np.bool_]))

    @cx.kernel(split=0, u=cx.read(cx.halo(widths, border=borders)), out=cx.write)
    def corners(u: Any, out: Any) -> None:
        rows, columns = out.shape
        out[...] = u[:rows, :columns]
        out += u[-rows:, -columns:]

    corners.opencl(f"out(i, j) = u(i, j) {'|' if dtype == np.bool_ else '+'} u(u_n0 - n0 + i, u_n1 - n1 + j);")
    u: Any = np.random.default_rng(1).integers(0, 9, shape).astype(dtype)
    with cx.Runtime("cpu:0,opencl:0"):
        found = []
        for device in ("cpu:0", "opencl:0"):
            out = cx.zeros(shape, dtype)
            corners.using(devices=device)(cx.array(u), out)
            found.append(np.asarray(out))
    np.testing.assert_array_equal(found[0], found[1])


@cx.kernel(split=0, u=cx.read(cx.halo(1)), out=cx.write)
def clipped(u: Any, out: Any, chunk: Any, xp: Any) -> None:
    at = chunk.at("u")[0]
    for row in range(len(out)):
        around = slice(max(0, at.start + row - 1), at.start + row + 2)
        out[row] = xp.sum(u[around]) + chunk.lo[0] + row


clipped.opencl("""
    float sum = u(i + u_at0) + lo0 + i;
    if (i + u_at0 > 0) sum += u(i + u_at0 - 1);
    if (i + u_at0 + 1 < u_n0) sum += u(i + u_at0 + 1);
    out(i) = sum;
""")


@pytest.mark.parametrize("devices", ["cpu:0", "opencl:0", "cpu:0,opencl:0"])
def test_a_body_that_asks_for_its_chunk_may_have_an_opencl_variant_which_knows_as_much(devices: str) -> None:
    u = np.arange(50, dtype=np.float32)
    expected = np.convolve(u, np.ones(3), "same") + np.arange(50)
    with cx.Runtime(MIXED, policy="even"):
        out = cx.zeros(50, np.float32)
        clipped.using(devices=devices)(cx.array(u), out)
        np.testing.assert_array_equal(np.asarray(out), expected)


@pytest.mark.parametrize(
    ("widths", "border", "text"),
    [
        (1, ("wrap", "edges"), "'edges' is not one of clip, inside, wrap, edge, reflect or a number"),
        (1, (), "names no border"),
        (1, None, "None is not one of"),
        ([1, 2], ("wrap",), "1 borders for 2 axes"),
        ([1], ("wrap", 0), "2 borders for 1 axes"),
        (1, ("wrap", None), "None is not one of"),
    ],
)
def test_borders_that_are_none_are_refused_where_they_are_declared(widths: Any, border: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        cx.halo(widths, border=border)


def test_as_many_borders_as_axes_are_needed() -> None:
    kernel = cx.kernel(split=0, u=cx.read(cx.halo(1, border=("wrap", "edge", 0))), out=cx.write)(cylinder.function)
    with cx.Runtime("cpu:0"), pytest.raises(ShapeError, match=r"names 3 borders.*shares 2 axes"):
        kernel(cx.zeros((5, 5)), cx.zeros((5, 5)))


def test_an_empty_array_has_nothing_to_repeat_along_the_axis_that_repeats() -> None:
    with cx.Runtime("cpu:0"):
        cx.kernel(split=0, u=cx.read(cx.halo(1, border=("wrap", 0))), out=cx.write)(cylinder.function)(
            cx.zeros((5, 0)), cx.zeros((5, 0))
        )
        with pytest.raises(ShapeError, match="nothing to repeat"):
            cylinder(cx.zeros((5, 0)), cx.zeros((5, 0)))


@pytest.mark.parametrize("access", [cx.write, cx.update])
@pytest.mark.parametrize("border", ["wrap", 0.0, ("clip", "edge")])
def test_nothing_is_written_through_a_padded_border(access: Any, border: Any) -> None:
    with pytest.raises(ArgumentError, match="would be lost"):
        access(cx.halo(1, border=border))
