"""The kernel with which the doctor tries the CPU.

Before: the public names.  After: doctor.py.  Small on purpose.
"""

from __future__ import annotations

from typing import Any

import coexec as cx


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def double(x: Any) -> Any:
    """Return twice the elements."""
    return 2 * x
