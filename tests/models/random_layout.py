"""Random nodes of operators that move elements, and of resizing."""

from __future__ import annotations

from typing import Any

import numpy as np

from .node_making import Make, RandomNode, Rng, axes, axis, broadcast, i64, numbers, opset, pick, shape


def concat(rng: Rng) -> RandomNode:
    at, of = opset(rng), list(shape(rng, 1))
    along = axis(rng, len(of)) if at >= 11 else int(rng.integers(len(of)))
    parts = []
    for _ in range(rng.integers(1, 4)):
        of[along] = int(rng.integers(0, 4))
        parts.append(numbers(rng, of))
    return RandomNode("Concat", parts, {"axis": along}, opset=at)


def split(rng: Rng) -> RandomNode:
    at, x = opset(rng), numbers(rng, shape(rng, 1, size=7, empty=False))
    along = axis(rng, x.ndim) if at >= 11 else int(rng.integers(x.ndim))
    size = x.shape[along]
    count = int(rng.integers(1, min(3, size) + 1))
    cuts = np.sort(rng.integers(0, size + 1, count - 1))
    sizes = [int(v) for v in np.diff([0, *cuts, size])]
    if at < 13:
        return RandomNode("Split", [x], {"axis": along, "split": sizes}, count, opset=at)
    if at >= 18 and rng.random() < 0.4:
        return RandomNode("Split", [x], {"axis": along, "num_outputs": count}, count, opset=at)
    return RandomNode("Split", [x, i64(sizes)], {"axis": along}, count, (1,), at)


def transpose(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1))
    given = {"perm": [int(a) for a in rng.permutation(x.ndim)]} if rng.random() < 0.8 else {}
    return RandomNode("Transpose", [x], given, opset=opset(rng))


def reshape(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1))
    target = [*x.shape[:1], int(np.prod(x.shape[1:], dtype=int))] if rng.random() < 0.6 else [x.size]
    if rng.random() < 0.5 and x.size:
        target[rng.integers(len(target))] = -1
    elif not x.size:
        target = list(x.shape)  # a zero copies the size at its place
    elif rng.random() < 0.5:
        target[0] = 0 if target[0] == x.shape[0] else target[0]
    return RandomNode("Reshape", [x, i64(target)], fixed=(1,), opset=opset(rng))


def slice_(rng: Rng) -> RandomNode:
    at, x = opset(rng), numbers(rng, shape(rng, 1, size=7))
    along = axes(rng, x.ndim) if at >= 10 else sorted(a % x.ndim for a in axes(rng, x.ndim))
    starts = [int(v) for v in rng.integers(-9, 9, len(along))]
    ends = [int(v) if rng.random() < 0.8 else 2**31 for v in rng.integers(-9, 9, len(along))]
    if at < 10:
        return RandomNode("Slice", [x], {"starts": starts, "ends": ends, "axes": along}, opset=at)
    steps = [int(pick(rng, 1, 2, -1, -2)) for _ in along]
    inputs = [x, i64(starts), i64(ends), i64(along), i64(steps)][: 5 if rng.random() < 0.7 else 4]
    return RandomNode("Slice", inputs, fixed=tuple(range(1, len(inputs))), opset=at)


def gather(rng: Rng) -> RandomNode:
    at, x = opset(rng), numbers(rng, shape(rng, 1, empty=False), pick(rng, np.float32, np.int64))
    along = axis(rng, x.ndim)
    n = x.shape[along]
    return RandomNode(
        "Gather", [x, rng.integers(-n if at >= 11 else 0, n, shape(rng, 0, 2))], {"axis": along}, opset=at
    )


def gather_elements(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1, empty=False))
    along = axis(rng, x.ndim)
    of = [int(rng.integers(1, n + 1)) for n in x.shape]
    return RandomNode(
        "GatherElements", [x, rng.integers(-x.shape[along], x.shape[along], of)], {"axis": along}, opset=opset(rng, 11)
    )


def scatter_elements(kind: str, least: int) -> Make:
    def make(rng: Rng) -> RandomNode:
        at, x = opset(rng, least), numbers(rng, shape(rng, 1, empty=False))
        along = int(rng.integers(x.ndim)) if kind == "Scatter" else axis(rng, x.ndim)
        of = [int(rng.integers(1, n + 1)) for n in x.shape]
        index = np.argsort(rng.random(x.shape), axis=along)[tuple(slice(n) for n in of)]  # no place twice
        given: dict[str, Any] = {"axis": along}
        if kind != "Scatter" and at >= 18 and rng.random() < 0.5:
            given["reduction"] = pick(rng, "add", "mul", "max", "min")
        return RandomNode(
            kind, [x, index.astype(np.int64), numbers(rng, of)], given, opset=9 if kind == "Scatter" else at
        )

    return make


def gather_nd(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1, 3, empty=False))
    batch = int(rng.integers(0, x.ndim))
    depth = int(rng.integers(1, x.ndim - batch + 1))
    lead = (*x.shape[:batch], *shape(rng, 0 if batch else 1, 2, empty=False))
    index = np.stack([rng.integers(-n, n, lead) for n in x.shape[batch : batch + depth]], axis=-1)
    return RandomNode("GatherND", [x, index.astype(np.int64)], {"batch_dims": batch}, opset=opset(rng, 12))


def scatter_nd(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1, 3, empty=False))
    depth = int(rng.integers(1, x.ndim + 1))
    places = rng.permutation(int(np.prod(x.shape[:depth])))[: rng.integers(1, 4)]
    index = np.stack(np.unravel_index(places, x.shape[:depth]), axis=-1).astype(np.int64)
    return RandomNode("ScatterND", [x, index, numbers(rng, (len(places), *x.shape[depth:]))], opset=opset(rng, 11))


def squeeze(rng: Rng) -> RandomNode:
    at, of = opset(rng), [1 if rng.random() < 0.5 else n for n in shape(rng, 1)]
    ones = [a for a, n in enumerate(of) if n == 1]
    x = numbers(rng, of)
    if not ones or rng.random() < 0.2:
        return RandomNode("Squeeze", [x], opset=at)
    along = [a - (len(of) if at >= 11 and rng.random() < 0.5 else 0) for a in ones[: rng.integers(1, len(ones) + 1)]]
    if at < 13:
        return RandomNode("Squeeze", [x], {"axes": along}, opset=at)
    return RandomNode("Squeeze", [x, i64(along)], fixed=(1,), opset=at)


def unsqueeze(rng: Rng) -> RandomNode:
    at, x = opset(rng), numbers(rng, shape(rng, 0, 3))
    n = x.ndim + int(rng.integers(1, 3))
    along = [int(a) - (n if at >= 11 and rng.random() < 0.5 else 0) for a in np.sort(rng.permutation(n)[: n - x.ndim])]
    if at < 13:
        return RandomNode("Unsqueeze", [x], {"axes": along}, opset=at)
    return RandomNode("Unsqueeze", [x, i64(along)], fixed=(1,), opset=at)


def flatten(rng: Rng) -> RandomNode:
    at, x = opset(rng), numbers(rng, shape(rng, 1))
    return RandomNode("Flatten", [x], {"axis": int(rng.integers(-x.ndim if at >= 11 else 0, x.ndim + 1))}, opset=at)


def expand(rng: Rng) -> RandomNode:
    of = shape(rng, 1)
    x = numbers(rng, broadcast(rng, of))
    return RandomNode("Expand", [x, i64([1 if rng.random() < 0.2 else n for n in of])], fixed=(1,), opset=opset(rng))


def tile(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1))
    return RandomNode("Tile", [x, i64([int(v) for v in rng.integers(0, 3, x.ndim)])], fixed=(1,), opset=opset(rng))


def pad(rng: Rng) -> RandomNode:
    at, x = opset(rng), numbers(rng, shape(rng, 1, 3, empty=False))
    mode = pick(rng, "constant", "constant", "edge", "reflect", *(["wrap"] if at >= 19 else []))
    least = 0 if mode != "constant" else -1
    most = list(x.shape) * 2 if mode == "reflect" else [3] * (2 * x.ndim)
    pads = [int(rng.integers(least, max(least + 1, m))) for m in most]
    pads = [0 if x.shape[a % x.ndim] + min(p, 0) * 2 < 1 else p for a, p in enumerate(pads)]
    if at < 11:
        return RandomNode(
            "Pad",
            [x],
            {"mode": pick(rng, "constant", "edge") if mode == "wrap" else mode, "pads": pads, "value": 1.5},
            opset=at,
        )
    if at >= 18 and mode == "constant" and rng.random() < 0.4:
        along = axes(rng, x.ndim)
        some = [pads[a % x.ndim] for a in along] + [pads[a % x.ndim + x.ndim] for a in along]
        return RandomNode(
            "Pad", [x, i64(some), np.asarray(np.float32(2)), i64(along)], {"mode": mode}, fixed=(1, 2, 3), opset=at
        )
    value = [np.asarray(np.float32(2.5))] if rng.random() < 0.5 else []
    return RandomNode("Pad", [x, i64(pads), *value], {"mode": mode}, fixed=(1, 2)[: 1 + len(value)], opset=at)


def depth_to_space(rng: Rng) -> RandomNode:
    block = int(rng.integers(1, 4))
    x = numbers(rng, (2, block**2 * int(rng.integers(1, 3)), 2, 3))
    at = opset(rng)
    return RandomNode(
        "DepthToSpace", [x], {"blocksize": block} | ({"mode": pick(rng, "DCR", "CRD")} if at >= 11 else {}), opset=at
    )


def space_to_depth(rng: Rng) -> RandomNode:
    block = int(rng.integers(1, 4))
    return RandomNode(
        "SpaceToDepth", [numbers(rng, (2, 2, block * 2, block * 3))], {"blocksize": block}, opset=opset(rng)
    )


def one_hot(rng: Rng) -> RandomNode:
    index, depth = rng.integers(-4, 4, shape(rng, 1, 3)), int(rng.integers(4, 6))
    return RandomNode(
        "OneHot",
        [index, i64([depth]), np.array([2, 5], np.float32)],
        {"axis": axis(rng, index.ndim + 1)},
        fixed=(1,),
        opset=opset(rng),
    )


def trilu(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 2))
    k = [i64(int(rng.integers(-4, 5)))] if rng.random() < 0.7 else []
    return RandomNode("Trilu", [x, *k], {"upper": int(rng.integers(2))}, fixed=(1,) if k else (), opset=opset(rng, 17))


def dropout(rng: Rng) -> RandomNode:
    return RandomNode("Dropout", [numbers(rng, shape(rng, 1))], opset=opset(rng))


def resize(rng: Rng) -> RandomNode:
    at = opset(rng, 11)
    x = numbers(rng, (1, 2, *(int(v) for v in rng.integers(2, 6, 2))))
    mode = pick(rng, "nearest", "linear", "cubic")
    given: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": pick(rng, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    }
    if mode == "nearest":
        given["nearest_mode"] = pick(rng, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        given |= {"cubic_coeff_a": -0.5, "exclude_outside": int(rng.integers(2))}
    none = np.zeros(0, np.float32)
    sizes = [1, 2, *(int(v) for v in rng.integers(1, 9, 2))]
    if rng.random() < 0.5:
        scales = np.array([1, 1, *(float(pick(rng, 0.5, 0.6, 1.5, 2.0, 3.0)) for _ in range(2))], np.float32)
        return RandomNode(
            "Resize", [x, none if at < 13 else None, scales], given, fixed=(1, 2) if at < 13 else (2,), opset=at
        )
    if at < 13:
        return RandomNode("Resize", [x, none, none, i64(sizes)], given, fixed=(1, 2, 3), opset=at)
    return RandomNode("Resize", [x, None, None, i64(sizes)], given, fixed=(3,), opset=at)


def upsample(rng: Rng) -> RandomNode:
    scales = np.array([1, 1, pick(rng, 1.0, 2.0, 3.0), pick(rng, 1.0, 2.0)], np.float32)
    return RandomNode("Upsample", [numbers(rng, (1, 2, 3, 4)), scales], {"mode": "nearest"}, fixed=(1,), opset=9)
