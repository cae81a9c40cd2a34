"""What traced arrays are views of: memory or values, and the tape on which a trace is written.

Before: compile/graph.py.  After: compile/symbolic.py.  Knows no ufunc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import Assign, Axes, Buffer, Clock, Expr, Read, Shape, whole_axes
from .host import Block, Guards, Size
from .refused import Untraceable

STORES = 400  # writes of one body; more means that a Python loop runs over elements
BOOL = np.dtype(bool)
KINDS = "biuf"
SIZES = (1, 2, 4, 8)  # bytes of an element; float16 and longer ones are NumPy's own business


def as_dtype(given: Any) -> np.dtype[Any]:
    """Return the type that a body names; `float` and `int` are stand-ins while it is traced."""
    found: np.dtype[Any] = np.dtype(getattr(given, "stands_for", given))
    return found


def check_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type that compiled forms have, or raise."""
    short = dtype.kind == "f" and dtype.itemsize < 4
    if dtype.kind not in KINDS or dtype.itemsize not in SIZES or short or not dtype.isnative:
        raise Untraceable(f"elements of type {dtype} are not compiled")
    return dtype


class CarriedBy(BaseException):
    """A cell, by its number, that a loop over blocks writes: it must be memory from the beginning."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(slots=True)
class Loop:
    """A loop over blocks, traced for one of them: the times of that turn."""

    block: Block
    begin: int
    end: int = 0  # 0 while it is open
    draws: int = 0  # draws of random numbers before it


class TraceTape:
    """What a trace writes down: guards, stores, and times."""

    def __init__(self, *, free: bool = False, counting: bool = False, remembered: frozenset[int] = frozenset()) -> None:
        self.counting = counting  # nothing will be compiled
        self.free = (
            free  # sums in any order, products and sums rounded once: results are close to NumPy's, not the same
        )
        self.guards = Guards()
        self.clock = Clock()
        self.stores: list[Assign] = []
        self.temporaries = 0
        self.loops: list[Loop] = []
        self.cells = 0
        self.remembered = remembered  # numbers of cells that are memory from the beginning
        self.draws = 0
        self.indices: list[tuple[str, Size]] = []  # arrays of indices, and the extent in which these must lie

    def store(self, buffer: Buffer, axes: Axes, value: Expr) -> None:
        """Write down a store."""
        if len(self.stores) >= STORES:
            raise Untraceable(f"it writes more than {STORES} times: a Python loop over elements?")
        buffer.version += 1
        self.stores.append(Assign(buffer, axes, value, self.clock.tick()))

    def temporary(self, dtype: np.dtype[Any], shape: Shape, born: int) -> Buffer:
        """Return new memory of the compiled form's own."""
        self.temporaries += 1
        return Buffer(f"temporary{self.temporaries}", dtype, shape, parameter=False, born=born)

    def open_loop(self, block: Block) -> Loop:
        """Begin a turn of a loop over blocks."""
        self.loops.append(Loop(block, self.clock.tick(), draws=self.draws))
        return self.loops[-1]

    def close_loop(self, loop: Loop) -> None:
        """End the turn."""
        if self.draws != loop.draws:
            raise Untraceable("its loop over blocks draws random numbers")
        loop.end = self.clock.tick()

    def in_later_loop(self, born: int) -> bool:
        """Tell whether a loop is open that began after a time."""
        return any(not loop.end and loop.begin > born for loop in self.loops)


class Cell:
    """What views share: memory, or a value."""

    __slots__ = ("born", "buffer", "dtype", "number", "shape", "tape", "value", "writable")

    def __init__(
        self,
        tape: TraceTape,
        dtype: np.dtype[Any],
        shape: Shape,
        *,
        value: Expr | None = None,
        buffer: Buffer | None = None,
        writable: bool = True,
    ) -> None:
        self.tape = tape
        self.dtype = dtype
        self.shape = shape
        self.value = value  # None: not written yet, or in the buffer
        self.buffer = buffer
        self.writable = writable
        self.born = tape.clock.tick()
        self.number = tape.cells = tape.cells + 1
        if self.remembered and value is not None:
            self.in_memory()

    @property
    def remembered(self) -> bool:
        """Whether what it holds is carried from block to block of a loop."""
        return self.number in self.tape.remembered

    def node(self) -> Expr:
        """Return all of it, as it is now."""
        if self.buffer is not None:
            now = self.buffer.version
            return Read(
                shape=self.shape, dtype=self.dtype, time=self.tape.clock.tick(), buffer=self.buffer, version=now
            )
        if self.value is None:
            raise Untraceable("it reads a temporary that it has not written")
        return self.value

    def in_memory(self) -> Buffer:
        """Return the buffer, made now if it was just a value."""
        if self.buffer is None:
            self.buffer = self.tape.temporary(self.dtype, self.shape, self.born)
            if self.tape.in_later_loop(self.born) and not self.remembered:
                raise CarriedBy(self.number)
            if self.value is not None:
                self.tape.store(self.buffer, whole_axes(len(self.shape)), self.value)
                self.value = None
        return self.buffer
