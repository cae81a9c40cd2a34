"""Memories that are full: what waits, what goes, what is divided further, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import DoesNotFit
from coexec.testing import GraphBuilder
from coexec.testing.replay import at_random, replay
from tests.lower.programs import Twin, programs


def attempted(program: dict[str, Any]) -> tuple[Twin, int]:
    """Return the program, lowered, without the steps that were refused; and how many those were."""
    twin, refused = Twin(program), 0
    for step in program["steps"]:
        try:
            twin.step(step)
        except DoesNotFit:
            refused += 1
    twin.finish()
    return twin, refused


@st.composite
def limited_programs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a program for devices whose memories hold a few rows, or nearly everything."""
    program = draw(programs(most=14))
    return {**program, "shared": False, "capacity": 8 * draw(st.integers(1, 80))}


@settings(max_examples=250)
@given(limited_programs(), st.integers(0, 2**16))
def test_any_legal_order_in_limited_memories_computes_what_numpy_computes(program: dict[str, Any], seed: int) -> None:
    twin, _ = attempted(program)
    assert replay(twin.g.emitted, at_random(seed)) == {}
    twin.check()


@settings(max_examples=250)
@given(limited_programs())
def test_no_legal_order_exceeds_a_memory_and_all_invariants_hold(program: dict[str, Any]) -> None:
    attempted(program)[0].g.verify()


def test_parts_that_are_cut_for_lack_of_memory_keep_to_granules() -> None:
    """Pairs are swapped: a part that began between the two of a pair would be wrong."""

    @cx.kernel(split=0, granule=2, x=cx.read, y=cx.write)
    def swap(x, y):
        y[0::2], y[1::2] = x[1::2], x[0::2]

    g = GraphBuilder(1, capacity=8 * 14)
    values = np.arange(30.0)
    x, y = g.array(30, data=values), g.array(30)
    with g:
        task = swap(x, y)
    read = g.read(y)
    g.verify()
    assert len(g.kernels(task)) > 4
    assert replay(g.emitted, at_random(1)) == {}
    assert g.delivered[read.id].reshape(15, 2).tolist() == values.reshape(15, 2)[:, ::-1].tolist()
