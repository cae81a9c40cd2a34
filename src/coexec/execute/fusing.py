"""Hold elementwise operations back for a moment, so that a chain of them becomes one kernel.

Before: program/fuse.py, execute/moment.py.  After: runtime.py.  Owned by a runtime.

A chain is let go when anything else happens that could see the difference: another kernel, a read, a wait. If nothing
does, a thread lets it go a moment after its last operation, so that work never stands still while the program is busy
elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from math import prod
from typing import Any

import numpy as np

from ..origin import program_frame
from ..program.array import Array
from ..program.fuse import BLOCK, Chain, Line, Operation, private
from ..program.kernel import Kernel
from ..program.value import Value
from .moment import Moment

MOMENT = 300e-6  # seconds: longer than the next operation of an expression takes to come, shorter than one to compute
LONGEST_MOMENT = 8 * MOMENT  # while operations keep coming: each look costs the program's thread the interpreter

QUIET = {"ignore", "warn"}
"""What NumPy may do about a division by zero so that it does not matter which operations are one kernel."""
Enter = Callable[[Kernel, tuple[Any, ...], Context, Line], None]
Runs = Callable[[Kernel, Sequence[Any]], bool]


class Fusing:
    """The chain that is held back, if any."""

    def __init__(self, lock: Any, enter: Enter, runs: Runs, *, on: bool, timed: bool = True) -> None:
        self._lock = lock
        self._enter = enter  # records a call, under the lock
        self._runs = runs  # tells whether a kernel can run here
        self.on = on
        self._timed = timed  # else a chain ends when something else is asked for
        self.in_rows = (
            False  # only what is cut between rows: then a chain calls each function on the blocks of it alone
        )
        self.held: Chain | None = None
        self._context: Context | None = None
        self._errors: Any = {}  # what NumPy does about errors
        self._late: BaseException | None = None  # what went wrong on the thread: the program is told as soon as it asks
        self._moment = Moment(lock, self._let_go, "coexec-fusing", MOMENT, LONGEST_MOMENT)

    def hold(self, operation: Operation) -> bool:
        """Hold an operation back; False if it must be recorded at once, which also says what is wrong with it."""
        errors = np.geterr()
        if not self.on or not QUIET.issuperset(errors.values()) or not self._plain(operation):
            return False
        line = _caller()
        with self._lock:
            if any(type(value) is Value for value in operation.inputs):
                seen = [value.at() if type(value) is Value else value for value in operation.inputs]
                operation = operation._replace(inputs=private(seen))
            if self.held is not None and (errors != self._errors or not self.held.accepts(operation)):
                self.flush()
            if self.held is None:
                self.held, self._context, self._errors = Chain(), copy_context(), errors
                if self._timed:
                    self._moment.begin()
            self.held.add(operation, line)
            self._moment.more()
        return True

    def _plain(self, operation: Operation) -> bool:
        """Tell whether an operation has an axis, arrays of this runtime only, and a device that computes it."""
        arrays = [value for value in operation.arguments if isinstance(value, Array)]
        session = operation.output._storage.session
        alike = all(array._storage.session is session for array in arrays)
        if self.in_rows and prod(operation.output.shape[1:]) > BLOCK:
            return False
        return bool(alike and operation.output.shape and self._runs(operation.kernel, arrays))

    def flush(self) -> None:
        """Record what is held back. Locked."""
        if self._late is not None:
            error, self._late = self._late, None
            raise error
        chain, context = self.held, self._context
        if chain is not None and context is not None:
            self.held = self._context = None
            calls = chain.calls()
            del chain  # or its handles would keep what nobody wants
            for kernel, arguments, line in calls:
                self._enter(kernel, arguments, context.copy(), line)  # one kernel at a time can be in a context

    def _let_go(self, last: bool) -> bool:
        """Record what was held for a moment. Locked, on the waiting thread."""
        del last
        try:
            self.flush()
        except BaseException as error:  # noqa: BLE001 - the next wait of the program raises it
            self._late = error
        return True

    def stop(self) -> None:
        """End the thread. Nothing is held any more."""
        self.on = False
        self._moment.stop()


def _caller() -> Line:
    """Return the program's line that asks for an operation."""
    frame = program_frame(sys._getframe(1))
    return frame.f_code.co_filename, frame.f_lineno
