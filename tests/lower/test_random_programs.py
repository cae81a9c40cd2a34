"""Random programs, lowered and then run on model memory in random legal orders: the same values as sequential NumPy.

Small ones in every legal order. Arrays of one and two axes, strided and reversed views, reductions, host tasks and reads,
memories with and without links between them, horizons and epochs anywhere: see programs.py.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st

from coexec.graph.instruction import Instruction
from coexec.testing.every_order import every_order, few_orders
from coexec.testing.model_memory import at_random, run_all
from tests.lower.programs import Twin, lowered, programs

SETS = 300  # of finished instructions that a small program may have


@settings(max_examples=250)
@given(programs(), st.integers(0, 2**16))
def test_any_legal_order_computes_what_numpy_computes(program: dict[str, Any], seed: int) -> None:
    twin = lowered(program)
    assert run_all(twin.g.emitted, at_random(seed)) == {}
    twin.check()


@settings(max_examples=250)
@given(programs())
def test_whatever_is_lowered_keeps_the_invariants(program: dict[str, Any]) -> None:
    lowered(program).g.verify()


def small(program: dict[str, Any]) -> Twin:
    """Return as much of a program as can be run in every order."""
    twin = lowered(program)
    while not few_orders(twin.g.emitted, SETS):
        program = {**program, "steps": program["steps"][:-1]}
        twin = lowered(program)
    return twin


@settings(max_examples=80)
@given(programs(most=5))
def test_every_legal_order_computes_what_numpy_computes(program: dict[str, Any]) -> None:
    twin = small(program)

    def over(instruction: Instruction) -> None:
        if instruction.kind == "fence":
            assert instruction.task is not None
            twin.check_one(instruction.task.id)

    every_order(twin.g.emitted, over, limit=SETS)
    twin.check()
