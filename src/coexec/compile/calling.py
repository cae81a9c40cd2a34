"""Ufuncs on traced arrays: which types NumPy would compute in, and the node that says so.

Before: compile/sizes.py.  After: compile/symbolic.py.  Asks NumPy itself for types; computes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .cells import BOOL, as_dtype, check_dtype
from .graph import Apply, Constant, Expr, Read, Scalar, View, broadcast, convert
from .host import equal_sizes
from .layout import regular
from .llvm_text import Inline
from .refused import Untraceable
from .sizes import broadcast_sizes, same_shape
from .symbolic import HOOKS, Symbolic, operand, type_of
from .ufunc_loops import inner_loop

ANYWHERE = frozenset({"floor_divide", "remainder", "fmod", "fmax", "fmin", "isfinite", "isinf", "signbit", "sign"})
"""Functions of floats that are exact, and so do not depend on how NumPy goes through memory."""
EITHER_ZERO = frozenset({"fmax", "fmin"})
"""Functions whose answer for 0.0 and -0.0 is one in NumPy's vectors and the other in what is left over of an array."""
SIGNS = frozenset({"copysign", "signbit"})
"""Functions that look at the sign of NaN in their last operand."""
SQUARE, ROOT = 2, 0.5  # exponents that NumPy's power computes as a product and as a root


def elementwise(array: Symbolic, function: str, args: list[Expr], dtype: np.dtype[Any]) -> Expr:
    """Return a function of elements, its operands broadcast together."""
    shape = broadcast_sizes(*(arg.shape for arg in args))
    time = array.tape.clock.tick()
    inputs = tuple(arg if not arg.shape else broadcast(arg, shape, time) for arg in args)
    return Apply(shape=shape, dtype=dtype, time=time, function=function, inputs=inputs)


def apply_ufunc(
    array: Symbolic, function: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Return the result of a ufunc on traced arrays, in `out` if given."""
    name = function.__name__
    if method == "reduce":
        return HOOKS["reduce"](name, inputs[0], **options)
    if method != "__call__":
        raise Untraceable(f"np.{name}.{method} is not compiled")
    if function.signature is not None:
        return HOOKS["product"](function, inputs, options)
    if function.nout != 1 or getattr(np, name, None) is not function:
        raise Untraceable(f"np.{name} is not compiled")
    out = options.pop("out", (None,))[0]
    mask = options.pop("where", True)
    if out is not None and not isinstance(out, Symbolic):
        raise Untraceable("it computes into an array from outside")
    result = _result(array, function, inputs, options)
    if out is not None and not array.tape.free:
        _check_out(function.__name__, result, inputs, out)
    if mask is not True:
        result = _where_masked(array, function, mask, result, out)
    if out is None:
        return array.fresh(result)
    if not same_shape(result.shape, out.shape):
        result = _spread(result, out)
    out.write(array.fresh(result), "same_kind")
    return out


def _is_written_out(node: Expr) -> bool:
    """Tell whether a function is exact by itself, however NumPy goes through memory."""
    if not isinstance(node, Apply) or node.function in ANYWHERE:
        return True
    dtypes = [arg.dtype for arg in node.inputs]
    return Inline().known(node.function, dtypes) or all(dtype.kind != "f" for dtype in (*dtypes, node.dtype))


def _keeps_bits(node: Expr) -> bool:
    """Tell whether a value is in memory as it is, so that even its NaNs have the bits that NumPy sees."""
    return isinstance(node.arg if isinstance(node, View) else node, Constant | Scalar | Read)


def _check_layout(node: Expr, *, free: bool) -> Expr:
    """Raise if NumPy might compute a function in another way because of how its operands lie in memory."""
    if isinstance(node, Apply) and node.function in SIGNS and not _keeps_bits(node.inputs[-1]):
        raise Untraceable(f"np.{node.function} of computed values looks at the sign of NaN, which is anybody's guess")
    if (
        isinstance(node, Apply)
        and node.function in EITHER_ZERO
        and node.dtype.kind == "f"
        and not free
        and not _one_is_not_zero(node)
    ):
        raise Untraceable(f"np.{node.function} of 0.0 and -0.0 depends on where in memory they are")
    if not free and not _is_written_out(node) and not all(regular(arg) for arg in node.args):
        assert isinstance(node, Apply)
        raise Untraceable(f"np.{node.function} of elements that are not neighbours in memory")
    return node


def _check_out(name: str, result: Expr, inputs: tuple[Any, ...], out: Symbolic) -> None:
    """Raise if NumPy might compute a function in another way because of where its results go."""
    if _is_written_out(result) or out.dtype != result.dtype:  # other types go through NumPy's own buffers
        return
    if not regular(out.node() if out.cell.buffer is not None or out.cell.value is not None else result):
        raise Untraceable(f"np.{name} into elements that are not neighbours in memory")
    if any(isinstance(value, Symbolic) and value.cell is out.cell for value in inputs):
        loop = inner_loop(name, (*(arg.dtype.str for arg in result.args), result.dtype.str))
        if not loop.in_place:
            raise Untraceable(f"np.{name} in place, which NumPy computes in another way")


def _spread(result: Expr, out: Symbolic) -> Expr:
    if broadcast_sizes(result.shape, out.shape) != out.shape:
        raise Untraceable("out= has another shape than the result")
    return broadcast(result, out.shape, out.tape.clock.tick())


def _where_masked(array: Symbolic, function: np.ufunc, mask: Any, result: Expr, out: Symbolic | None) -> Expr:
    """Return what `out` holds after a masked call: NumPy computes nothing where the mask is false, so no flag comes from there."""
    if out is None:
        raise Untraceable("where= without out= leaves elements unset")
    chosen = operand(mask, BOOL, array.tape)
    if chosen.dtype != BOOL:
        raise Untraceable("where= that is not of booleans")
    old = convert(out.node(), result.dtype, array.tape.clock.tick()) if out.dtype == result.dtype else None
    if old is None:
        raise Untraceable("where= with out= of another type")
    if isinstance(result, Apply) and (harmless := _harmless(function, result)) is not None:
        result = elementwise(array, result.function, _elsewhere(array, chosen, result, harmless), result.dtype)
    return elementwise(array, "where", [chosen, result, old], result.dtype)


def _elsewhere(array: Symbolic, chosen: Expr, result: Apply, harmless: float) -> list[Expr]:
    """Return the operands of a function, with a harmless number wherever they are not chosen."""
    found = []
    for arg in result.inputs:
        number = Constant(shape=(), dtype=arg.dtype, time=array.tape.clock.tick(), value=arg.dtype.type(harmless))
        found.append(elementwise(array, "where", [chosen, arg, number], arg.dtype))
    return found


def _harmless(function: np.ufunc, result: Apply) -> float | None:
    """Return a number for which a function raises no flag; none is needed where no number raises one."""
    if all(arg.dtype.kind != "f" for arg in result.inputs) and function not in _DIVISIONS:
        return None
    for number in (1.0, 0.5):
        try:
            with np.errstate(all="raise"):
                function(*(np.full(1, number, arg.dtype) for arg in result.inputs))
        except FloatingPointError:
            continue
        return number
    raise Untraceable(f"np.{function.__name__} with where= raises flags for whatever number")


_DIVISIONS = (np.floor_divide, np.remainder, np.fmod, np.reciprocal)


def _result(array: Symbolic, function: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any]) -> Expr:
    types = tuple(type_of(value) for value in inputs)
    if set(options) - {"dtype", "casting"}:
        raise Untraceable(f"np.{function.__name__} with {', '.join(options)}=")
    wanted = options.get("dtype")
    known: Any = {} if wanted is None else {"signature": (*(None,) * len(types), as_dtype(wanted))}
    try:
        loop = function.resolve_dtypes((*types, None), casting=options.get("casting", "same_kind"), **known)
    except TypeError as error:
        raise Untraceable(f"np.{function.__name__}: {error}") from None
    for dtype in loop:
        check_dtype(dtype)
    tape = array.tape
    args = [convert(operand(x, d, tape), d, tape.clock.tick()) for x, d in zip(inputs, loop, strict=False)]
    if function is np.power:
        return _power(array, args, loop)
    return _check_layout(elementwise(array, function.__name__, args, loop[-1]), free=tape.free)


def _power(array: Symbolic, args: list[Expr], loop: tuple[np.dtype[Any], ...]) -> Expr:
    """Return a power; NumPy computes those with one exponent for a whole row in other ways than the rest."""
    base, exponent = args
    if not base.shape and not array.tape.free:
        raise Untraceable("a power of a single number")
    if loop[1].kind == "i" and not _never_negative(exponent):
        raise Untraceable("a power of integers, which NumPy refuses where an exponent is negative")
    if loop[0].kind == "f" and isinstance(exponent, Constant) and exponent.value in (SQUARE, ROOT):
        return elementwise(array, "square" if exponent.value == SQUARE else "sqrt", [base], loop[-1])
    if array.tape.free and loop[0].kind == "f" and isinstance(exponent, Constant) and exponent.value in _SHORT_POWERS:
        return _short_power(array, base, float(exponent.value))
    alike = array.tape.free or same_shape(exponent.shape[-1:], base.shape[-1:])
    if exponent.shape and not alike:
        raise Untraceable("a power with exponents of another shape")
    if exponent.shape and not array.tape.free and all(equal_sizes(extent, 1) for extent in base.shape):
        raise Untraceable("a power of a single element")
    return _check_layout(elementwise(array, "power", args, loop[-1]), free=array.tape.free)


_SHORT_POWERS = (3.0, 4.0, 1.5, 2.5, -1.0, -2.0, -0.5, -1.5)


def _short_power(array: Symbolic, base: Expr, exponent: float) -> Expr:
    """Return a power as products and a root, which is close to NumPy's."""

    def computed(function: str, *args: Expr) -> Expr:
        return elementwise(array, function, list(args), base.dtype)

    whole, half = divmod(abs(exponent), 1.0)
    factors = [base] * int(whole) + ([computed("sqrt", base)] if half else [])
    found = factors[0]
    for factor in factors[1:]:
        found = computed("multiply", found, factor)
    return computed("reciprocal", found) if exponent < 0 else found


def _one_is_not_zero(node: Expr) -> bool:
    """Tell whether an argument is a number that is not zero at every call that fits; what is decided so becomes a guard."""
    numbers: list[Any] = [arg.value for arg in node.args if isinstance(arg, Constant)]
    numbers += [arg.host for arg in node.args if isinstance(arg, Scalar)]
    return any(bool(number != 0) for number in numbers)


def _never_negative(exponent: Expr) -> bool:
    """Tell whether an exponent is from 0 at every call that fits; what is decided so becomes a guard."""
    if isinstance(exponent, Constant):
        return bool(exponent.value >= 0)
    return isinstance(exponent, Scalar) and bool(exponent.host >= 0)  # type: ignore[operator]


HOOKS["ufunc"] = apply_ufunc
