"""How many operations a body takes, counted in its graph: what predictions of kernels that never ran begin with.

Before: compile/trace.py.  After: predict/operations.py.  Compiles nothing, and needs no compiler.

Each value of the graph is computed once per element. An operation counts as often as an addition would fit into its time,
so that a count divided by a device's peak rate is about what computing takes there. Those weights are estimates: they give
the order of magnitude, until a kernel has run and was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..program.cost import DIVISIONS, EXPONENTIALS, OTHERS
from .graph import Apply, Draw, Expr, Fold, Shape, nodes_of
from .host import Host, same
from .refused import Untraceable
from .trace import trace

DIVISION, EXPONENTIAL, OTHER = (
    4,
    10,
    20,
)  # additions in the time of a quotient or root, an exponential, a sine: estimates
DRAWN = {"uniform": 20, "normal": 60}  # additions in the time of a random number: estimates, too
FORMS = 4  # graphs of one body for one pattern of types: more means that it decides by something that changes


class Count:
    """The operations of one graph, as an expression of extents and numbers of the host."""

    def __init__(
        self, body: Callable[..., Any], arguments: Mapping[str, Any], writes: Collection[str], returns: Sequence[str]
    ) -> None:
        traced = trace(body, arguments, writes, returns, free=True, counting=True)
        terms: dict[str, int] = {}
        for node in nodes_of(*(store.value for store in traced.stores)):
            if weight := _weight(node):
                text = _product(node.arg.shape if isinstance(node, Fold) else node.shape)
                terms[text] = terms.get(text, 0) + weight
        self._named = {name: _compiled(text) for name, text in traced.guards.named.items()}
        self._answers = [(_compiled(text), answer) for text, answer in traced.guards.answers.items()]
        self._least = [(_compiled(text), least) for text, least in traced.guards.least.items()]
        self._total = _compiled(" + ".join(f"{weight} * {text}" for text, weight in terms.items()) or "0")

    def of(self, arguments: Mapping[str, Any]) -> float | None:
        """Return the operations of a call; None if the body would do something else there."""
        names: dict[str, Any] = {"np": np, "same": same, **arguments}
        for name, value in arguments.items():
            if isinstance(value, np.ndarray):
                names |= {f"{name}__{axis}": extent for axis, extent in enumerate(value.shape)}
        for name, text in self._named.items():
            names[name] = _value(text, names)
        if not all(same(_value(text, names), answer) for text, answer in self._answers):
            return None
        if not all(_value(text, names) >= least for text, least in self._least):
            return None
        return float(_value(self._total, names))


class Counts:
    """The operations of a body's calls, by the types of its arguments."""

    def __init__(self, body: Callable[..., Any], writes: Collection[str], returns: Sequence[str]) -> None:
        self._body, self._writes, self._returns = body, writes, returns
        self._known: dict[Any, list[Count]] = {}

    def of(self, arguments: Mapping[str, Any]) -> float | None:
        """Return the operations of a call with such arguments, whose elements do not matter; None if they are unknown."""
        kinds = tuple((v.dtype.str, v.ndim) if isinstance(v, np.ndarray) else type(v) for v in arguments.values())
        known = self._known.setdefault(kinds, [])
        try:
            for count in known:
                found = count.of(arguments)
                if found is not None:
                    return found
            if len(known) >= FORMS:
                return None
            known.append(Count(self._body, arguments, self._writes, self._returns))
            return known[-1].of(arguments)
        except (Untraceable, ArithmeticError, ValueError, TypeError, NameError, RecursionError):
            known.extend([_NOTHING] * (FORMS - len(known)))  # it is not tried again
            return None


class _Nothing(Count):
    def __init__(self) -> None:
        """There is no graph."""

    def of(self, arguments: Mapping[str, Any]) -> float | None:
        del arguments
        return None


_NOTHING = _Nothing()


def _weight(node: Expr) -> int:
    """Return how many additions one element of a value is worth."""
    if isinstance(node, Draw):
        return DRAWN[node.kind]
    if isinstance(node, Fold):
        return 1
    if not isinstance(node, Apply):
        return 0
    name = node.function
    return DIVISION if name in DIVISIONS else EXPONENTIAL if name in EXPONENTIALS else OTHER if name in OTHERS else 1


def _product(shape: Shape) -> str:
    texts = [size.text if isinstance(size, Host) else str(size) for size in shape]
    return " * ".join(f"({text})" for text in texts) or "1"


def _compiled(text: str) -> Any:
    return compile(text, "<operations>", "eval")


def _value(text: Any, names: dict[str, Any]) -> Any:
    return eval(text, {"__builtins__": {"abs": abs, "bool": bool, "float": float, "int": int, "bytes": bytes}}, names)  # noqa: S307 - expressions that the tracer has written
