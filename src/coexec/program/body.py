"""Bodies: the signature of those that are objects instead of functions, and which of them do nothing.

Before: nothing.  After: program/fuse.py, program/ufunc.py, ops/, plan/.  Knows no kernel.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Sequence
from typing import Any

NOTHING = {"RESUME", "NOP", "LOAD_CONST", "POP_TOP", "RETURN_CONST", "RETURN_VALUE", "COPY_FREE_VARS"}
"""What a body like `...` or `pass` is compiled to."""


def signature(names: Sequence[str]) -> inspect.Signature:
    """Return the signature of a body that takes these parameters."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])


def does_nothing(function: Callable[..., Any]) -> bool:
    """Tell whether a body is empty: its kernel was written for devices that run no Python."""
    return inspect.isfunction(function) and all(i.opname in NOTHING for i in dis.get_instructions(function))
