"""The same graph as OpenCL C: the statements for one point of the chunk, as `kernel.opencl` takes them.

Before: compile/opencl_points.py, compile/opencl_vectors.py.  After: compile/chains.py, compile/generated.py, compile/cuda.py.  Pure text: knows no device.

Additions are in NumPy's order or refused; divisions and functions are as exact as OpenCL asks for, which `numerics`
says. What the text takes for granted beside the declared shapes is in `guards`: a caller must check them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..program.variant import Numerics, close, exact
from .forwarding import forwarded
from .graph import Assign, Buffer, Fold, Scalar, Traced, nodes_of, whole_axes
from .opencl_points import Points
from .opencl_vectors import WIDTHS, NotVectors, Vectors, vector_type
from .refused import DEEP, Declined, Untraceable
from .schedule import scheduled
from .sizes import same_shape
from .trace import trace
from .walk import WantsMemory

FREE = 64.0  # ulp of the largest result that sums in any order are apart; the kernel says how many it allows
MOST_AXES = 3
"""Axes of a launch: with more, the outer ones share one, which a point can take apart and a row cannot."""
EXTENT = re.compile(r"__\d+$")  # how expressions name an array's extent


class OpenClForm(NamedTuple):
    """OpenCL C for a body, how close it comes to NumPy, and what must hold beside the shapes."""

    source: str
    numerics: Numerics
    guards: dict[str, Any]


class Statements(NamedTuple):
    """The statements of a point, how close they come to NumPy, whose points they are, and the numbers that they name."""

    source: str
    numerics: Numerics
    ulp: float  # of functions alone, without what sums in another order add
    space: str  # the array whose elements are the points
    rows: bool  # a point is a row: the last axis is gone through inside
    width: int  # elements along the last axis that one point computes
    numbers: dict[str, Scalar]  # computed on the host at each call, by the names that the statements have for them


def opencl_form(
    body: Callable[..., Any], arguments: Mapping[str, Any], *, writes: Collection[str]
) -> OpenClForm | Declined:
    """Return a body as OpenCL C for calls like this one, whose index space is the first array that it writes."""
    try:
        traced = trace(body, arguments, writes)
        found = statements(traced, name_numbers=False)
    except Untraceable as reason:
        return Declined(str(reason))
    guards = {text: answer for text, answer in traced.guards.answers.items() if not _is_relation(text, answer)}
    bounds = {text: least for text, least in traced.guards.least.items() if not EXTENT.search(text)}
    guards |= {f"{text} >= {least}": True for text, least in bounds.items()}
    return OpenClForm(found.source, found.numerics, guards)


def statements(traced: Traced, *, name_numbers: bool, vectors: bool = False) -> Statements:
    """Return a graph as OpenCL C; raise `Untraceable` if it has none.

    With `name_numbers`, whoever launches it passes the numbers that Python computes; else C computes them. With `vectors`, a
    point may be several elements of the last axis, where functions are computed so.
    """
    groups = scheduled(forwarded(traced.stores))
    if len(groups) > 1 or any(not store.buffer.parameter for store in groups[0]):
        raise Untraceable("it needs several passes over its arrays")
    columns = vectors and name_numbers and all(map(_is_column, groups[0]))
    space = _check_points(traced, groups[0], columns=columns)
    try:
        writer, rows, width = _written(traced, groups[0], space, name_numbers=name_numbers, vectors=vectors)
        if columns and width == 1 and any(isinstance(node, Fold) for node in nodes_of(*(s.value for s in groups[0]))):
            raise Untraceable(
                "each column of it reduces the same elements"
            )  # one by one, which takes far longer than NumPy
        rows = rows or columns
    except WantsMemory:
        raise Untraceable("it reduces the same elements for many points") from None
    except RecursionError:
        raise Untraceable(DEEP) from None
    if not traced.free and any(_is_finer(store.buffer.dtype, writer.coarse) for store in groups[0]):
        raise Untraceable("functions in single precision are not close in units of the double precision that it writes")
    numerics = close(writer.ulp + FREE) if traced.free else close(writer.ulp) if writer.ulp else exact
    return Statements("\n".join(writer.source()), numerics, writer.ulp, space, rows, width, writer.numbers)


def _is_finer(dtype: np.dtype[Any], coarse: float) -> bool:
    """Tell whether a type of floats is more precise than functions that are close in units of theirs."""
    return dtype.kind == "f" and float(np.finfo(dtype).eps) < coarse


def _written(
    traced: Traced, stores: Sequence[Assign], space: str, *, name_numbers: bool, vectors: bool
) -> tuple[Points, bool, int]:
    """Return what has written the stores, whether by rows, and the elements of a point."""
    dtype = vector_type(stores) if vectors else None
    if dtype is not None:
        try:
            wide = Vectors(traced, dtype, name_numbers=name_numbers)
            wide.vectors(stores, space)
        except (NotVectors, WantsMemory):
            pass
        else:
            return wide, False, WIDTHS[dtype.str[1:]]
    try:
        writer = Points(traced, name_numbers=name_numbers)
        writer.points(stores, rows=False)
    except WantsMemory:
        if not name_numbers or not 1 < len(stores[0].value.shape) <= MOST_AXES:
            raise
        return _rows(traced, stores, dtype), True, 1
    return writer, False, 1


def _rows(traced: Traced, stores: Sequence[Assign], dtype: Any) -> Points:
    """Return what has written the stores by rows, in vectors of a type if that is possible."""
    if dtype is not None:
        try:
            wide = Vectors(traced, dtype, name_numbers=True)
            wide.rows(stores)
        except NotVectors:
            pass
        else:
            return wide
    writer = Points(traced, name_numbers=True)
    writer.points(stores, rows=True)
    return writer


def _is_relation(text: str, answer: Any) -> bool:
    """Tell whether a guard says that extents go together, which the declared accesses see to."""
    return answer is True and text.startswith("bool(") and text.endswith(" == 0)") and "__" in text


def _is_column(store: Assign) -> bool:
    """Tell whether a store writes one element of each row."""
    last, shape = store.axes[-1] if store.axes else None, store.buffer.shape
    one = last is not None and last.axis is None and type(last.start) is int and len(shape) in (2, MOST_AXES)
    return one and store.axes[:-1] == whole_axes(len(shape) - 1) and same_shape(store.value.shape, shape[:-1])


def _check_points(traced: Traced, group: Sequence[Assign], *, columns: bool) -> str:
    """Return the array whose elements are the points, or whose rows are; raise unless each point computes its own elements."""
    first = next(p for name, p in traced.parameters.items() if isinstance(p, Buffer) and name in traced.writes)
    if not first.shape:
        raise Untraceable("its index space has no axes")
    if columns:
        if not all(same_shape(store.buffer.shape[:-1], first.shape[:-1]) for store in group):
            raise Untraceable("it writes arrays of different shapes")
        return first.name
    for store in group:
        shape = store.value.shape
        moved = store.axes != whole_axes(len(store.buffer.shape))
        if moved or not same_shape(shape, store.buffer.shape) or not same_shape(shape, first.shape):
            raise Untraceable("it writes a part of an array, or arrays of different shapes")
    return first.name
