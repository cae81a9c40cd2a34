"""Random nodes of operators along axes: reductions, normalisations, sums, order."""

from __future__ import annotations

import numpy as np

from .node_making import Make, RandomNode, Rng, axes, axis, i64, numbers, opset, pick, shape


def reduction(kind: str) -> Make:
    def make(rng: Rng) -> RandomNode:
        x = numbers(rng, shape(rng, 1, empty=False), np.float32, 0.1, 2)
        at, given = opset(rng), {"keepdims": int(rng.integers(2))} if rng.random() < 0.8 else {}
        along = axes(rng, x.ndim) if rng.random() < 0.8 else None
        if at < (13 if kind == "ReduceSum" else 18):
            return RandomNode(kind, [x], given | ({"axes": along} if along else {}), opset=at)
        if rng.random() < 0.3:
            given["noop_with_empty_axes"] = int(rng.integers(2))
        return RandomNode(kind, [x, i64(along)] if along else [x], given, fixed=(1,) if along else (), opset=at)

    return make


def extreme(kind: str) -> Make:
    def make(rng: Rng) -> RandomNode:
        at, x = opset(rng), np.round(numbers(rng, shape(rng, 1, empty=False)))
        given = {"axis": axis(rng, x.ndim) if at >= 11 else int(rng.integers(x.ndim)), "keepdims": int(rng.integers(2))}
        if at >= 12 and rng.random() < 0.5:
            given["select_last_index"] = 1
        return RandomNode(kind, [x], given, opset=at)

    return make


def softmax(kind: str) -> Make:
    def make(rng: Rng) -> RandomNode:
        at, x = opset(rng), numbers(rng, shape(rng, 2, empty=False))
        given = {"axis": axis(rng, x.ndim) if at >= 11 else int(rng.integers(x.ndim))} if rng.random() < 0.7 else {}
        return RandomNode(kind, [x], given, opset=at)

    return make


def cum_sum(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1, empty=False), pick(rng, np.float32, np.int64))
    given = {name: int(rng.integers(2)) for name in ("exclusive", "reverse")}
    return RandomNode("CumSum", [x, i64(axis(rng, x.ndim))], given, fixed=(1,), opset=opset(rng, 11))


def top_k(rng: Rng) -> RandomNode:
    at, of = opset(rng), shape(rng, 1, empty=False)
    x = rng.permutation(int(np.prod(of))).reshape(of).astype(np.float32)
    along = axis(rng, x.ndim) if at >= 11 else int(rng.integers(x.ndim))
    k = int(rng.integers(1, x.shape[along] + 1))
    if at < 10:
        return RandomNode("TopK", [x], {"axis": along, "k": k}, 2, opset=at)
    given = {"axis": along} | ({"largest": int(rng.integers(2))} if at >= 11 else {})
    return RandomNode("TopK", [x, i64([k])], given, 2, (1,), at)


def layer_norm(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1, empty=False))
    along = axis(rng, x.ndim)
    of = x.shape[along % x.ndim :]
    given = {"axis": along, "epsilon": 1e-3}
    return RandomNode(
        "LayerNormalization",
        [x, numbers(rng, of)] + [numbers(rng, of)] * int(rng.integers(2)),
        given,
        opset=opset(rng, 17),
    )


def rms_norm(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1, empty=False))
    along = axis(rng, x.ndim)
    return RandomNode("RMSNormalization", [x, numbers(rng, x.shape[along % x.ndim :])], {"axis": along}, opset=23)


def batch_norm(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 2, empty=False))
    c = x.shape[1]
    return RandomNode("BatchNormalization", [x, *(numbers(rng, (c,)) for _ in range(3)), numbers(rng, (c,), low=0.1)],
                      {"epsilon": 1e-2} if rng.random() < 0.5 else {}, opset=opset(rng))  # fmt: skip


def instance_norm(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 3, empty=False))
    return RandomNode(
        "InstanceNormalization",
        [x, numbers(rng, x.shape[1:2]), numbers(rng, x.shape[1:2])],
        {"epsilon": 1e-2},
        opset=opset(rng),
    )


def group_norm(rng: Rng) -> RandomNode:
    groups, each = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    x = numbers(rng, (int(rng.integers(1, 3)), groups * each, *shape(rng, 1, 2, empty=False)))
    return RandomNode("GroupNormalization", [x, numbers(rng, (groups * each,)), numbers(rng, (groups * each,))],
                      {"num_groups": groups, "epsilon": 1e-2}, opset=21)  # fmt: skip


def lrn(rng: Rng) -> RandomNode:
    return RandomNode(
        "LRN",
        [numbers(rng, (2, int(rng.integers(1, 7)), 3, 2))],
        {"size": int(pick(rng, 1, 3, 5)), "alpha": 0.1},
        opset=opset(rng),
    )


def lp_norm(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1, empty=False), low=0.1)
    return RandomNode("LpNormalization", [x], {"axis": axis(rng, x.ndim), "p": pick(rng, 1, 2)}, opset=opset(rng))


def mean_variance(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 4, 4, empty=False))
    given = {"axes": sorted(a % 4 for a in axes(rng, 4))} if rng.random() < 0.6 else {}
    return RandomNode("MeanVarianceNormalization", [x], given, opset=opset(rng))


def hardmax(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1, empty=False))
    return RandomNode("Hardmax", [x], {"axis": axis(rng, x.ndim)}, opset=opset(rng, 13))
