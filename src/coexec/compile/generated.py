"""A body as OpenCL C at the moment it is launched: text for calls like this one, and the numbers that the host computes for it.

Before: compile/opencl.py, compile/entering.py.  After: backend/opencl/.  Knows no device; compares nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..program.variant import Numerics
from .entering import write_entrance
from .forms import kind_of, size_class
from .graph import Buffer, Scalar, Traced
from .opencl import statements
from .refused import Untraceable
from .trace import trace

MOST = 8  # texts for one signature, and bodies of one kernel: beyond, something changes from call to call
PLACE = re.compile(r"\b(?:n|lo)\d\b|_at\d\b")  # how a text names the chunk that it computes


class Text(NamedTuple):
    """OpenCL C for some calls."""

    source: str
    numerics: Numerics
    space: str  # the array whose elements are the points
    rows: bool  # a point is a row of it
    width: int  # elements of the last axis that one point computes
    dtypes: tuple[np.dtype[Any], ...]  # of the numbers
    numbers: tuple[str, ...]  # computed by the host, as the text calls them
    named: tuple[str, ...]  # integers of the call that the text names itself
    enter: Callable[
        ..., tuple[Any, ...] | str
    ]  # of shapes, scalars and the chunk: the numbers, or why the text does not fit


class Fitted(NamedTuple):
    """A text with the numbers of one call."""

    text: Text
    numbers: dict[str, Any]
    size_class: Any


class Generated:
    """The texts of one kernel's body, by what it takes from outside, the types of its arguments, and what it decided by."""

    def __init__(self, writes: Collection[str], returns: Sequence[str], *, free: bool = False) -> None:
        self._writes, self._returns, self._free = writes, returns, free
        self._texts: dict[Any, list[Text]] = {}
        self._bodies: set[Any] = set()

    def fit(
        self, body: Callable[..., Any], arrays: Mapping[str, Any], scalars: Mapping[str, Any], chunk: Any
    ) -> Fitted:
        """Return the text for a call, made now if there is none; raise `Untraceable` if there cannot be one.

        `arrays` have the types and shapes of what the body sees; their elements do not matter.
        """
        given = {**arrays, **scalars}
        key = (body, *((name, kind_of(value)) for name, value in given.items()))
        if body not in self._bodies and len(self._bodies) >= MOST:
            raise Untraceable("what it takes from outside changes from call to call")
        self._bodies.add(body)
        texts = self._texts.setdefault(key, [])
        shapes = {name: array.shape for name, array in arrays.items()}
        sizes = size_class(tuple(arrays.values()))
        for text in texts:
            numbers = text.enter(shapes, scalars, chunk)
            if not isinstance(numbers, str):
                return Fitted(text, _typed(text, numbers), sizes)
        if len(texts) >= MOST:
            raise Untraceable("it decides by what changes from call to call")
        made = self._made(body, given | {"chunk": chunk}, shapes, chunk)
        numbers = made.enter(shapes, scalars, chunk)
        if isinstance(numbers, str):
            raise Untraceable(numbers)
        texts.append(made)
        return Fitted(made, _typed(made, numbers), sizes)

    def _made(self, body: Callable[..., Any], given: dict[str, Any], shapes: Mapping[str, Any], chunk: Any) -> Text:
        traced = trace(body, given, self._writes, self._returns, free=self._free)
        found = statements(traced, name_numbers=True, vectors=True)
        if PLACE.search(found.source) and tuple(shapes[found.space]) != tuple(chunk.shape):
            raise Untraceable("it asks for its chunk, whose shape is not that of what it writes")
        words = set(re.findall(r"\w+", found.source))
        named = tuple(name for name in traced.parameters if name in words and name not in shapes)
        if any(type(given[name]) is not int for name in named):
            raise Untraceable("a size in it is no plain integer")
        dtypes = tuple(node.dtype for node in found.numbers.values())
        enter = _entrance(traced, list(found.numbers.values()))
        numbers = tuple(found.numbers)
        return Text(found.source, found.numerics, found.space, found.rows, found.width, dtypes, numbers, named, enter)


def _typed(text: Text, numbers: tuple[Any, ...]) -> dict[str, Any]:
    """Return the numbers of a call in the types that the text computes with."""
    found = zip(text.numbers, text.dtypes, numbers, strict=True)
    return {name: dtype.type(number) for name, dtype, number in found}


def _entrance(traced: Traced, numbers: Sequence[Scalar]) -> Callable[..., tuple[Any, ...] | str]:
    """Return the function that checks what was decided when a body was traced, and computes the numbers of a call."""
    lines = []
    for name, parameter in traced.parameters.items():
        if isinstance(parameter, Buffer):
            extents = "".join(f"{name}__{axis}, " for axis in range(len(parameter.shape)))
            lines.append(f"{extents} = shapes[{name!r}]" if extents else "pass")
        elif name not in ("xp", "chunk"):
            lines.append(f"{name} = scalars[{name!r}]")
    return write_entrance(traced, ["shapes", "scalars", "chunk"], lines, [(n.host, n.dtype) for n in numbers])
