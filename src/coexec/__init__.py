"""coexec runs one Python array program on every device at once.

Write kernels over arrays and call them as usual: coexec infers what depends on what, box by box, places and divides
the work, moves the data and overlaps what can overlap. Nothing starts at import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from ._version import __version__
from .calibrate import Calibration, calibrate
from .cluster.here import rank, ranks
from .errors import CoexecError, CoexecWarning, TaskCancelled, TaskFailed
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
from .program.call import placed
from .program.host_task import host_task
from .program.kernel import Kernel, kernel
from .program.mapper import all, axis, even, fixed, halo, same
from .program.placement import Placement
from .program.record import record
from .program.returns import like, new
from .program.value import Value, valued as _valued
from .program.variant import close, exact
from .runtime import Runtime

if TYPE_CHECKING:  # what type checkers and editors see; at run time these names are found on first use, below
    from . import testing
    from .cluster.breaking import breakpoint
    from .joules.meter import energy
    from .machine.platform import Platform
    from .models.model import Model
    from .observe.trace import Trace
    from .ops import random
    from .ops.attention import window_attention
    from .ops.conv2d import conv2d
    from .ops.csr import CSR, csr
    from .ops.extremes import argmax, argmin
    from .ops.files import checkpoint, gather, load, restore, save
    from .ops.from_function import fromfunction
    from .ops.map import map
    from .ops.matmul import matmul
    from .ops.products import dot
    from .ops.reductions import max, min, prod, sum
    from .ops.rowwise import gelu, layernorm, relu, softmax
    from .ops.sparse import sddmm, spmm, spmv
    from .ops.statistics import mean, std, var
    from .stream.pipeline import Pipeline

_session.set_default(Runtime)


def wait() -> None:
    """Wait for everything the current runtime was given; raise failures not yet seen, as a group."""
    _session.current().wait()


def flush() -> None:
    """Begin with everything the current runtime was given, whatever is still to come. Waits for nothing."""
    _session.current().flush()


LATE = {
    "CSR": ".ops.csr",
    "Model": ".models.model",
    "Pipeline": ".stream.pipeline",
    "Platform": ".machine.platform",
    "Trace": ".observe.trace",
    "argmax": ".ops.extremes",
    "argmin": ".ops.extremes",
    "breakpoint": ".cluster.breaking",
    "checkpoint": ".ops.files",
    "conv2d": ".ops.conv2d",
    "csr": ".ops.csr",
    "dot": ".ops.products",
    "energy": ".joules.meter",
    "fromfunction": ".ops.from_function",
    "gather": ".ops.files",
    "gelu": ".ops.rowwise",
    "layernorm": ".ops.rowwise",
    "load": ".ops.files",
    "map": ".ops.map",
    "matmul": ".ops.matmul",
    "max": ".ops.reductions",
    "mean": ".ops.statistics",
    "min": ".ops.reductions",
    "prod": ".ops.reductions",
    "random": ".ops.random",
    "relu": ".ops.rowwise",
    "restore": ".ops.files",
    "save": ".ops.files",
    "sddmm": ".ops.sparse",
    "softmax": ".ops.rowwise",
    "spmm": ".ops.sparse",
    "spmv": ".ops.sparse",
    "std": ".ops.statistics",
    "sum": ".ops.reductions",
    "testing": ".testing",
    "var": ".ops.statistics",
    "window_attention": ".ops.attention",
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
    "CSR",
    "Array",
    "Calibration",
    "CoexecError",
    "CoexecWarning",
    "Kernel",
    "Model",
    "Pipeline",
    "Placement",
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
    "breakpoint",
    "calibrate",
    "checkpoint",
    "close",
    "conv2d",
    "csr",
    "dot",
    "empty",
    "empty_like",
    "energy",
    "errors",
    "even",
    "exact",
    "fixed",
    "flush",
    "fromfunction",
    "full",
    "full_like",
    "gather",
    "gelu",
    "halo",
    "host_task",
    "kernel",
    "layernorm",
    "like",
    "load",
    "map",
    "matmul",
    "max",
    "mean",
    "min",
    "new",
    "ones",
    "ones_like",
    "placed",
    "prod",
    "random",
    "rank",
    "ranks",
    "read",
    "record",
    "reduce",
    "relu",
    "restore",
    "same",
    "save",
    "sddmm",
    "softmax",
    "spmm",
    "spmv",
    "std",
    "sum",
    "testing",
    "update",
    "var",
    "wait",
    "window_attention",
    "write",
    "zeros",
    "zeros_like",
]
