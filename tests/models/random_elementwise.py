"""Random nodes of elementwise operators: unlike shapes that broadcast, types, parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from .node_making import Make, RandomNode, Rng, broadcast, numbers, opset, pick, shape

UNARY = {
    "Abs": (-3, 3), "Acos": (-1, 1), "Acosh": (1, 5), "Asin": (-1, 1), "Asinh": (-3, 3), "Atan": (-3, 3),
    "Atanh": (-0.95, 0.95), "Ceil": (-3, 3), "Cos": (-9, 9), "Cosh": (-3, 3), "Erf": (-3, 3), "Exp": (-3, 3),
    "Floor": (-3, 3), "HardSwish": (-5, 5), "Identity": (-3, 3), "Log": (0.1, 5), "Mish": (-4, 4), "Neg": (-3, 3),
    "Reciprocal": (0.2, 3), "Relu": (-3, 3), "Round": (-3, 3), "Sigmoid": (-9, 9), "Sign": (-3, 3), "Sin": (-9, 9),
    "Sinh": (-3, 3), "Softplus": (-9, 9), "Softsign": (-3, 3), "Sqrt": (0, 5), "Tan": (-1, 1), "Tanh": (-3, 3),
}  # fmt: skip
LATE = {"HardSwish": 14, "Mish": 18, "Gelu": 20, "Swish": 24, "Celu": 12, "GreaterOrEqual": 12, "LessOrEqual": 12,
        "BitwiseAnd": 18, "BitwiseOr": 18, "BitwiseXor": 18, "BitwiseNot": 18, "Mod": 10, "Round": 11, "IsInf": 10,
        "BitShift": 11, "ThresholdedRelu": 10}  # fmt: skip
PARAMETERS: dict[str, tuple[str, ...]] = {
    "Elu": ("alpha",), "Celu": ("alpha",), "LeakyRelu": ("alpha",), "Selu": ("alpha", "gamma"), "HardSigmoid": ("alpha", "beta"),
    "ThresholdedRelu": ("alpha",), "Shrink": ("lambd", "bias"),
}  # fmt: skip


def unary(kind: str, low: float, high: float) -> Make:
    def make(rng: Rng) -> RandomNode:
        dtype = pick(rng, np.float32, np.float32, np.float64)
        return RandomNode(kind, [numbers(rng, shape(rng), dtype, low, high)], opset=opset(rng, LATE.get(kind, 9)))

    return make


def with_parameters(kind: str, names: tuple[str, ...]) -> Make:
    def make(rng: Rng) -> RandomNode:
        given = {n: float(np.float32(rng.random() + 0.1)) for n in names if rng.random() < 0.7}
        return RandomNode(kind, [numbers(rng, shape(rng))], given, opset=opset(rng, LATE.get(kind, 9)))

    return make


def binary(kind: str, *dtypes: Any, low: float = -3) -> Make:
    def make(rng: Rng) -> RandomNode:
        of, dtype = shape(rng), pick(rng, *dtypes)
        pair = [numbers(rng, of, dtype, low), numbers(rng, broadcast(rng, of), dtype, low)]
        pair = pair[::-1] if rng.random() < 0.5 else pair
        if kind in ("Div", "Mod"):
            pair[1] = np.where(pair[1] == 0, pair[1].dtype.type(1), np.abs(pair[1])).astype(dtype)
            pair[0] = np.abs(pair[0]) if kind == "Div" else pair[0]
        given = {"fmod": 1} if kind == "Mod" and (np.dtype(dtype).kind == "f" or rng.random() < 0.5) else {}
        if kind == "BitShift":
            given = {"direction": pick(rng, "LEFT", "RIGHT")}
        return RandomNode(kind, pair, given, opset=opset(rng, LATE.get(kind, 9)))

    return make


def several(kind: str) -> Make:
    def make(rng: Rng) -> RandomNode:
        of, dtype = shape(rng), pick(rng, np.float32, np.float64)
        others = [numbers(rng, broadcast(rng, of), dtype) for _ in range(rng.integers(0, 3))]
        return RandomNode(kind, [numbers(rng, of, dtype), *others], opset=opset(rng))

    return make


def clip(rng: Rng) -> RandomNode:
    at = opset(rng)
    x = numbers(rng, shape(rng), np.float32 if at < 12 else pick(rng, np.float32, np.float64, np.int32))
    low, high = sorted(int(v) for v in rng.integers(-2, 3, 2))
    if at < 11:
        return RandomNode("Clip", [x], {"min": float(low), "max": float(high)}, opset=at)
    bounds = [x.dtype.type(v).reshape(()) if rng.random() < 0.7 else None for v in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    return RandomNode("Clip", [x, *[None if b is None else np.asarray(b) for b in bounds]], opset=at)


def where(rng: Rng) -> RandomNode:
    of, dtype = shape(rng), pick(rng, np.float32, np.int64)
    return RandomNode(
        "Where",
        [numbers(rng, broadcast(rng, of), bool), numbers(rng, of, dtype), numbers(rng, broadcast(rng, of), dtype)],
        opset=opset(rng),
    )


def prelu(rng: Rng) -> RandomNode:
    of = shape(rng, 1)
    return RandomNode("PRelu", [numbers(rng, of), numbers(rng, broadcast(rng, of))], opset=opset(rng))


def cast(rng: Rng) -> RandomNode:
    source = pick(rng, np.float32, np.float64, np.int32, np.int64, np.bool_, np.uint8)
    to = pick(rng, *(getattr(TensorProto, n) for n in ("FLOAT", "DOUBLE", "INT32", "INT64", "BOOL", "FLOAT16")))
    return RandomNode("Cast", [numbers(rng, shape(rng), source)], {"to": to}, opset=opset(rng, 13))


def cast_like(rng: Rng) -> RandomNode:
    like = numbers(rng, (2,), pick(rng, np.float32, np.int32, np.bool_))
    return RandomNode("CastLike", [numbers(rng, shape(rng), np.float32), like], opset=opset(rng, 17))


def is_inf(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1))
    x = np.where(rng.random(x.shape) < 0.3, np.float32(np.inf) * np.sign(x), x).astype(np.float32)
    given = {n: int(rng.integers(2)) for n in ("detect_negative", "detect_positive") if rng.random() < 0.5}
    return RandomNode("IsInf", [x], given, opset=opset(rng, 10))


def is_nan(rng: Rng) -> RandomNode:
    x = numbers(rng, shape(rng, 1))
    return RandomNode("IsNaN", [np.where(rng.random(x.shape) < 0.3, np.float32(np.nan), x)], opset=opset(rng))


def gelu(rng: Rng) -> RandomNode:
    return RandomNode(
        "Gelu", [numbers(rng, shape(rng))], {"approximate": pick(rng, "none", "tanh")}, opset=opset(rng, 20)
    )
