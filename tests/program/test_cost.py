"""What a kernel says about its own cost, checked when it is declared."""

from __future__ import annotations

import pytest

import coexec as cx
from coexec.errors import ArgumentError
from coexec.program.cost import NOTHING_SAID, declare_cost


def test_saying_nothing_costs_nothing() -> None:
    assert declare_cost(None, None, None) is NOTHING_SAID
    assert NOTHING_SAID.takes == frozenset()


def test_functions_are_asked_by_the_names_of_their_parameters() -> None:
    cost = declare_cost(lambda a, k: a * k, {"edges": lambda graph: 2 * len(graph)}, None)
    assert cost.takes == {"a", "k", "graph"}
    assert cost.flops is not None and cost.flops.value({"k": 3, "a": 2, "graph": "abc"}) == 6.0
    assert cost.features[0].name == "edges" and cost.features[0].value({"graph": "abc"}) == 6.0


def test_a_number_of_operations_counts_per_point() -> None:
    assert declare_cost(5, None, None).per_point == 5.0
    assert declare_cost(5, None, None).flops is None
    for nonsense in (-1, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="flops="):
            declare_cost(nonsense, None, None)


def test_what_is_no_function_is_an_error_that_says_what_to_give() -> None:
    with pytest.raises(ArgumentError, match=r"features\['edges'\] is 3; give a function"):
        declare_cost(None, {"edges": 3}, None)  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match=r"weight=2.0 is no function; give weight\(rows\)"):
        declare_cost(None, None, 2.0)  # type: ignore[arg-type]


def test_a_name_that_is_no_parameter_is_an_error_of_the_call() -> None:
    cost = declare_cost(lambda missing: 1.0, None, None)
    assert cost.flops is not None
    with pytest.raises(ArgumentError, match=r"flops asks for 'missing', which is no parameter of the kernel \(x, y\)"):
        cost.flops.value({"x": 1, "y": 2})


def test_kernels_know_which_scalars_their_cost_depends_on() -> None:
    @cx.kernel(split=0, y=cx.write, flops=lambda y, k: y.size * k)
    def work(y, k, other):
        y[...] = k

    assert work.looked_at == ("k",)


@pytest.mark.parametrize("policy", ["fast", "Static"])
def test_an_unknown_policy_is_an_error_with_the_nearest_name(policy) -> None:
    @cx.kernel(split=0, y=cx.write)
    def work(y):
        y[...] = 0

    with pytest.raises(cx.CoexecError, match="policy"):
        work.using(policy=policy)
