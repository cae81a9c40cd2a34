"""The first layer: hold operators and ufuncs back, so that a chain of them becomes one kernel.

Before: program/fuse.py.  After: schedule/deal.py or schedule/link.py.  Pure: whoever drives the scheduler may settle it.

A chain ends with whatever else the program does: a kernel, a read, a wait, an operation that does not fit to it. Where one
process runs the whole program, a timer may end it, too, so that devices do not stand still while the program is busy
elsewhere. Among ranks nothing but the program ends a chain: all of them must have the same tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from math import prod
from typing import Any

from ..program.array import Array
from ..program.call import placed_in
from ..program.fuse import BLOCK, Chain, Line, Operation, private
from ..program.kernel import Kernel
from ..program.value import Value
from .events import CHAIN, Operated, Settle
from .layer import Item, Layer

QUIET = {"ignore", "warn"}
"""What NumPy may do about a division by zero so that it does not matter which operations are one kernel."""
Runs = Callable[[Kernel, Sequence[Any]], bool]
Describe = Callable[[Kernel, tuple[Any, ...], Context, Line], Any]
"""Makes of a chain what its successor takes: from its kernel, its arguments, the context and the line it began at."""


class FuseLayer:
    """The chain that is held back, if any."""

    def __init__(self, successor: Layer, describe: Describe, runs: Runs, *, on: bool, in_rows: bool = False) -> None:
        self._successor = successor
        self._describe = describe
        self._runs = runs  # tells whether a kernel can run here
        self.enabled = on
        self._in_rows = in_rows  # only what is cut between rows: a chain then calls each function on its blocks alone
        self.held: Chain | None = None
        self._context: Context | None = None
        self._errors: Mapping[str, Any] = {}  # what NumPy does about errors in the chain

    @property
    def holding(self) -> bool:
        """Whether something is held back, here or behind."""
        return self.held is not None or self._successor.holding

    def takes(self, operation: Operation, errors: Mapping[str, Any]) -> bool:
        """Tell whether an operation can be held back: it has an axis, arrays of one runtime, and a device."""
        if not self.enabled or not QUIET.issuperset(errors.values()):
            return False
        arrays = [value for value in operation.arguments if isinstance(value, Array)]
        session = operation.output._storage.session
        alike = all(array._storage.session is session for array in arrays)
        if self._in_rows and prod(operation.output.shape[1:]) > BLOCK:
            return False
        return bool(alike and operation.output.shape and self._runs(operation.kernel, arrays))

    def operated(self, event: Operated) -> None:
        """Hold an operation back."""
        operation, context, errors, line = event
        if any(type(value) is Value for value in operation.inputs):
            seen = [value.at() if type(value) is Value else value for value in operation.inputs]
            operation = operation._replace(inputs=private(seen))
        if self.held is not None and not (self._alike(event) and self.held.accepts(operation)):
            self.end_chain()
        if self.held is None:
            self.held, self._context, self._errors = Chain(), context, errors
        self.held.add(operation, line)

    def _alike(self, event: Operated) -> bool:
        """Tell whether an operation is placed as the chain is, and NumPy does the same about its errors."""
        return event.errors == self._errors and placed_in(event.context) == placed_in(self._context)

    def on(self, item: Item) -> None:
        """Let the chain go first."""
        if self.held is not None:
            self.end_chain()
        self._successor.on(item)

    def settle(self, event: Settle) -> None:
        """Let the chain go, and perhaps what others hold."""
        if event.task is None and not event.round:
            self.end_chain()
        if event.depth > CHAIN:
            self._successor.settle(event)

    def end_chain(self) -> None:
        """Send on what is held back."""
        chain, context = self.held, self._context
        if chain is not None and context is not None:
            self.held = self._context = None
            calls = chain.calls()
            del chain  # or its handles would keep what nobody wants
            for kernel, arguments, line in calls:
                # One kernel at a time can be in a context.
                self._successor.on(self._describe(kernel, arguments, context.copy(), line))
