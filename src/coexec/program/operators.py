"""Python's operators on arrays and values: NumPy's own call where an array is small and at home, else a ufunc like any.

Before: nothing.  After: program/array.py, program/value.py, which inherit them.  Knows NumPy's ufuncs only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

Binary = Callable[[Any, Any], Any]


def _two(ufunc: np.ufunc, fallback: Binary) -> Binary:
    """Return the operator `self ∘ other`."""

    def operator(self: Any, other: Any) -> Any:
        small = self._small
        if small is not None:
            result = small.two(ufunc, self, other)
            if result is not None:
                return result
        return fallback(self, other)

    return operator


def _swapped(ufunc: np.ufunc, fallback: Binary) -> Binary:
    """Return the operator `other ∘ self`."""

    def operator(self: Any, other: Any) -> Any:
        small = self._small
        if small is not None:
            result = small.two(ufunc, self, other, True)
            if result is not None:
                return result
        return fallback(self, other)

    return operator


def _in_place(ufunc: np.ufunc, fallback: Binary) -> Binary:
    """Return the operator `self ∘= other`."""

    def operator(self: Any, other: Any) -> Any:
        small = self._small
        if small is not None and small.write(ufunc, (self, other), self) is not None:
            return self
        return fallback(self, other)

    return operator


def _one(ufunc: np.ufunc, fallback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the operator `∘ self`."""

    def operator(self: Any) -> Any:
        small = self._small
        if small is not None:
            result = small.one(ufunc, self)
            if result is not None:
                return result
        return fallback(self)

    return operator


Mixin = NDArrayOperatorsMixin


class PythonOperators(NDArrayOperatorsMixin):
    """Python's operators. Those that are not here are not elementwise, or rare."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # elementwise ==, like NumPy

    __add__ = _two(np.add, Mixin.__add__)
    __sub__ = _two(np.subtract, Mixin.__sub__)
    __mul__ = _two(np.multiply, Mixin.__mul__)
    __truediv__ = _two(np.true_divide, Mixin.__truediv__)
    __floordiv__ = _two(np.floor_divide, Mixin.__floordiv__)
    __mod__ = _two(np.remainder, Mixin.__mod__)
    __pow__ = _two(np.power, Mixin.__pow__)
    __lshift__ = _two(np.left_shift, Mixin.__lshift__)
    __rshift__ = _two(np.right_shift, Mixin.__rshift__)
    __and__ = _two(np.bitwise_and, Mixin.__and__)
    __xor__ = _two(np.bitwise_xor, Mixin.__xor__)
    __or__ = _two(np.bitwise_or, Mixin.__or__)
    __lt__ = _two(np.less, Mixin.__lt__)
    __le__ = _two(np.less_equal, Mixin.__le__)
    __eq__ = _two(np.equal, Mixin.__eq__)
    __ne__ = _two(np.not_equal, Mixin.__ne__)
    __gt__ = _two(np.greater, Mixin.__gt__)
    __ge__ = _two(np.greater_equal, Mixin.__ge__)

    __radd__ = _swapped(np.add, Mixin.__radd__)
    __rsub__ = _swapped(np.subtract, Mixin.__rsub__)
    __rmul__ = _swapped(np.multiply, Mixin.__rmul__)
    __rtruediv__ = _swapped(np.true_divide, Mixin.__rtruediv__)
    __rfloordiv__ = _swapped(np.floor_divide, Mixin.__rfloordiv__)
    __rmod__ = _swapped(np.remainder, Mixin.__rmod__)
    __rpow__ = _swapped(np.power, Mixin.__rpow__)
    __rlshift__ = _swapped(np.left_shift, Mixin.__rlshift__)
    __rrshift__ = _swapped(np.right_shift, Mixin.__rrshift__)
    __rand__ = _swapped(np.bitwise_and, Mixin.__rand__)
    __rxor__ = _swapped(np.bitwise_xor, Mixin.__rxor__)
    __ror__ = _swapped(np.bitwise_or, Mixin.__ror__)

    __iadd__ = _in_place(np.add, Mixin.__iadd__)
    __isub__ = _in_place(np.subtract, Mixin.__isub__)
    __imul__ = _in_place(np.multiply, Mixin.__imul__)
    __itruediv__ = _in_place(np.true_divide, Mixin.__itruediv__)
    __ifloordiv__ = _in_place(np.floor_divide, Mixin.__ifloordiv__)
    __imod__ = _in_place(np.remainder, Mixin.__imod__)
    __ipow__ = _in_place(np.power, Mixin.__ipow__)
    __ilshift__ = _in_place(np.left_shift, Mixin.__ilshift__)
    __irshift__ = _in_place(np.right_shift, Mixin.__irshift__)
    __iand__ = _in_place(np.bitwise_and, Mixin.__iand__)
    __ixor__ = _in_place(np.bitwise_xor, Mixin.__ixor__)
    __ior__ = _in_place(np.bitwise_or, Mixin.__ior__)

    __neg__ = _one(np.negative, Mixin.__neg__)
    __pos__ = _one(np.positive, Mixin.__pos__)
    __abs__ = _one(np.absolute, Mixin.__abs__)
    __invert__ = _one(np.invert, Mixin.__invert__)


QUICK_POWERS: dict[type, dict[Any, np.ufunc]] = {int: {-1: np.reciprocal, 2: np.square}, float: {0.5: np.sqrt}}


def quick_power(dtype: np.dtype[Any], exponent: Any) -> np.ufunc | None:
    """Return what NumPy's `array ** exponent` calls instead of `np.power`; None for float32 and float64, where both give the same bits."""
    known = QUICK_POWERS.get(type(exponent))
    return None if known is None or dtype.kind not in "fc" or dtype.char in "fd" else known.get(exponent)


class ArrayOperators(PythonOperators):
    """The operators of arrays. NumPy's scalars, and so values, have no quick powers."""

    __slots__ = ()

    def __pow__(self, other: Any) -> Any:
        quick = quick_power(self.dtype, other)  # type: ignore[attr-defined]
        return super().__pow__(other) if quick is None else quick(self)

    def __ipow__(self, other: Any) -> Any:
        quick = quick_power(self.dtype, other)  # type: ignore[attr-defined]
        return super().__ipow__(other) if quick is None else quick(self, out=(self,))
