"""Neighbours along a row by one load, and rows in tiles: which reads share one, and NumPy's bits wherever rows begin and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, compile_body, llvm_rows, streaming, together
from coexec.compile.llvm import Llvm
from coexec.compile.neighbours import spans
from coexec.compile.schedule import scheduled
from coexec.compile.trace import trace
from tests.compile.random_bodies import bits

WIDEST = 64  # bytes of a vector that is as long as a line of memory


def grid(*shape: int, dtype: str = "f8") -> Any:
    return (np.random.default_rng(3).random(shape) * 100).astype(dtype)


def heat(u: Any, out: Any) -> None:
    out[...] = u[1:-1, 1:-1] + 0.2 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])


def wide(u: Any, out: Any) -> None:
    out[...] = u[1:-1, :-8] - u[1:-1, 3:-5] + u[1:-1, 8:] - u[:-2, 4:-4]


def too_wide(u: Any, out: Any) -> None:
    out[...] = u[1:-1, :-40] - u[1:-1, 40:]


def along(u: Any, out: Any) -> None:
    out[...] = u[:-2] + u[1:-1] * 2 - u[2:]


def in_space(u: Any, out: Any) -> None:
    out[...] = u[1:-1, 1:-1, 1:-1] - u[2:, 1:-1, :-2] + u[1:-1, 2:, 2:] + u[1:-1, 1:-1, 2:] - u[1:-1, 1:-1, :-2]


def turned(u: Any, out: Any) -> None:
    out[...] = u[:, 1:-1] + u.T[:, 2:] - u[:, :-2]


def own(u: Any, out: Any) -> None:
    out[1:-1] = out[:-2] + out[2:] + u[1:-1] * u[:-2]


def first_row(u: Any, out: Any) -> None:
    out[0, 1:-1] = out[1, :-2] + out[1, 2:] + u[0, 1:-1]


def found(body: Callable[..., Any], u: Any, out: Any) -> list[tuple[int, int]]:
    return [
        span
        for group in scheduled(trace(body, {"u": u, "out": out}, {"out"}).stores)
        for span in spans(group, 8).values()
    ]


def test_reads_of_one_row_at_several_places_share_a_load() -> None:
    assert found(heat, grid(9, 9), grid(7, 7)) == [(0, 2)]
    assert found(wide, grid(9, 30), grid(7, 22)) == [(0, 8)]
    assert found(along, grid(30), grid(28)) == [(0, 2)]
    assert sorted(found(in_space, grid(9, 9, 9), grid(7, 7, 7))) == [(0, 2)]


def test_reads_that_lie_too_far_apart_or_in_arrays_that_the_loop_writes_do_not() -> None:
    assert found(too_wide, grid(9, 90), grid(7, 50)) == []
    assert found(first_row, grid(3, 30), grid(3, 30)) == []


def test_a_vector_of_a_row_is_loaded_once() -> None:
    groups = scheduled(trace(heat, {"u": grid(20, 40), "out": grid(18, 38)}, {"out"}).stores)
    loads = {}
    for register in (WIDEST, WIDEST // 2):
        writer = Llvm(register)
        writer.write_groups(groups, [True])
        kind = f"load <{register // 8} x double>, ptr %"
        loads[register] = sum(kind in line and "align 8" in line for line in writer.text().splitlines())
    # Eight rows together read ten, one alone three. Shorter vectors lie within lines more often than not; two are the same.
    assert loads == {WIDEST: 10 + 3, WIDEST // 2: 6}


def same(body: Callable[..., Any], u: Any, shape: tuple[int, ...], gap: int = 0) -> str:
    """Compare a compiled form with its body by bits, also beside what it may write, and return its text."""
    wanted, got = (np.full((*shape[:-1], shape[-1] + 2 * gap), 7, u.dtype) for _ in range(2))
    inner = (..., slice(gap, gap + shape[-1]))
    form = compile_body(body, {"u": u, "out": got[inner]}, writes={"out"})
    assert isinstance(form, Compiled), form
    body(u, wanted[inner])
    assert form(u, got[inner]) == ""
    np.testing.assert_array_equal(bits(got), bits(wanted))
    return form.text


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u2"])
@pytest.mark.parametrize("width", [1, 7, 8, 9, 31, 200])
def test_stencils_of_every_width_have_numpys_bits(dtype: str, width: int) -> None:
    pytest.importorskip("llvmlite")
    kind = "f8" if dtype in ("i4", "u2") else dtype
    same(heat, grid(6, width + 2, dtype=kind), (4, width), gap=3)
    same(wide, grid(6, width + 8, dtype=dtype), (4, width), gap=1)
    same(along, grid(width + 2, dtype=dtype), (width,))
    same(in_space, grid(5, 6, width + 2, dtype=dtype), (3, 4, width))
    same(own, grid(width + 2, dtype=dtype), (width + 2,))


def test_rows_of_a_transposed_view_are_not_taken_for_rows_of_the_array() -> None:
    pytest.importorskip("llvmlite")

    def body(u: Any, out: Any) -> None:
        out[...] = u[:, :, 1:] + u.transpose(1, 0, 2)[:, :, :-1]

    same(body, grid(6, 6, 40), (6, 6, 39))
    same(turned, grid(40, 40)[:, :40], (40, 38))


@pytest.mark.parametrize("rows", [2, 8, 17])
@pytest.mark.parametrize("width", [128, 767, 768, 775, 1541])
@pytest.mark.parametrize("gap", [0, 5])
def test_tiles_of_streamed_stencils_write_every_element_once(
    rows: int, width: int, gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(streaming, "last_cache_bytes", lambda: 256)
    monkeypatch.setattr(together, "MOST", 1)  # as on processors with shorter vectors
    text = same(heat, grid(rows + 2, width + 2), (rows, width), gap)
    assert "!nontemporal" in text
    assert f", {llvm_rows.TILE // 8}" in text  # it goes in tiles


def test_tiles_of_stencils_in_space_have_numpys_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(streaming, "last_cache_bytes", lambda: 256)
    monkeypatch.setattr(together, "MOST", 1)
    assert "!nontemporal" in same(in_space, grid(5, 12, 1002), (3, 10, 1000))
