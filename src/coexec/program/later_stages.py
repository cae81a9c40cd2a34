"""What NumPy's functions need of later stages, loaded when it is asked for.

Before: nothing.  After: program/ufunc.py, program/numpy_protocol.py.  Knows names only: ops/ is made of kernels.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any


@lru_cache(maxsize=256)
def late(path: str) -> Any:
    """Return `module:name` of the coexec package, importing its module the first time."""
    module, _, name = path.partition(":")
    return getattr(import_module(f"coexec.{module}"), name)
