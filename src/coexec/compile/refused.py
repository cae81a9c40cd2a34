"""The two answers of the compiler that are no compiled form: a reason for the user, and the exception that carries it.

Before: nothing.  After: all of compile/.  Knows nothing else.
"""

from __future__ import annotations

from typing import NamedTuple


class Declined(NamedTuple):
    """A body that is not compiled, and why; the NumPy body serves as before."""

    reason: str

    def __bool__(self) -> bool:
        return False


DEEP = "its values are nested too deeply: a long Python loop?"
"""What is said where Python's stack ends."""


class Untraceable(BaseException):
    """The reason why a body is not compiled. No `Exception`, so that a body's own handlers do not swallow it."""

    blocks = False  # whether a loop over blocks was traced for one of them: unrolled, it may be another matter
