"""Random programs, lowered and then run on model memory in random legal orders: the same values as sequential NumPy."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st

from coexec.testing.replay import at_random, replay
from tests.lower.programs import lowered, programs


@settings(max_examples=250)
@given(programs(), st.integers(0, 2**16))
def test_any_legal_order_computes_what_numpy_computes(program: dict[str, Any], seed: int) -> None:
    twin = lowered(program)
    assert replay(twin.g.emitted, at_random(seed)) == {}
    twin.check()


@settings(max_examples=250)
@given(programs())
def test_whatever_is_lowered_keeps_the_invariants(program: dict[str, Any]) -> None:
    lowered(program).g.verify()
