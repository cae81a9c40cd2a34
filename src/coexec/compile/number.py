"""Numbers in the types that NumPy computes in.

Before: compile/refused.py.  After: compile/symbolic.py, compile/entering.py.  Knows no array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .refused import Untraceable


def number_as(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """Return a number in a type as NumPy converts it for a computation, or raise where it would warn or refuse."""
    if isinstance(value, np.generic):
        if value.dtype.kind == "f" and dtype.kind in "iu":
            raise Untraceable(f"a {value.dtype} number becomes {dtype}")
        with np.errstate(all="ignore"):
            found: np.generic = value.astype(dtype)
    elif dtype.kind in "iu":
        if type(value) is float:
            raise Untraceable(f"the number {value!r} becomes {dtype}")
        info = np.iinfo(dtype)
        if not info.min <= int(value) <= info.max:
            raise Untraceable(f"the number {value!r} does not fit into {dtype}")
        found = dtype.type(value)
    else:
        try:
            with np.errstate(all="ignore"):
                found = dtype.type(value)
        except OverflowError:
            raise Untraceable(f"the number {value!r} does not fit into {dtype}") from None
    if dtype.kind == "f" and np.isinf(found) and not np.isinf(value):
        raise Untraceable(f"the number {value!r} does not fit into {dtype}")
    return found
