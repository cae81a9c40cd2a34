"""The bodies of the compile benchmark by JAX, Dask and numexpr, where they are installed, each on two threads.

Before: nothing.  After: bench/compile/harness.py.  Imported late: a peer takes up to a second.

JAX and Dask are given the same formula: the body itself, with their namespace for NumPy's and with results that are kept
instead of written. numexpr takes text. Inputs are where the peer wants them before the clock starts.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

PEERS = ("jax", "dask", "numexpr")
THREADS = 2
CHUNKS = 4  # of Dask, per thread: enough to share them evenly
Arrays = dict[str, Any]
Work = Callable[[], Any]  # computes once, and returns the results in the order in which they are written

_TEXTS = {
    "triad": "x + s * y",
    "triad_in_place": "x + s * out",
    "chain": "sqrt(x * y + 1) / 2 + x",
    "masked": "where(x > limit, out + 0.5 * (y - x), out * 0.9)",
    "heat": "here + k * (above + below + left + right - 4 * here)",
    "wave": "(above + below + left + right) * speed - out + here * (2 - 4 * speed)",
}


class OutputStandIn:
    """Stands for an array that a body writes: keeps what was written, and shows it."""

    __array_ufunc__ = None  # arrays leave operators to this class

    def __init__(self, value: Any) -> None:
        self.value = value

    def __setitem__(self, index: Any, value: Any) -> None:
        """Take a whole new value."""
        if index is not Ellipsis:
            raise TypeError("only whole arrays are written")
        self.value = value

    def __add__(self, other: Any) -> Any:
        return operator.add(self.value, other)

    def __sub__(self, other: Any) -> Any:
        return operator.sub(self.value, other)

    def __rsub__(self, other: Any) -> Any:
        return operator.sub(other, self.value)

    def __mul__(self, other: Any) -> Any:
        return operator.mul(self.value, other)

    def __rmul__(self, other: Any) -> Any:
        return operator.mul(other, self.value)


def by_peer(peer: str, name: str, body: Callable[..., Any], arguments: Arrays, writes: tuple[str, ...]) -> Work | None:
    """Return what computes a case by a peer; None if that is not installed, or has no such formula."""
    if importlib.util.find_spec(peer) is None:
        return None
    if peer == "numexpr":
        return _by_numexpr(_TEXTS[name], arguments) if name in _TEXTS else None
    return (_by_jax if peer == "jax" else _by_dask)(body, arguments, writes)


def in_namespace(body: Callable[..., Any], namespace: Any) -> Callable[..., Any]:
    """Return a body, and the functions beside it that it calls, with another namespace instead of NumPy."""
    assert isinstance(body, FunctionType)
    names: dict[str, Any] = {**body.__globals__, "np": namespace}
    for word in body.__code__.co_names:
        helper = names.get(word)
        if isinstance(helper, FunctionType) and helper.__module__ == body.__module__:
            names[word] = in_namespace(helper, namespace)
    return FunctionType(body.__code__, names, body.__name__, body.__defaults__, body.__closure__)


def _kept(body: Callable[..., Any], given: Arrays, writes: tuple[str, ...]) -> tuple[Any, ...]:
    """Return what a body writes, in order."""
    targets = {name: OutputStandIn(given[name]) for name in writes}
    body(**given | targets)
    return tuple(target.value for target in targets.values())


def _by_jax(body: Callable[..., Any], arguments: Arrays, writes: tuple[str, ...]) -> Work:
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    here = in_namespace(body, importlib.import_module("jax.numpy"))
    arrays = {name: jax.device_put(value) for name, value in arguments.items() if isinstance(value, np.ndarray)}
    numbers = {name: value for name, value in arguments.items() if name not in arrays}
    compiled = jax.jit(lambda given: _kept(here, given | numbers, writes))
    return lambda: jax.block_until_ready(compiled(arrays))


def _by_dask(body: Callable[..., Any], arguments: Arrays, writes: tuple[str, ...]) -> Work:
    dask_array: Any = importlib.import_module("dask.array")
    rows = max(len(value) for value in arguments.values() if isinstance(value, np.ndarray))

    def chunked(value: Any) -> Any:
        cut = max(1, -(-rows // (THREADS * CHUNKS)))
        return dask_array.from_array(value, chunks=(cut, *value.shape[1:]), name=False)

    def work() -> Any:
        given = {n: chunked(value) if isinstance(value, np.ndarray) else value for n, value in arguments.items()}
        results = _kept(in_namespace(body, dask_array), given, writes)
        computed = importlib.import_module("dask").compute(*results, scheduler="threads", num_workers=THREADS)
        return tuple(computed)

    return work


def _by_numexpr(text: str, arguments: Arrays) -> Work:
    numexpr: Any = importlib.import_module("numexpr")
    given = dict(arguments)
    if "u" in given:
        u = given.pop("u")
        given |= {"above": u[:-2, 1:-1], "below": u[2:, 1:-1], "left": u[1:-1, :-2], "right": u[1:-1, 2:]}
        given["here"] = u[1:-1, 1:-1]
    out = given["out"]
    given |= {n: out.dtype.type(value) for n, value in given.items() if isinstance(value, float)}
    target = np.empty_like(out)

    def work() -> Any:
        numexpr.set_num_threads(THREADS)
        return (numexpr.evaluate(text, local_dict=given, global_dict={}, out=target, casting="same_kind"),)

    return work
