"""coexec runs one Python array program on every device at once.

Write kernels over arrays and call them as usual: coexec infers what depends on what, box by box, places and divides
the work, moves the data and overlaps what can overlap. Nothing starts at import.
"""

from __future__ import annotations

from typing import Any

from . import errors
from ._version import __version__
from .errors import CoexecError, CoexecWarning, TaskCancelled, TaskFailed
from .program import session as _session
from .program.access import read, reduce, update, write
from .program.array import (
    Array,
    array,
    asarray,
    empty,
    empty_like,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from .program.host_task import host_task
from .program.kernel import Kernel, kernel
from .program.mapper import all, axis, fixed, halo, same
from .program.returns import like, new
from .program.variant import close, exact
from .runtime import Runtime

_session.set_default(Runtime)


def wait() -> None:
    """Wait for everything the current runtime was given; raise failures not yet seen, as a group."""
    _session.current().wait()


def __getattr__(name: str) -> Any:
    if name == "Trace":
        from .observe.trace import Trace

        return Trace
    if name == "testing":
        from importlib import import_module

        return import_module("coexec.testing")
    raise AttributeError(f"module 'coexec' has no attribute {name!r}")


__all__ = [
    "Array",
    "CoexecError",
    "CoexecWarning",
    "Kernel",
    "Runtime",
    "TaskCancelled",
    "TaskFailed",
    "Trace",
    "__version__",
    "all",
    "array",
    "asarray",
    "axis",
    "close",
    "empty",
    "empty_like",
    "errors",
    "exact",
    "fixed",
    "full",
    "full_like",
    "halo",
    "host_task",
    "kernel",
    "like",
    "new",
    "ones",
    "ones_like",
    "read",
    "reduce",
    "same",
    "testing",
    "update",
    "wait",
    "write",
    "zeros",
    "zeros_like",
]
