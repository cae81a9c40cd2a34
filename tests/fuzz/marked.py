"""NumPy arrays whose elements say whether they may be read: the other side of programs in which tasks fail.

What a failed task would have written is lost until it is overwritten. Whatever reads nothing but lost elements is lost;
what reads some of them is lost in part, and which part depends on how the call is divided: it may be either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

GOOD, LOST, UNKNOWN = 0, 1, 2
Plain = np.ndarray[Any, Any]
VIEWS = {np.transpose, np.flip, np.expand_dims, np.squeeze, np.moveaxis, np.swapaxes, np.reshape}


def outcome(read: list[Plain]) -> int:
    """Return what becomes of what is computed from elements with these marks."""
    seen = np.concatenate([marks.ravel() for marks in read]) if read else np.zeros(0, np.uint8)
    if not seen.any():
        return GOOD
    return LOST if (seen == LOST).all() else UNKNOWN


class Marked(NDArrayOperatorsMixin):
    """An array, or a view of one, with a mark per element."""

    def __init__(self, values: Plain, marks: Plain) -> None:
        self.values, self.marks = values, marks
        self.shape, self.dtype, self.ndim, self.size = values.shape, values.dtype, values.ndim, values.size

    @property
    def T(self) -> Marked:
        """The view with its axes reversed."""
        return Marked(self.values.T, self.marks.T)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> Any:
        values, marks = self.values[key], self.marks[key]
        return Marked(np.asarray(values), np.asarray(marks))

    def __setitem__(self, key: Any, value: Any) -> None:
        state = outcome([value.marks]) if isinstance(value, Marked) else GOOD
        self.values[key] = value.values.copy() if isinstance(value, Marked) else value
        key = key if isinstance(key, tuple) else (key,)
        self.marks[key if ... in key else (*key, ...)] = state

    def astype(self, dtype: Any) -> Marked:
        """Return a copy of another type."""
        return Marked(self.values.astype(dtype), np.full(self.shape, outcome([self.marks]), np.uint8))

    def copy(self) -> Marked:
        """Return a copy."""
        return self.astype(self.dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        read = [value.marks for value in (*inputs, *kwargs.values()) if isinstance(value, Marked)]
        state = outcome(read)
        plain = {name: _values(value) for name, value in kwargs.items()}
        values = [_values(value) for value in inputs]
        if out is None:
            return self._fresh(getattr(ufunc, method)(*values, **plain), state)
        getattr(ufunc, method)(*values, out=tuple(_values(value) for value in out), **plain)
        if plain.get("where") is not None and state != GOOD:
            state = UNKNOWN
        if plain.get("where") is None or state != GOOD:
            out[0].marks[...] = state
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in VIEWS:
            first, *rest = args
            return Marked(function(first.values, *rest, **kwargs), function(first.marks, *rest, **kwargs))
        flat = [part for value in (*args, *kwargs.values()) for part in (value if isinstance(value, list) else [value])]
        state = outcome([value.marks for value in flat if isinstance(value, Marked)])
        plain = [[_values(part) for part in value] if isinstance(value, list) else _values(value) for value in args]
        return self._fresh(function(*plain, **{name: _values(value) for name, value in kwargs.items()}), state)

    def _fresh(self, values: Any, state: int) -> Marked:
        values = np.asarray(values)
        return Marked(values, np.full(values.shape, state, np.uint8))

    def __getattr__(self, name: str) -> Any:
        if name in ("sum", "max", "min", "mean", "any", "all", "argmax", "argmin", "prod"):
            return lambda *args, **kwargs: self.__array_function__(getattr(np, name), (), (self, *args), kwargs)
        raise AttributeError(name)


def _values(value: Any) -> Any:
    return value.values if isinstance(value, Marked) else value
