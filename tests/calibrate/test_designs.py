"""Designed calls are small first, of many proportions, and free of memory of their own."""

from __future__ import annotations

import numpy as np
import pytest

from coexec.calibrate import designs
from coexec.calibrate.designs import DESIGNS, LARGEST, SIZES, operand, own, products
from coexec.errors import UnknownName


@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_begins_with_cheap_calls_of_several_sizes(name: str) -> None:
    cases = [case for case in DESIGNS[name].cases() if not case.together_only]
    costs = [case.cost for case in cases]
    assert costs == sorted(costs)
    assert costs[-1] / costs[0] > 1000
    for op in {case.op for case in cases}:
        assert len([case for case in cases if case.op == op]) >= 5
    designs.numbers.cache_clear()


def test_products_are_not_all_in_one_proportion() -> None:
    shapes = [(*case.inputs[0].shape, case.inputs[1].shape[1]) for case in products("float32")]
    assert len({tuple(n / shape[0] for n in shape) for shape in shapes}) > 5
    assert max(map(max, shapes)) == 4096


def test_operands_share_one_block_of_memory() -> None:
    first, second = operand((100, 100)), operand((7,))
    assert np.shares_memory(first, second)
    assert first.min() >= 0.5
    assert max(SIZES) * 4 == LARGEST


def test_the_users_calls_become_cases_the_smallest_first() -> None:
    def kernel(*arguments: object) -> None: ...

    (design,) = own([(kernel, [(np.zeros(100), 2.0), (np.zeros((3, 4)), 1.0)])])
    assert design.name == "kernel"
    assert [case.label for case in design.cases()] == ["3x4", "100"]
    assert all(case.own for case in design.cases())


def test_a_misspelt_operation_is_answered_with_the_right_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'matmul'"):
        designs.designs(["matmull"])
    assert [design.name for design in designs.designs(["reduce", "matmul"])] == ["matmul", "reduce"]
