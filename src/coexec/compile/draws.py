"""Random numbers of a chunk while a body is traced: draws of Philox numbers, and what is computed of them.

Before: compile/symbolic.py, program/philox.py.  After: compile/trace.py.  Computes nothing.

The numbers of an element depend on the seed, the stream, the draw and the element's place. So a draw is a node without
memory like any other; sums, products and logarithms of it are ordinary nodes, in the order of program/philox.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..program.philox import DRAWS, MASK
from .cells import Cell, TraceTape
from .graph import Constant, Draw, Expr, Scalar, Shape
from .host import Host, plain
from .number import number_as
from .refused import Untraceable
from .sizes import same_shape
from .symbolic import Symbolic

DOUBLE, WORD, INDEX = np.dtype(np.float64), np.dtype(np.uint64), np.dtype(np.int64)


class TracedRandom:
    """What `chunk.rng(seed, stream)` gives a traced body."""

    def __init__(self, tape: TraceTape, shape: Shape, place: tuple[Any, ...], seed: Any, stream: Any) -> None:
        if any(type(plain(number)) is not int for number in (seed, stream)):
            raise Untraceable("random numbers with a seed or a stream that is no plain integer")
        self._tape, self._shape = tape, shape
        self._place = place  # the number of the chunk's first element, and the steps from element to element
        self._seed = (seed ^ (seed >> 64)) & MASK
        self._stream = stream
        self._draw = 0

    def _number(self, value: Any, dtype: np.dtype[Any]) -> Expr:
        time = self._tape.clock.tick()
        if isinstance(value, Host):
            return Scalar(shape=(), dtype=dtype, time=time, host=value)
        return Constant(shape=(), dtype=dtype, time=time, value=number_as(value, dtype))

    def _drawn(self, kind: str) -> Symbolic:
        self._draw += 1
        self._tape.draws += 1
        if self._draw >= DRAWS:
            raise Untraceable("it draws more often than one generator can")
        key = (self._stream * DRAWS + self._draw) & MASK
        words = [self._number(self._seed, WORD), self._number(key, WORD)]
        numbers = (*words, *(self._number(value, INDEX) for value in self._place))
        node = Draw(shape=self._shape, dtype=DOUBLE, time=self._tape.clock.tick(), kind=kind, numbers=numbers)
        return Symbolic(Cell(self._tape, DOUBLE, self._shape, value=node))

    def _placed(self, result: Symbolic, out: Any) -> Symbolic:
        if out is None:
            return result
        if not isinstance(out, Symbolic) or out.dtype != result.dtype or not same_shape(out.shape, self._shape):
            raise Untraceable("random numbers into an array of another type or shape")
        out.write(result)
        return out

    def random(self, dtype: Any = float, out: Any = None) -> Any:
        """As ChunkRandom's."""
        wanted = np.dtype(getattr(dtype, "stands_for", dtype))
        if wanted == DOUBLE:
            return self._placed(self._drawn("uniform"), out)
        if wanted != np.float32:
            raise Untraceable(f"random numbers of type {wanted}")
        levels = 2.0 ** (np.finfo(wanted).nmant + 1)
        return self._placed((np.floor(self._drawn("uniform") * levels) * (1 / levels)).astype(wanted), out)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, out: Any = None) -> Any:
        """As ChunkRandom's."""
        return self._placed(self._drawn("uniform") * (high - low) + low, out)

    def normal(self, mean: Any = 0.0, deviation: Any = 1.0, out: Any = None) -> Any:
        """As ChunkRandom's."""
        return self._placed(self._drawn("normal") * deviation + mean, out)

    def exponential(self, scale: Any = 1.0, out: Any = None) -> Any:
        """As ChunkRandom's."""
        return self._placed(np.log1p(-self._drawn("uniform")) * -scale, out)

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"chunk.rng().{name} is not compiled")
