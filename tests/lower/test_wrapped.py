"""Halos of borders that wrap: both ends of an axis are in memory, not what lies between, and bodies see NumPy's padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.geometry import Box
from coexec.graph.instruction import Alloc, Copy, Launch
from coexec.program import padding
from coexec.program.padding import Pad, positions_of
from coexec.testing.graphs import GraphBuilder
from coexec.testing.model_memory import at_random, run_all

BORDERS = ("wrap", "wrap", "wrap", "edge", "reflect", 4.0, "clip")
WIDTH = 2


def padded(x: np.ndarray[Any, Any], widths: tuple[tuple[int, int], ...], borders: tuple[Any, ...]) -> Any:
    for axis, (width, border) in enumerate(zip(widths, borders, strict=True)):
        by_axis = [(0, 0)] * x.ndim
        by_axis[axis] = width
        if isinstance(border, str) and border != "clip":
            x = np.pad(x, by_axis, mode=border)  # type: ignore[call-overload]
        elif border != "clip":
            x = np.pad(x, by_axis, constant_values=border)
    return x


def weighted(x: Any, shape: tuple[int, ...]) -> Any:
    """Return sums over windows with weights that tell every position apart; along axis 0 if only that is padded."""
    total = np.zeros(shape)
    for place in np.ndindex(*(n - m + 1 for n, m in zip(x.shape, shape, strict=True))):
        weight = 1 + sum(7**axis * at for axis, at in enumerate(place))
        total += weight * x[tuple(slice(at, at + m) for at, m in zip(place, shape, strict=True))]
    return total % 1009


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_bodies_see_what_numpy_pads(data: Any) -> None:
    devices = data.draw(st.integers(1, 4), label="devices")
    shape = data.draw(st.sampled_from([(12,), (9,), (8, 5), (6, 6)]), label="shape")
    border = data.draw(st.sampled_from([b for b in BORDERS if b != "clip"]), label="border of axis 1")
    borders = ("wrap", border)[: len(shape)]
    widths = tuple(data.draw(st.tuples(st.integers(0, WIDTH), st.integers(0, WIDTH))) for _ in shape)
    steps = tuple(data.draw(st.sampled_from([1, 1, -1, 2, -2])) for _ in shape)
    shared = data.draw(st.booleans(), label="shared")
    tiles = len(shape) == 2 and data.draw(st.booleans(), label="tiles")
    turns = data.draw(st.integers(1, 3), label="turns")
    g = GraphBuilder(devices, shared=shared)
    full = tuple(n * abs(step) for n, step in zip(shape, steps, strict=True))
    start = np.arange(float(np.prod(full))).reshape(full) % 101
    big, y = g.array(full, data=start), g.array(shape, 0.0)
    slices = tuple(slice(None, None, step) for step in steps)
    x = big[slices]
    expected, now = start.copy(), np.zeros(shape)

    def body(x: Any, y: Any) -> None:
        y[...] = weighted(x, y.shape)

    def back(y: Any, x: Any) -> None:
        x[...] = y

    for _ in range(turns):
        halo = cx.halo(list(widths), border=borders)
        g.call("ring", reads=(x, halo), writes=y, on="all", split=(0, 1) if tiles else 0, body=body)
        now = weighted(padded(expected[slices], widths, borders), shape)
        g.call("back", reads=y, writes=x, on="all", body=back)
        expected[slices] = now
    first, second = g.read(y), g.read(big)
    g.verify()
    assert run_all(g.emitted, at_random(data.draw(st.integers(0, 99)))) == {}
    assert np.array_equal(g.delivered[first.id], now)
    assert np.array_equal(g.delivered[second.id], expected)


def ring(x: Any, y: Any) -> None:
    y[...] = x[:-2] + 3 * x[2:]


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 4), st.integers(8, 40), st.integers(1, 4), st.integers(0, 99))
def test_in_a_memory_that_holds_a_part_and_its_halo_steps_run(devices: int, rows: int, turns: int, seed: int) -> None:
    part = -(-rows // devices)
    g = GraphBuilder(devices, capacity=8 * 2 * (part + 3))  # both fields with their halos, and a row to spare
    now = np.arange(float(rows))
    x, y = g.array(rows, data=now), g.array(rows, 0.0)
    for _ in range(turns):
        g.call("ring", reads=(x, cx.halo(1, border="wrap")), writes=y, on="all", body=ring)
        wide = np.pad(now, 1, mode="wrap")
        now = wide[:-2] + 3 * wide[2:]
        x, y = y, x
    result = g.read(x)
    g.verify()
    assert run_all(g.emitted, at_random(seed)) == {}
    assert np.array_equal(g.delivered[result.id], now)


@pytest.mark.parametrize("devices", [3, 4])
def test_a_step_copies_the_halo_and_no_more(devices: int) -> None:
    rows = 16 * devices
    g = GraphBuilder(devices, peers=True)
    x, y = g.array(rows, data=np.arange(float(rows))), g.array(rows, 0.0)
    for _ in range(2):
        g.call("ring", reads=(x, cx.halo(1, border="wrap")), writes=y, on="all", body=ring)
        x, y = y, x
    g.flush()
    before = len(g.emitted)
    g.call("ring", reads=(x, cx.halo(1, border="wrap")), writes=y, on="all", body=ring)
    g.flush()
    copied = sum(i.nbytes for i in g.emitted[before:] if isinstance(i.step, Copy))
    assert copied == 2 * devices * 8
    assert sum(i.step.allocation.box.volume for i in g.emitted if isinstance(i.step, Alloc)) <= 3 * (rows + 2 * devices)


def test_where_the_whole_axis_is_in_memory_already_it_is_seen_there() -> None:
    g = GraphBuilder(2)
    x, y = g.array(16, data=np.arange(16.0)), g.array(16, 0.0)
    g.call("all", reads=(x, cx.all), writes=y, on="all", body=lambda x, y: None)
    g.call("ring", reads=(x, cx.halo(1, border="wrap")), writes=y, on="all", body=ring)
    g.flush()
    seen = [b for i in g.emitted if isinstance(i.step, Launch) for b in i.step.bindings if b.pad is not None]
    assert seen and all(binding.pieces is None for binding in seen)


@pytest.mark.parametrize("border", ["wrap", "edge", "reflect"])
def test_how_a_halo_lies_in_an_array_is_found_without_going_through_its_rows(
    border: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(lo: int, hi: int, size: int, border: str) -> list[int]:
        asked.append(max(0, hi - lo))
        return positions_of(lo, hi, size, border)

    monkeypatch.setattr(padding, "positions_of", counted)
    rows = 1 << 16
    halo, part = cx.halo(2, border=border), Box((0,), (rows,))
    pad = halo.pad(part, (rows,))
    assert pad is not None and halo.boxes(part, (rows,), (rows,)) == (part,)
    x = np.arange(float(rows))
    assert np.array_equal(pad.apply(x, np), np.pad(x, 2, mode=border))  # type: ignore[call-overload]
    assert sum(asked) <= 16


@settings(deadline=None)
@given(st.data())
def test_gathering_pieces_pads_as_the_hull_does(data: Any) -> None:
    rank = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.integers(2, 6)) for _ in range(rank))
    borders = tuple(data.draw(st.sampled_from(("wrap", "edge", "reflect", 4.0))) for _ in shape)
    lo = tuple(data.draw(st.integers(-2, n - 1)) for n in shape)
    hi = tuple(data.draw(st.integers(max(low + 1, 1), n + 2)) for low, n in zip(lo, shape, strict=True))
    held = Box((0,) * rank, shape)
    hull = Box(  # a number stands for nothing in the array, so no more is read than is there
        tuple(0 if isinstance(border, str) else max(low, 0) for border, low in zip(borders, lo, strict=True)),
        tuple(n if isinstance(border, str) else min(h, n) for border, h, n in zip(borders, hi, shape, strict=True)),
    )
    pad = Pad(Box(lo, hi), hull, shape, borders)
    x = np.arange(float(np.prod(shape))).reshape(shape)
    cut = data.draw(st.integers(hull.lo[0], hull.hi[0]))
    parts = [Box(hull.lo, (cut, *hull.hi[1:])), Box((cut, *hull.lo[1:]), hull.hi)]
    parts = [part for part in parts if not part.empty]
    made = pad.gather([(box, x[box.slices(held.lo)]) for box in parts], np)
    assert np.array_equal(made, pad.apply(x[hull.slices(held.lo)], np))
