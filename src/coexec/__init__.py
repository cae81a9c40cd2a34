"""coexec runs one Python array program on every device at once.

Write kernels over arrays and call them as usual: coexec infers what depends on what, box by box, places and divides
the work, moves the data and overlaps what can overlap. Nothing starts at import.
"""

from __future__ import annotations

from typing import Any

from . import errors
from ._version import __version__
from .calibrate import Calibration, calibrate
from .errors import CoexecError, CoexecWarning, TaskCancelled, TaskFailed
from .ops import conv2d, matmul
from .plan.plan import Plan
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
from .program.mapper import all, axis, even, fixed, halo, same
from .program.record import record
from .program.returns import like, new
from .program.value import Value, valued as _valued
from .program.variant import close, exact
from .runtime import Runtime

_session.set_default(Runtime)


def _ranked() -> type[Runtime]:
    from .ranked import Ranked

    return Ranked


Runtime.ranked = _ranked


def wait() -> None:
    """Wait for everything the current runtime was given; raise failures not yet seen, as a group."""
    _session.current().wait()


def flush() -> None:
    """Begin with everything the current runtime was given, whatever is still to come. Waits for nothing."""
    _session.current().flush()


LATE = {
    "Platform": ".machine.platform",
    "Trace": ".observe.trace",
    "argmax": ".ops.extremes",
    "argmin": ".ops.extremes",
    "dot": ".ops.products",
    "map": ".ops.map",
    "max": ".ops.reductions",
    "mean": ".ops.statistics",
    "min": ".ops.reductions",
    "prod": ".ops.reductions",
    "random": ".ops.random",
    "std": ".ops.statistics",
    "sum": ".ops.reductions",
    "testing": ".testing",
    "var": ".ops.statistics",
}
"""Names that are found on first use, so that import is quick."""
NUMBERS = frozenset({"argmax", "argmin", "dot", "max", "mean", "min", "prod", "std", "sum", "var"})
"""Those of them that answer with a value where NumPy's function of that name gives a number."""


def __getattr__(name: str) -> Any:
    if name in LATE:
        from importlib import import_module

        module = import_module(LATE[name], __name__)
        found = module if name in ("random", "testing") else getattr(module, name)
        return _valued(found) if name in NUMBERS else found
    raise AttributeError(f"module 'coexec' has no attribute {name!r}")


__all__ = [
    "Array",
    "Calibration",
    "CoexecError",
    "CoexecWarning",
    "Kernel",
    "Plan",
    "Platform",
    "Runtime",
    "TaskCancelled",
    "TaskFailed",
    "Trace",
    "Value",
    "__version__",
    "all",
    "argmax",
    "argmin",
    "array",
    "asarray",
    "axis",
    "calibrate",
    "close",
    "conv2d",
    "dot",
    "empty",
    "empty_like",
    "errors",
    "even",
    "exact",
    "fixed",
    "flush",
    "full",
    "full_like",
    "halo",
    "host_task",
    "kernel",
    "like",
    "map",
    "matmul",
    "max",
    "mean",
    "min",
    "new",
    "ones",
    "ones_like",
    "prod",
    "random",
    "read",
    "record",
    "reduce",
    "same",
    "std",
    "sum",
    "testing",
    "update",
    "var",
    "wait",
    "write",
    "zeros",
    "zeros_like",
]
