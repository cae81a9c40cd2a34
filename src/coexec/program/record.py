"""Steps that a program names: `with step:` around what a loop does, so that it is replayed, and known how often.

Before: program/session.py.  After: the package.  Knows no graph: the runtime says what it made of a step.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any, Self

from . import session


class Record(ContextDecorator):
    """A step of a program, named by the program: a context, or a decorator of a function that is one step."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.steps = 0  # how often it was run
        self.replayed = 0  # how often without any analysis
        self.why = ""  # the last one was analysed
        self._begun: list[tuple[Any, Any]] = []

    def __enter__(self) -> Self:
        runtime = session.current()
        self._begun.append((runtime, runtime.begin_step()))
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        runtime, token = self._begun.pop()
        if runtime.closed:
            return
        replayed, why = runtime.end_step(token, left=kind is not None)
        if kind is None:
            self.steps += 1
            self.replayed += replayed
            if not replayed:
                self.why = why

    def __repr__(self) -> str:
        return f"<cx.record {self.name or 'step'}: {self.replayed} of {self.steps} replayed>"


def record(name: str = "") -> Record:
    """Return a step to be repeated: `step = cx.record()`, then `with step: ...` around the body of a loop.

    Calls that repeat themselves are replayed anyway. A named step tells how often all of it was (`step.replayed` of
    `step.steps`), and if not, which call was the reason (`step.why`).
    """
    return Record(name)
