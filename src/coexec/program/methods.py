"""NumPy's methods on coexec arrays: `x.sum()` is `np.sum(x)`.

Before: nothing.  After: program/array.py, which inherits them.  Knows NumPy's functions only; none of these waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class Methods:
    """The methods of np.ndarray that give new arrays, or views, without waiting."""

    __slots__ = ()

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self.__array_function__(function, (type(self),), (self, *args), kwargs)  # type: ignore[attr-defined]

    def __contains__(self, value: Any) -> bool:
        found: Any = self == value
        return bool(found.any())

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.sum of this array."""
        return self._call(np.sum, *args, **kwargs)

    def prod(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.prod of this array."""
        return self._call(np.prod, *args, **kwargs)

    def max(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.max of this array."""
        return self._call(np.max, *args, **kwargs)

    def min(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.min of this array."""
        return self._call(np.min, *args, **kwargs)

    def any(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.any of this array."""
        return self._call(np.any, *args, **kwargs)

    def all(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.all of this array."""
        return self._call(np.all, *args, **kwargs)

    def argmax(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.argmax of this array."""
        return self._call(np.argmax, *args, **kwargs)

    def argmin(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.argmin of this array."""
        return self._call(np.argmin, *args, **kwargs)

    def mean(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.mean of this array."""
        return self._call(np.mean, *args, **kwargs)

    def var(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.var of this array."""
        return self._call(np.var, *args, **kwargs)

    def std(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.std of this array."""
        return self._call(np.std, *args, **kwargs)

    def dot(self, b: Any, out: Any = None) -> Any:
        """Return np.dot of this array and `b`."""
        return self._call(np.dot, b) if out is None else self._call(np.dot, b, out)

    def clip(self, *args: Any, **kwargs: Any) -> Any:
        """Return np.clip of this array."""
        return self._call(np.clip, *args, **kwargs)

    def squeeze(self, axis: Any = None) -> Any:
        """Return np.squeeze of this array, a view."""
        return self._call(np.squeeze, axis)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """Return np.swapaxes of this array, a view."""
        return self._call(np.swapaxes, axis1, axis2)

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """Return np.reshape of this array, where that is a view."""
        return self._call(np.reshape, shape[0] if len(shape) == 1 else shape, order)

    def ravel(self, order: str = "C") -> Any:
        """Return np.ravel of this array, where that is a view."""
        return self._call(np.ravel, order)

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        """Return this array with another type."""
        return self._call(np.astype, dtype, copy=copy)
