"""Several rows written together: of which loops, and NumPy's bits wherever rows and groups of them begin and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, compile_body, streaming
from coexec.compile.graph import nodes_of
from coexec.compile.schedule import scheduled
from coexec.compile.together import MOST, rows_together
from coexec.compile.trace import trace
from tests.compile.random_bodies import bits


def heat(u: Any, out: Any) -> None:
    out[...] = u[1:-1, 1:-1] + 2 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])


def wave(u: Any, out: Any) -> None:
    out[...] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) * 2 - out + u[1:-1, 1:-1]


def in_space(u: Any, out: Any) -> None:
    out[...] = u[1:-1, 1:-1, 1:-1] - u[2:, 1:-1, :-2] + u[1:-1, 2:, 2:] + u[:-2, :-2, 2:] - u[1:-1, 1:-1, :-2]


def upwards(u: Any, out: Any) -> None:
    out[...] = np.where(u[2:, 2:] > u[:-2, :-2], u[2:, :-2] - u[1:-1, 2:], u[1:-1, 1:-1])


def own_rows(u: Any, out: Any) -> None:
    out[1:-1] = out[:-2] - out[2:] + u[2:-2, 1:-1] + u[1:-3, 1:-1]


def long(u: Any, out: Any) -> None:
    total = u[1:-1, 1:-1]
    for _ in range(90):
        total = total * 3 - u[2:, 1:-1]
    out[...] = total


def rows(body: Callable[..., Any], *, dtype: str = "f8", streams: bool = False, stores: int = 1) -> int:
    given = {"u": np.ones((12, 40), dtype), "out": np.ones((10, 38), dtype)}
    group = scheduled(trace(body, given, {"out"}).stores)[0] * stores
    nodes = list(nodes_of(*(store.value for store in group)))
    return rows_together(group, nodes, 64 // np.dtype(dtype).itemsize, streams=streams)


def test_short_bodies_of_one_width_write_rows_together() -> None:
    assert rows(heat) == rows(wave, dtype="f4") == rows(heat, streams=True) == MOST
    assert rows(long) == 1  # its text would take long to compile
    assert rows(heat, streams=True, stores=2) == 1  # ends of rows are written twice
    assert rows(upwards, dtype="i2") == MOST
    assert rows(upwards, dtype="i2", streams=True) == 1


def same(body: Callable[..., Any], shape: tuple[int, ...], dtype: str, gap: int, halo: int = 1) -> str:
    """Compare a compiled form with its body by bits, also beside what it may write, and return its text."""
    rng = np.random.default_rng(shape[-1])
    u = (rng.random(tuple(extent + 2 * halo for extent in shape)) * 100).astype(dtype)
    all_of_it = (rng.random((*shape[:-1], shape[-1] + 2 * gap)) * 9).astype(dtype)
    wanted, got = all_of_it.copy(), all_of_it.copy()
    inner = (..., slice(gap, gap + shape[-1]))
    form = compile_body(body, {"u": u, "out": got[inner]}, writes={"out"})
    assert isinstance(form, Compiled), form
    body(u, wanted[inner])
    assert form(u, got[inner]) == ""
    np.testing.assert_array_equal(bits(got), bits(wanted))
    return form.text


@pytest.mark.parametrize("body", [heat, wave, upwards, own_rows])
@pytest.mark.parametrize("height", [2, 19])
@pytest.mark.parametrize(("width", "dtype"), [(3, "f8"), (37, "f8"), (16, "f4"), (70, "u2")])
def test_groups_of_rows_have_numpys_bits(body: Callable[..., Any], height: int, width: int, dtype: str) -> None:
    pytest.importorskip("llvmlite")
    same(body, (height + 2 * (body is own_rows), width), dtype, gap=3)


@pytest.mark.parametrize("body", [heat, upwards])
@pytest.mark.parametrize("height", [2, 8, 21])
@pytest.mark.parametrize(
    ("width", "dtype", "gap"), [(256, "f8", 0), (261, "f8", 3), (521, "f4", 3), (519, "i4", 1), (515, "u2", 3)]
)
def test_results_past_the_caches_are_written_to_every_element_and_to_none_beside_them(
    body: Callable[..., Any], height: int, width: int, dtype: str, gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(streaming, "last_cache_bytes", lambda: 256)
    assert "!nontemporal" in same(body, (height, width), dtype, gap)


def test_planes_have_numpys_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    same(in_space, (3, 11, 37), "f8", gap=1)
    monkeypatch.setattr(streaming, "last_cache_bytes", lambda: 256)
    assert "!nontemporal" in same(in_space, (3, 11, 1003), "f8", gap=1)
