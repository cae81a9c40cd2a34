"""The arguments of a kernel in OpenCL, as hand-written host code passes them: arrays in order and in whole.

Before: backend/opencl/.  After: dag/opencl.py, split/opencl.py.  Knows no program: only names and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..backend.opencl.layout import dense_strides
from ..backend.opencl.source import SourceArgument, scalar


class Arguments(NamedTuple):
    """Arguments as the text of a kernel needs them, as they are passed, and the types of those passed by value."""

    declared: tuple[SourceArgument, ...]
    values: list[Any]
    dtypes: list[Any]


def arguments(
    given: Iterable[tuple[str, Any]],
    buffer: Callable[[str, Any], Any],
    writes: Callable[[str, Any], bool],
    *,
    single: bool,
) -> Arguments:
    """Return the arguments; `buffer` and `writes` tell of an array, by name and value, where it is and whether it is written."""
    declared: list[SourceArgument] = []
    values: list[Any] = []
    dtypes: list[Any] = []
    for name, value in given:
        if isinstance(value, np.ndarray):
            declared.append(SourceArgument(name, value.dtype.name, value.ndim, writes(name, value), unit=True))
            values += [buffer(name, value), 0, *dense_strides(value.shape)]
            dtypes += [None] + [np.int64] * (value.ndim + 1)
        else:
            dtype, passed = scalar(name, value, single=single)
            declared.append(SourceArgument(name, dtype))
            values.append(passed)
            dtypes.append(np.dtype(dtype))
    return Arguments(tuple(declared), values, dtypes)
