"""Random nodes of operators with sums: windows, products, recurrent layers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .node_making import Make, Plain, RandomNode, Rng, axis, broadcast, numbers, opset, pick, shape


class Windows(NamedTuple):
    """Attributes of windows that fit an image."""

    image: tuple[int, ...]
    taps: tuple[int, ...]
    given: dict[str, Any]


def windows(rng: Rng, n: int, dilated: bool = True, ceil: bool = False) -> Windows:
    image = tuple(int(v) for v in rng.integers(4, 10, n))
    taps = tuple(int(v) for v in rng.integers(1, 4, n))
    given: dict[str, Any] = {}
    if rng.random() < 0.7:
        given["strides"] = [int(v) for v in rng.integers(1, 4, n)]
    dilations = [int(v) for v in rng.integers(1, 3, n)] if dilated and rng.random() < 0.4 else [1] * n
    if (dilated and rng.random() < 0.5) or dilations != [1] * n:
        given["dilations"] = dilations
    how = pick(rng, "none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    if how == "pads":
        given["pads"] = [
            int(rng.integers(0, (taps[a % n] - 1) * dilations[a % n] + 1)) if taps[a % n] > 1 else 0
            for a in range(2 * n)
        ]
        given["pads"] = [min(p, taps[a % n] - 1) for a, p in enumerate(given["pads"])]
    elif how != "none":
        given["auto_pad"] = how
    if ceil and not how.startswith("SAME") and rng.random() < 0.4:
        given["ceil_mode"] = 1
    return Windows(image, taps, given)


def conv(rng: Rng) -> RandomNode:
    n, groups = int(rng.integers(1, 4)), int(pick(rng, 1, 1, 2, 3))
    found = windows(rng, n)
    per_in, per_out = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    x = numbers(rng, (int(rng.integers(1, 3)), groups * per_in, *found.image))
    w = numbers(rng, (groups * per_out, per_in, *found.taps))
    bias = [numbers(rng, (groups * per_out,))] if rng.random() < 0.5 else []
    return RandomNode("Conv", [x, w, *bias], found.given | {"group": groups}, opset=opset(rng))


def conv_transpose(rng: Rng) -> RandomNode:
    n, groups = int(rng.integers(1, 3)), int(pick(rng, 1, 1, 2))
    found = windows(rng, n)
    given = {k: v for k, v in found.given.items() if k != "auto_pad"} | {"group": groups}
    strides = given.get("strides", [1] * n)
    if rng.random() < 0.4:
        given["output_padding"] = [int(rng.integers(0, s)) for s in strides]
    x = numbers(rng, (1, groups * 2, *found.image))
    w = numbers(rng, (groups * 2, int(rng.integers(1, 4)), *found.taps))
    bias = [numbers(rng, (groups * w.shape[1],))] if rng.random() < 0.5 else []
    return RandomNode("ConvTranspose", [x, w, *bias], given, opset=opset(rng, 11))


def pool(kind: str) -> Make:
    def make(rng: Rng) -> RandomNode:
        n, at = int(rng.integers(1, 4)), opset(rng, 19)
        found = windows(rng, n, dilated=kind != "LpPool", ceil=kind != "LpPool")
        given = found.given | {"kernel_shape": list(found.taps)}
        if str(given.get("auto_pad")).startswith("SAME"):  # beyond these, the two implementations differ in shapes
            given = {k: v for k, v in given.items() if k not in ("dilations", "strides")}
        if kind == "AveragePool" and rng.random() < 0.5:
            given["count_include_pad"] = 1
        if kind == "LpPool":
            given["p"] = pick(rng, 1, 2)
        return RandomNode(
            kind, [numbers(rng, (2, 2, *found.image), low=0.1 if kind == "LpPool" else -3)], given, opset=at
        )

    return make


def global_pool(kind: str) -> Make:
    def make(rng: Rng) -> RandomNode:
        return RandomNode(kind, [numbers(rng, shape(rng, 3, empty=False))], opset=opset(rng))

    return make


def mat_mul(rng: Rng) -> RandomNode:
    m, k, n = (int(v) for v in rng.integers(1, 6, 3))
    lead = shape(rng, 0, 2, empty=False)
    dtype = pick(rng, np.float32, np.float64, np.int32)
    a, b = numbers(rng, (*broadcast(rng, lead), m, k), dtype), numbers(rng, (*lead, k, n), dtype)
    if rng.random() < 0.15:
        a = numbers(rng, (k,), dtype)
    elif rng.random() < 0.15:
        b = numbers(rng, (k,), dtype)
    return RandomNode("MatMul", [a, b], opset=opset(rng))


def gemm(rng: Rng) -> RandomNode:
    m, k, n = (int(v) for v in rng.integers(1, 6, 3))
    ta, tb = (int(v) for v in rng.integers(0, 2, 2))
    a, b = numbers(rng, (k, m) if ta else (m, k)), numbers(rng, (n, k) if tb else (k, n))
    at = opset(rng)
    c = [numbers(rng, pick(rng, (m, n), (1, n), (m, 1), (n,), (1,), ()))] if at < 11 or rng.random() < 0.7 else []
    return RandomNode(
        "Gemm", [a, b, *c], {"transA": ta, "transB": tb, "alpha": 0.5, "beta": pick(rng, 1.0, 2.0, 0.0)}, opset=at
    )


def mat_mul_integer(rng: Rng) -> RandomNode:
    m, k, n = (int(v) for v in rng.integers(1, 6, 3))
    a, b = numbers(rng, (m, k), np.uint8, 0, 250), numbers(rng, (k, n), np.uint8, 0, 250)
    zeros = [np.uint8(rng.integers(250)).reshape(()) for _ in range(rng.integers(0, 3))]
    return RandomNode("MatMulInteger", [a, b, *map(np.asarray, zeros)], opset=opset(rng, 10))


def einsum(rng: Rng) -> RandomNode:
    i, j, k = (int(v) for v in rng.integers(1, 5, 3))
    equation, shapes = pick(rng, ("ij,jk->ik", ((i, j), (j, k))), ("bij,bjk->bik", ((2, i, j), (2, j, k))), ("ij->ji", ((i, j),)),
                            ("...ij,...j->...i", ((2, i, j), (2, j))), ("ii->i", ((i, i),)), ("ij,ij", ((i, j), (i, j))))  # fmt: skip
    return RandomNode("Einsum", [numbers(rng, s) for s in shapes], {"equation": equation}, opset=opset(rng, 12))


def quantize(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 2, empty=False), low=-40, high=40)
    along, dtype = axis(rng, x.ndim), pick(rng, np.uint8, np.int8)
    size = () if rng.random() < 0.5 else (x.shape[along],)
    scale, zero = numbers(rng, size, low=0.1, high=0.5), numbers(rng, size, dtype, 0, 20)
    given = {"axis": along} if size else {}
    return RandomNode("QuantizeLinear", [x, scale, zero], given, opset=opset(rng, 13))


def dequantize(rng: Rng) -> RandomNode:
    dtype = pick(rng, np.uint8, np.int8)
    x = numbers(rng, shape(rng, 2, empty=False), dtype, 0, 100)
    along = axis(rng, x.ndim)
    size = () if rng.random() < 0.5 else (x.shape[along],)
    zero = [numbers(rng, size, dtype, 0, 20)] if rng.random() < 0.7 else []
    return RandomNode(
        "DequantizeLinear",
        [x, numbers(rng, size, low=0.1), *zero],
        {"axis": along} if size else {},
        opset=opset(rng, 13),
    )


def dynamic_quantize(rng: Rng) -> RandomNode:
    return RandomNode("DynamicQuantizeLinear", [numbers(rng, shape(rng, 1, empty=False))], {}, 3, opset=opset(rng, 11))


def recurrent(kind: str, gates: int) -> Make:
    def make(rng: Rng) -> RandomNode:
        steps, batch, width, hidden = (int(v) for v in rng.integers(1, 4, 4))
        direction = pick(rng, "forward", "reverse", "bidirectional")
        d = 2 if direction == "bidirectional" else 1
        inputs: list[Plain | None] = [
            numbers(rng, (steps, batch, width)), numbers(rng, (d, gates * hidden, width), low=-1, high=1),
            numbers(rng, (d, gates * hidden, hidden), low=-1, high=1),
        ]  # fmt: skip
        given: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
        if kind == "GRU":
            given["linear_before_reset"] = int(rng.integers(2))
        inputs.append(numbers(rng, (d, 2 * gates * hidden), low=-1, high=1) if rng.random() < 0.6 else None)
        inputs.append(None)
        inputs.append(numbers(rng, (d, batch, hidden), low=-1, high=1) if rng.random() < 0.5 else None)
        while inputs[-1] is None:
            inputs.pop()
        return RandomNode(kind, inputs, given, 3 if kind == "LSTM" else 2, opset=pick(rng, 14, 22))

    return make
