"""The reductions by name: sum, prod, max, min, any, all, as NumPy has them.

Before: ops/reduce.py.  After: the package's own namespace.  Knows no device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..program.array import Array
from ..program.ufunc import applied
from .reduce import as_array, reduce_ufunc
from .reduce_kernels import ABSENT


def _named(ufunc: Any, name: str, about: str) -> Any:
    def call(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *,
        initial: Any = ABSENT, where: Any = True
    ) -> Array:  # fmt: skip
        return reduce_ufunc(ufunc, a, axis, dtype, out, keepdims, initial, where)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = about
    return call


sum = _named(np.add, "sum", "Return the sum over the given axes as a new array, without waiting.")
prod = _named(np.multiply, "prod", "Return the product over the given axes as a new array, without waiting.")


def max(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = ABSENT, where: Any = True
) -> Array:
    """Return the largest elements over the given axes as a new array, without waiting; NaN wins, as in NumPy."""
    return reduce_ufunc(np.maximum, a, axis, None, out, keepdims, initial, where)


def min(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = ABSENT, where: Any = True
) -> Array:
    """Return the smallest elements over the given axes as a new array, without waiting; NaN wins, as in NumPy."""
    return reduce_ufunc(np.minimum, a, axis, None, out, keepdims, initial, where)


def any(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Array:
    """Tell whether any element over the given axes is true, as a new array, without waiting."""
    return reduce_ufunc(np.logical_or, a, axis, None, out, keepdims, where=where)


def all(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Array:
    """Tell whether all elements over the given axes are true, as a new array, without waiting."""
    return reduce_ufunc(np.logical_and, a, axis, None, out, keepdims, where=where)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Array:
    """Return how many elements over the given axes are not zero, as a new array, without waiting."""
    return reduce_ufunc(np.add, applied(np.not_equal, as_array(a), 0), axis, np.intp, None, keepdims)
