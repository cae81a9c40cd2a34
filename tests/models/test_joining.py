"""Products with weights that are known take what follows them with them: fewer operations, the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.models.building import NetBuilder
from coexec.models.joining import joined
from coexec.models.operators.linear import LINEAR, AfterProduct

RNG = np.random.default_rng(5)
SHAPE = (2, 5, 6)


def weights(net: NetBuilder, name: str, *shape: int) -> str:
    return net.constant(name, RNG.standard_normal(shape).astype(np.float32))


def model(build: Any, shape: tuple[int, ...] = SHAPE) -> cx.Model:
    net = NetBuilder("net")
    return cx.Model(net.done(build(net, net.input("x", shape))))


def biased(net: NetBuilder, x: str, width: int = 6) -> str:
    product = net.matmul(x, weights(net, f"w{width}", 6, width))
    return net.same("Add", product, weights(net, f"b{width}", width))


def after(made: cx.Model) -> list[AfterProduct]:
    return [node.attributes["after"] for node in joined(made.running).operations if node.kind == LINEAR]


def check(made: cx.Model) -> None:
    """Compare one call with calls of operations, on a core and by torch."""
    x = RNG.standard_normal(made.inputs["x"].shape).astype(np.float32)
    with cx.Runtime("cpu:0", store="off", replay=False):
        right = np.array(made(x))
    with cx.Runtime("cpu:0", store="off"):
        np.testing.assert_allclose(made(x), right, rtol=1e-5, atol=1e-5)
    with cx.Runtime("torch:cpu", store="off"):
        np.testing.assert_allclose(made(x), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["", "Relu", "Gelu"])
@pytest.mark.parametrize("shortcut", [False, True])
def test_bias_shortcut_and_activation_are_part_of_a_product(kind: str, shortcut: bool) -> None:
    pytest.importorskip("torch")

    def build(net: NetBuilder, x: str) -> str:
        y = biased(net, x)
        y = net.same("Add", x, y) if shortcut else y
        return net.same(kind, y) if kind else y

    made = model(build)
    assert after(made) == [AfterProduct(biased=True, added=shortcut, activation=kind.lower())]
    assert len(joined(made.running).operations) == 1
    check(made)


def test_a_layer_whose_weights_are_turned_is_a_product_too() -> None:
    pytest.importorskip("torch")
    made = model(lambda net, x: net.same("Relu", net.fc(x, 3)), (4, 6))
    assert after(made) == [AfterProduct(transposed=True, biased=True, activation="relu")]
    check(made)


def test_what_somebody_else_reads_stays() -> None:
    pytest.importorskip("torch")

    def build(net: NetBuilder, x: str) -> str:
        y = biased(net, x)
        return net.same("Mul", net.same("Gelu", y), y)

    made = model(build)
    assert after(made) == [AfterProduct(biased=True)]
    check(made)


def test_products_of_two_computed_values_and_other_sums_stay() -> None:
    pytest.importorskip("torch")

    def build(net: NetBuilder, x: str) -> str:
        square = net.matmul(x, net.transpose(x, (0, 2, 1)))
        wide = net.matmul(square, weights(net, "w", 5, 6))
        return net.same("Add", wide, weights(net, "rows", 1, 1, 6))

    made = model(build)
    assert after(made) == [AfterProduct()], "a sum with other axes is one of its own"
    assert joined(made.running).kinds() == {"Add": 1, LINEAR: 1, "MatMul": 1, "Transpose": 1}
    check(made)


def test_a_sum_with_a_value_that_comes_later_stays() -> None:
    pytest.importorskip("torch")

    def build(net: NetBuilder, x: str) -> str:
        first = biased(net, x)
        return net.same("Add", first, net.same("Relu", net.matmul(x, weights(net, "later", 6, 6))))

    made = model(build)
    assert [one.added for one in after(made)] == [False, False]
    check(made)


def test_a_product_whose_shortcut_is_its_operand_seen_otherwise_reads_the_right_elements() -> None:
    pytest.importorskip("torch")

    def build(net: NetBuilder, x: str) -> str:
        y = net.same("Relu", biased(net, x))
        turned = net.transpose(y, (1, 0))
        return net.same("Add", net.matmul(y, weights(net, "w", 6, 6)), turned)

    made = model(build, (6, 6))
    assert after(made)[-1] == AfterProduct(added=True)
    check(made)
