"""Operators that work element by element: NumPy's functions on coexec arrays, so that chains of them are one kernel.

Before: models/operators/calls.py.  After: models/operators/table.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from ...ops.map import map as mapped
from ...ops.rowwise import gelu
from ...program import array as arrays
from ...program.access import read, write
from ...program.array import Array
from ...program.kernel import Kernel, kernel
from .calls import NUMERICS, OpCall, Run

FUNCTIONS: dict[str, Any] = {
    "Abs": np.abs, "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan,
    "Atanh": np.arctanh, "Ceil": np.ceil, "Cos": np.cos, "Cosh": np.cosh, "Exp": np.exp, "Floor": np.floor,
    "IsNaN": np.isnan, "Log": np.log, "Neg": np.negative, "Not": np.logical_not, "Round": np.rint, "Sign": np.sign,
    "Sin": np.sin, "Sinh": np.sinh, "Sqrt": np.sqrt, "Tan": np.tan, "Tanh": np.tanh, "BitwiseNot": np.invert,
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "And": np.logical_and, "Or": np.logical_or,
    "Xor": np.logical_xor, "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal,
    "Less": np.less, "LessOrEqual": np.less_equal, "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor, "Where": np.where,
}  # fmt: skip
"""Operators that NumPy has as they are."""
FOLDED: dict[str, Any] = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}
"""Operators of any number of operands."""


def arrayed(call: OpCall, value: Any) -> Array:
    """Return a result as an array of the type and shape that the operator's result has."""
    found = value if isinstance(value, Array) else arrays.array(np.asarray(value))
    if found.dtype != call.dtype:
        found = arrays.array(found, call.dtype)
    return found if found.shape == call.shape else np.broadcast_to(found, call.shape)  # type: ignore[return-value]


def plain(kind: str) -> Run:
    """Return how an operator that NumPy has is run."""
    function = FUNCTIONS[kind]

    def run(call: OpCall) -> list[Array]:
        values = [call.operand(i) for i in range(call.count)]
        if not any(isinstance(v, Array) for v in values):
            values[0] = call.array(0)
        return [arrayed(call, function(*values))]

    return run


def folded(kind: str) -> Run:
    """Return how an operator of any number of operands is run."""
    return lambda call: [arrayed(call, reduce(FOLDED[kind], call.arrays()))]


def formula(of: Callable[..., Any]) -> Run:
    """Return how an operator is run whose result is a formula of its first operand and the call."""
    return lambda call: [arrayed(call, of(call.array(0), call))]


def number(x: Any, value: float) -> Any:
    """Return a number of an array's type."""
    return x.dtype.type(value)


# Activations ----------------------------------------------------------------------------------------------------------------


def between(x: Any, low: float, high: float) -> Any:
    """Return an array with its elements kept between two numbers."""
    return np.minimum(np.maximum(x, number(x, low)), number(x, high))


def leaky(x: Any, call: OpCall) -> Any:
    """Run LeakyRelu."""
    return np.where(x >= number(x, 0), x, x * number(x, call.number("alpha", 0.01)))


def prelu(x: Any, call: OpCall) -> Any:
    """Run PRelu."""
    return np.where(x >= number(x, 0), x, x * call.operand(1))


def hard_sigmoid(x: Any, call: OpCall) -> Any:
    """Run HardSigmoid."""
    return between(x * number(x, call.number("alpha", 0.2)) + number(x, call.number("beta", 0.5)), 0, 1)


def hard_swish(x: Any, call: OpCall) -> Any:
    """Run HardSwish."""
    del call
    return x * between(x * number(x, 1 / 6) + number(x, 0.5), 0, 1)


def elu(x: Any, call: OpCall) -> Any:
    """Run Elu."""
    below = np.expm1(np.minimum(x, number(x, 0))) * number(x, call.number("alpha", 1.0))
    return np.where(x > number(x, 0), x, below)


def selu(x: Any, call: OpCall) -> Any:
    """Run Selu."""
    alpha, gamma = call.number("alpha", 1.6732632423543772), call.number("gamma", 1.0507009873554805)
    return np.where(x > number(x, 0), x, np.expm1(np.minimum(x, number(x, 0))) * number(x, alpha)) * number(x, gamma)


def celu(x: Any, call: OpCall) -> Any:
    """Run Celu."""
    alpha = call.number("alpha", 1.0)
    below = np.expm1(np.minimum(x, number(x, 0)) / number(x, alpha)) * number(x, alpha)
    return np.maximum(x, number(x, 0)) + below


def softplus(x: Any, call: OpCall) -> Any:
    """Run Softplus."""
    del call
    return np.logaddexp(x, number(x, 0))


def mish(x: Any, call: OpCall) -> Any:
    """Run Mish."""
    return x * np.tanh(softplus(x, call))


def swish(x: Any, call: OpCall) -> Any:
    """Run Swish."""
    return x * sigmoid(x * number(x, call.number("alpha", 1.0)))


def shrink(x: Any, call: OpCall) -> Any:
    """Run Shrink."""
    bias, limit = number(x, call.number("bias", 0.0)), number(x, call.number("lambd", 0.5))
    return np.where(x < -limit, x + bias, np.where(x > limit, x - bias, number(x, 0)))


def thresholded(x: Any, call: OpCall) -> Any:
    """Run ThresholdedRelu."""
    return np.where(x > number(x, call.number("alpha", 1.0)), x, number(x, 0))


def softsign(x: Any, call: OpCall) -> Any:
    """Run Softsign."""
    del call
    return x / (np.abs(x) + number(x, 1))


# Functions that NumPy does not have -----------------------------------------------------------------------------------------


def expit_body(a0: Any, a1: Any) -> None:
    """Compute the logistic function."""
    from scipy.special import expit

    a1[...] = expit(a0)


def expit_torch(a0: Any, a1: Any) -> None:
    """Compute the same on tensors."""
    import torch

    a1[...] = torch.sigmoid(a0)


def erf_body(a0: Any, a1: Any) -> None:
    """Compute the error function."""
    from scipy.special import erf

    a1[...] = erf(a0)


def erf_torch(a0: Any, a1: Any) -> None:
    """Compute the same on tensors."""
    import torch

    a1[...] = torch.erf(a0)


SOURCES = {"sigmoid": "1 / (1 + exp(-a0({at})))", "erf": "erf(a0({at}))"}
BODIES = {"sigmoid": (expit_body, expit_torch), "erf": (erf_body, erf_torch)}


@lru_cache(maxsize=64)
def function_kernel(name: str, dtype: str, ndim: int) -> Kernel:
    """Return the kernel of one of `BODIES` for arrays of so many axes."""
    body, tensors = BODIES[name]
    made = kernel(split=tuple(range(ndim)) or None, name=f"{name}_{dtype}", flops=20.0, a0=read, a1=write)(body)
    if dtype in ("float32", "float64"):
        made.variant(tensors, kind="torch", name="torch", numerics=NUMERICS)
        at = ", ".join(f"i{axis}" for axis in range(ndim))
        made.opencl(f"a1({at}) = {SOURCES[name].format(at=at)};", numerics=NUMERICS)
    return made


def function_of(name: str, x: Array) -> Array:
    """Return one of `BODIES` of an array, as a new one."""
    result = arrays.empty(x.shape, x.dtype)
    if x.size:
        function_kernel(name, x.dtype.name, x.ndim)(x, result)
    return result


def sigmoid(x: Array) -> Array:
    """Return the logistic function of an array."""
    return function_of("sigmoid", x)


def gelu_op(call: OpCall) -> list[Array]:
    """Run Gelu."""
    x, approximate = call.array(0), str(call.attribute("approximate", "none"))
    if x.dtype.name in ("float32", "float64"):
        return [gelu(x, approximate)]
    return [arrayed(call, gelu(arrays.array(x, np.float32), approximate))]


# Arithmetic with rules of its own -------------------------------------------------------------------------------------------


def truncated(a: Any, b: Any) -> Any:
    """Divide whole numbers towards zero, as C does."""
    quotient = a // b
    if np.dtype(quotient.dtype).kind == "u":
        return quotient
    return quotient + ((a - quotient * b != 0) & ((a < 0) != (b < 0))).astype(quotient.dtype)


def divide(call: OpCall) -> list[Array]:
    """Run Div."""
    if call.dtype.kind in "iu":
        return [arrayed(call, mapped(truncated, call.array(0), call.array(1), dtype=call.dtype))]
    a, b = call.operand(0), call.operand(1)
    return [arrayed(call, np.divide(a if isinstance(b, Array) else call.array(0), b))]


def power(call: OpCall) -> list[Array]:
    """Run Pow."""
    base, exponent = call.array(0), call.known(1)
    if exponent is not None and exponent.size == 1 and exponent.ndim <= base.ndim and base.dtype.kind == "f":
        times = float(exponent.reshape(()))
        if times == 2.0:
            return [arrayed(call, base * base)]
        if times == 0.5:
            return [arrayed(call, np.sqrt(base))]
        return [arrayed(call, np.power(base, number(base, times)))]
    return [arrayed(call, mapped(powers, base, call.array(1), dtype=base.dtype))]


def powers(a: Any, b: Any) -> Any:
    """Raise to powers of another type; the result has the base's type."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        return np.where(
            b < 0, np.power(a.astype(np.float64), b).astype(a.dtype), np.power(a, np.maximum(b, 0)).astype(a.dtype)
        )
    return np.power(a, b).astype(a.dtype)


def modulo(call: OpCall) -> list[Array]:
    """Run Mod."""
    function = np.fmod if call.flag("fmod") else np.remainder
    return [arrayed(call, function(call.array(0), call.array(1)))]


def mean(call: OpCall) -> list[Array]:
    """Run Mean."""
    add: Any = np.add
    total: Any = reduce(add, call.arrays())
    return [arrayed(call, total / number(total, call.count))]


def clip(call: OpCall) -> list[Array]:
    """Run Clip."""
    x: Any = call.array(0)
    for position, name, function in ((1, "min", np.maximum), (2, "max", np.minimum)):
        if call.has(position):
            x = function(x, call.operand(position))
        elif (bound := call.attribute(name)) is not None:
            x = function(x, number(x, bound))
    return [arrayed(call, x)]


def is_inf(call: OpCall) -> list[Array]:
    """Run IsInf."""
    x: Any = call.array(0)
    found = np.isinf(x)
    if not call.flag("detect_positive", 1):
        found = found & (x < number(x, 0))
    if not call.flag("detect_negative", 1):
        found = found & (x > number(x, 0))
    return [arrayed(call, found)]


def shift(call: OpCall) -> list[Array]:
    """Run BitShift."""
    function = np.left_shift if call.attribute("direction") == "LEFT" else np.right_shift
    return [arrayed(call, function(call.array(0), call.array(1)))]


def cast(call: OpCall) -> list[Array]:
    """Run Cast, CastLike."""
    x = call.array(0)
    if x.dtype == call.dtype:
        return [x]
    if call.dtype.kind == "b":
        return [x != number(x, 0)]
    return [arrays.array(x, call.dtype)]


ELEMENTWISE: dict[str, Run] = {kind: plain(kind) for kind in FUNCTIONS} | {kind: folded(kind) for kind in FOLDED}
ELEMENTWISE |= {
    "Relu": formula(lambda x, _: np.maximum(x, number(x, 0))),
    "LeakyRelu": formula(leaky), "PRelu": formula(prelu), "HardSigmoid": formula(hard_sigmoid),
    "HardSwish": formula(hard_swish), "Elu": formula(elu), "Selu": formula(selu), "Celu": formula(celu),
    "Softplus": formula(softplus), "Mish": formula(mish), "Swish": formula(swish), "Shrink": formula(shrink),
    "ThresholdedRelu": formula(thresholded), "Softsign": formula(softsign),
    "Reciprocal": formula(lambda x, _: number(x, 1) / x),
    "Sigmoid": formula(lambda x, _: sigmoid(x)), "Erf": formula(lambda x, _: function_of("erf", x)),
    "Gelu": gelu_op, "Div": divide, "Pow": power, "Mod": modulo, "Mean": mean, "Clip": clip, "IsInf": is_inf,
    "BitShift": shift, "Cast": cast, "CastLike": cast,
}  # fmt: skip
