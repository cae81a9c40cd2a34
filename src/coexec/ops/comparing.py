"""Questions about whole arrays whose answer is a Python bool: these wait, as every conversion does.

Before: ops/reduce.py.  After: program/numpy_protocol.py, which finds it by name.  Knows no device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..program.array import Array
from ..program.ufunc import applied, elementwise, operand
from .reduce import as_array, reduce_ufunc


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Wait, and tell whether both have the same shape and elements."""
    x, y = as_array(a1), as_array(a2)
    if x.shape != y.shape:
        return False
    same = applied(np.equal, x, y)
    if equal_nan and {x.dtype.kind, y.dtype.kind} <= set("fc"):
        both = [applied(np.isnan, v) for v in (x, y)]
        same = elementwise(np.logical_or, [same, elementwise(np.logical_and, both, [None])[0]], [None])[0]
    return bool(reduce_ufunc(np.logical_and, same, None))


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Wait, and tell whether all elements are close."""
    return bool(reduce_ufunc(np.logical_and, isclose(a, b, rtol, atol, equal_nan), None))


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Tell element by element whether two arrays are close, as a new array, without waiting."""
    options = (("atol", float(atol)), ("equal_nan", bool(equal_nan)), ("rtol", float(rtol)))
    return elementwise(np.isclose, [operand(a), operand(b)], [None], options)[0]
