"""Rows asked for ahead of time: in which loops, how far, and that it changes no results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, compile_body
from coexec.compile.llvm import Llvm
from coexec.compile.prefetching import furthest_rows
from coexec.compile.schedule import scheduled
from coexec.compile.trace import trace
from tests.compile.random_bodies import bits


def wave(u, out, k):
    out[...] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) * k - out + u[1:-1, 1:-1]


def in_space(u, out):
    out[...] = u[1:-1, 1:-1, 1:-1] - u[2:, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, 1:-1, 2:]


def along_rows(u, out):
    out[...] = u[:, 1:] - u[:, :-1]


def backwards(u, out):
    out[...] = u[::-1, 1:] - u[:, :-1]


def grid(*shape: int) -> Any:
    return np.random.default_rng(3).random(shape)


WAVE: dict[str, Any] = {"u": grid(42, 102), "out": grid(40, 100), "k": 0.25}


def furthest(body: Any, given: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the rows furthest ahead, by the array's name."""
    traced = trace(body, given, {"out"})
    (group,) = scheduled(traced.stores)
    names = {id(traced.parameters[name]): name for name in ("u", "out")}
    return {names[buffer]: rows for buffer, rows in furthest_rows(group).items()}


def test_the_lowest_row_leads_and_other_arrays_of_the_loop_are_asked_for_too() -> None:
    assert furthest(wave, WAVE) == {"u": (2,), "out": (0,)}
    assert furthest(in_space, {"u": grid(22, 32, 42), "out": grid(20, 30, 40)}) == {"u": (2, 1)}


def test_loops_that_go_through_memory_line_by_line_ask_for_nothing() -> None:
    assert furthest(along_rows, {"u": grid(20, 31), "out": grid(20, 30)}) == {}
    assert furthest(backwards, {"u": grid(20, 31), "out": grid(20, 30)}) == {}


def test_each_array_is_asked_for_once_per_vector_and_not_for_single_elements() -> None:
    pytest.importorskip("llvmlite")
    groups = scheduled(trace(wave, WAVE, {"out"}).stores)
    for register, vector, asked in (
        (64, True, 2 * 8 + 2),
        (32, True, 2),
        (32, False, 0),
    ):  # eight rows together, and one alone
        writer = Llvm(register)
        writer.write_groups(groups, [vector])
        assert writer.text().count("call void @llvm.prefetch") == asked


@pytest.mark.parametrize("shape", [(3, 3), (3, 200), (40, 3), (42, 102)])
@pytest.mark.parametrize("more", [0, 7])
def test_asking_beyond_the_last_row_changes_nothing(shape: tuple[int, int], more: int) -> None:
    pytest.importorskip("llvmlite")
    rows, columns = shape  # of which there are more in memory
    given = WAVE | {
        "u": grid(rows, columns + more)[:, :columns],
        "out": grid(rows - 2, columns - 2 + more)[:, : columns - 2],
    }
    wanted = given | {"out": given["out"].copy()}
    wave(**wanted)
    form = compile_body(wave, given, writes={"out"})
    assert isinstance(form, Compiled), form
    assert form(*(given[name] for name in form.names)) == ""
    np.testing.assert_array_equal(bits(np.ascontiguousarray(given["out"])), bits(wanted["out"]))
