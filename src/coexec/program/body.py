"""Bodies that are objects instead of functions: the signature by which a kernel names their parameters.

Before: nothing.  After: program/fuse.py, program/ufunc.py, ops/.  Knows no kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence


def signature(names: Sequence[str]) -> inspect.Signature:
    """Return the signature of a body that takes these parameters."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])
