"""Steps that a program names: `with step:` around what a loop does, so that it is replayed, and known how often.

Before: program/session.py.  After: the package.  Knows no graph: the runtime says what it made of a step.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any, Self

from . import session


class Record(ContextDecorator):
    """A step of a program, named by the program: a context, or a decorator of a function that is one step."""

    def __init__(self, name: str = "", times: int | None = None) -> None:
        if times is not None and times < 1:
            raise ValueError(
                f"cx.record(times={times}): a step that comes is run at least once; leave times out if it is not known"
            )
        self.name = name
        self.times = times  # that it will be run, as the program says; None: nobody knows
        self.steps = 0  # how often it was run
        self.replayed = 0  # how often without any analysis
        self.why = ""  # the last one was analysed
        self._begun: list[tuple[Any, Any]] = []

    def __enter__(self) -> Self:
        runtime = session.current()
        told = self.times if self.times is not None and not self.steps and not self._begun else 0
        self._begun.append((runtime, runtime.begin_step(told)))
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


def record(name: str = "", *, times: int | None = None) -> Record:
    """Return a step to be repeated: `step = cx.record()`, then `with step: ...` around the body of a loop.

    Calls that repeat themselves are replayed anyway. A named step tells how often all of it was (`step.replayed` of
    `step.steps`), and if not, which call was the reason (`step.why`).

    `times` tells how often the step will be run, if the program knows. The first run then waits until the step is over or
    something of it is read, and is planned as a whole before any of it runs: what is moved is moved once, for all of them.
    """
    return Record(name, times)
