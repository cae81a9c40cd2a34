"""A chunk in pieces computes what it computes whole: every range mapper, results, reductions, debug mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.plan import split
from coexec.plan.candidate import Candidate
from coexec.plan.division.pieces import Blocking
from tests.inside import planner_of
from tests.ops.forced import DEVICES


class Always(Blocking):
    """Blocks whatever can be blocked."""

    def choose(self, candidates: Any, blocked: Any, work: Any) -> list[Candidate]:
        twins = {c.name: c for c in blocked}
        return [twins.get(c.name, c) for c in candidates]


@contextmanager
def in_pieces(devices: str, cache: int, *, debug: bool = False) -> Iterator[cx.Runtime]:
    """Open a runtime that computes pieces of `cache` bytes."""
    with cx.Runtime(devices, debug=debug) as runtime:
        planner_of(runtime)._blocking = Always(cache)
        planner_of(runtime).divider._cache = cache
        yield runtime


@cx.kernel(split=0, x=cx.read, y=cx.read, out=cx.write)
def plain(x, y, out):
    out[...] = x * 2 + y


@cx.kernel(split=0, table=cx.read(cx.all), x=cx.read, row=cx.read(cx.fixed(slice(1, 2))), out=cx.write)
def with_tables(table, x, row, out):
    out[...] = x + table.sum() + row[0]


@cx.kernel(split=0, u=cx.read(cx.halo([(1, 1)], border="inside")), out=cx.update)
def inside(u, out):
    out[...] = u[2:] - 2 * u[1:-1] + u[:-2]


@cx.kernel(split=0, u=cx.read(cx.halo([(2, 1)])), out=cx.write)
def clipped(u, out, chunk):
    first, box = chunk.lo[0], u
    start = first - max(0, first - 2)
    for i in range(len(out)):
        out[i] = box[max(0, start + i - 2) : start + i + 2].sum(axis=0)


@cx.kernel(split=0, x=cx.read(cx.axis(0)), out=cx.write)
def with_axis(x, out, chunk):
    out[...] = x[chunk.lo[0] : chunk.hi[0]] * len(x)


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def returned(x):
    return x * 3


@cx.kernel(split=0, x=cx.read, returns=(cx.like("x"), cx.like("x", dtype="f4")))
def two_returned(x):
    return x + 1, (x - 1).astype("f4")


@cx.kernel(split=0, x=cx.read, s=cx.read(cx.all), out=cx.write)
def with_a_point(x, s, out):
    assert isinstance(s, np.ndarray) and s.shape == ()
    out[...] = x * s


@cx.kernel(split=0, x=cx.read, out=cx.write, flags=cx.write)
def two_outputs(x, out, flags, *, by, xp):
    out[...] = xp.maximum(x, by)
    flags[...] = x > by


def numbers(rows: int) -> Any:
    return (np.arange(rows * 3).reshape(rows, 3) * 7 % 11).astype(float)


def calls(rows: int) -> dict[str, tuple[Any, list[Any], list[Any]]]:
    """Return every kernel with its inputs, and its outputs as they are before."""
    x, out = numbers(rows), np.full((rows, 3), -1.0)
    return {
        "plain": (plain, [x, x[::-1].copy()], [out]),
        "tables": (with_tables, [np.arange(4.0), x, x[: min(rows, 5)].repeat(2, 0)], [out]),
        "inside": (inside, [x], [out]),
        "clipped": (clipped, [x], [out]),
        "point": (with_a_point, [x, np.array(2.5)], [out]),
        "axis": (with_axis, [x], [out]),
    }


def called(kernel: Any, inputs: list[Any], outputs: list[Any], **options: Any) -> list[Any]:
    arrays = [cx.array(a) for a in (*inputs, *outputs)]
    kernel(*arrays, **options)
    return [np.asarray(a) for a in arrays[len(inputs) :]]


@pytest.mark.parametrize("devices", DEVICES[:2])
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("name", calls(5))
def test_pieces_equal_the_whole(devices, debug, name) -> None:
    for rows in (1, 2, 3, 7, 50):
        kernel, inputs, outputs = calls(rows)[name]
        with cx.Runtime("cpu:0"):
            expected = called(kernel, inputs, outputs)
        with in_pieces(devices, 100, debug=debug):
            assert "pieces" in kernel.plan(*[cx.array(a) for a in (*inputs, *outputs)]).why or rows < 4
            for mine, other in zip(called(kernel, inputs, outputs), expected, strict=True):
                np.testing.assert_array_equal(mine, other)


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(1, 2000), st.sampled_from(sorted(calls(5))))
def test_pieces_of_any_size_equal_the_whole(rows, cache, name) -> None:
    kernel, inputs, outputs = calls(rows)[name]
    with cx.Runtime("cpu:0"):
        expected = called(kernel, inputs, outputs)
    with in_pieces("cpu:0", cache):
        for mine, other in zip(called(kernel, inputs, outputs), expected, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("debug", [False, True])
def test_results_find_their_places(debug) -> None:
    x = numbers(41)
    with in_pieces("cpu:0", 100, debug=debug):
        np.testing.assert_array_equal(np.asarray(returned(cx.array(x))), x * 3)
        a, b = two_returned(cx.array(x))
        np.testing.assert_array_equal(np.asarray(a), x + 1)
        np.testing.assert_array_equal(np.asarray(b), (x - 1).astype("f4"))
        out, flags = cx.zeros(x.shape), cx.zeros(x.shape, bool)
        two_outputs(cx.array(x), out, flags, by=4.0)
        np.testing.assert_array_equal(np.asarray(out), np.maximum(x, 4))
        np.testing.assert_array_equal(np.asarray(flags), x > 4)


def test_views_are_cut_into_pieces_as_they_are_seen() -> None:
    x = np.arange(120.0).reshape(12, 10)
    with in_pieces("cpu:0", 100):
        a, out = cx.array(x), cx.zeros((20, 24))
        plain(a.T[::2], a.T[1::2], out[5:10, ::2])
        np.testing.assert_array_equal(np.asarray(out)[5:10, ::2], x.T[::2] * 2 + x.T[1::2])
        assert not np.asarray(out)[:5].any() and not np.asarray(out)[5:10, 1::2].any()


def test_debug_mode_finds_what_a_piece_left_unassigned() -> None:
    @cx.kernel(split=0, out=cx.write)
    def lazy(out, chunk):
        out[: 1 if chunk.lo[0] > 20 else None] = 1

    with in_pieces("cpu:0", 64, debug=True):
        out = cx.zeros(40)
        lazy(out)
        with pytest.raises(cx.TaskFailed, match="left element"):
            np.asarray(out)


# Reductions: the blocks of one device are pieces of one chunk -----------------------------------------------------------


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"), most=cx.reduce("max"))
def totals(x, total, most):
    total += x.sum(axis=0)
    np.maximum(most, x.max(), out=most)


def padded(border: Any) -> Any:
    @cx.kernel(split=0, over="x", x=cx.read(cx.halo([(1, 2)], border=border)), s=cx.reduce("sum"), name=f"pad_{border}")
    def body(x, s, chunk):
        s += (x[:-3] + 3 * x[3:]).sum() + chunk.lo[0] * 0

    return body


BORDERS: dict[Any, dict[str, Any]] = {
    "wrap": {"mode": "wrap"},
    "edge": {"mode": "edge"},
    "reflect": {"mode": "reflect"},
    5.0: {"mode": "constant", "constant_values": 5.0},
}
PADDED = {border: padded(border) for border in BORDERS}


@pytest.fixture(params=DEVICES[:2], scope="module")
def small_blocks(request):
    with pytest.MonkeyPatch.context() as patch, cx.Runtime(request.param):
        patch.setattr(split, "BLOCK_ELEMENTS", 9)
        yield request.param


@pytest.mark.parametrize("rows", [1, 3, 10, 77, 500])
def test_reductions_in_pieces_equal_numpy(small_blocks, rows) -> None:
    x = np.arange(rows * 3).reshape(rows, 3) * 5 % 101
    total, most = cx.zeros(3, int), cx.full((), -5)
    totals(cx.array(x), total, most)
    np.testing.assert_array_equal(np.asarray(total), x.sum(axis=0))
    assert most.item() == x.max()


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("rows", [4, 10, 77, 300])
def test_pieces_see_beyond_the_border(small_blocks, border, rows) -> None:
    x = np.arange(rows * 3.0).reshape(rows, 3) * 5 % 101
    s = cx.zeros(())
    PADDED[border](cx.array(x), s)
    wide = np.pad(x, [(1, 2), (0, 0)], **BORDERS[border])
    assert s.item() == (wide[:-3] + 3 * wide[3:]).sum()
