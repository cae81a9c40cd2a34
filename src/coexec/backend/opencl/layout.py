"""Where things lie inside a buffer: bindings as start and strides, box copies as strips, index spaces as launches.

Before: geometry/.  After: program.py, copies.py.  Pure arithmetic: knows no buffer, queue or device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ...geometry import Box

Shape = tuple[int, ...]


class PaddedLayout(NamedTuple):
    """Element `(i0, i1, ...)` of a parameter lies at `start + i0 * strides[0] + i1 * strides[1] + ...`, in elements."""

    start: int
    strides: tuple[int, ...]
    shape: Shape


@lru_cache(maxsize=1024)
def dense_strides(shape: Shape) -> tuple[int, ...]:
    """Return the strides in elements of a C-ordered array."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


def binding_layout(held: Box, box: Box, cut: Any, strides: tuple[int, ...] | None = None) -> PaddedLayout:
    """Return where a parameter lies in an allocation of the box `held`.

    `box` is the hull of the parameter's elements in the array's coordinates. `cut` is None (the hull itself) or has
    `steps` per base axis, a negative one running from the hull's last element, and `axes`, which maps each axis of
    the parameter to a base axis, -1 to a new axis of length one. `strides` are the allocation's, dense by default.
    """
    base = dense_strides(held.shape) if strides is None else strides
    start = sum([(lo - at) * stride for lo, at, stride in zip(box.lo, held.lo, base, strict=True)])
    if cut is None:
        return PaddedLayout(start, base, box.shape)
    extents = box.shape
    for extent, step, stride in zip(extents, cut.steps, base, strict=True):
        if step < 0 and extent:
            start += (extent - 1) * stride
    kept = [(base[a] * cut.steps[a], -(-extents[a] // abs(cut.steps[a]))) if a >= 0 else (0, 1) for a in cut.axes]
    return PaddedLayout(start, tuple([stride for stride, _ in kept]), tuple([extent for _, extent in kept]))


class StripCopy(NamedTuple):
    """A rectangular copy in bytes: `slices` times `rows` times `run` contiguous bytes."""

    source: int  # offset of the first byte
    target: int
    run: int
    rows: int = 1
    slices: int = 1
    source_pitches: tuple[int, int] = (0, 0)  # from row to row and from slice to slice
    target_pitches: tuple[int, int] = (0, 0)

    @property
    def nbytes(self) -> int:
        """Bytes it moves."""
        return self.run * self.rows * self.slices


class _Axis(NamedTuple):
    extent: int
    source: int  # stride in bytes
    target: int


def strips(box: Box, source: Box, target: Box, itemsize: int) -> Iterator[StripCopy]:
    """Yield the fewest rectangular copies that move `box` between dense allocations of two boxes, and not a byte more."""
    if box.volume == 0:
        return
    sources, targets = dense_strides(source.shape), dense_strides(target.shape)
    first = [sum((lo - at) * s for lo, at, s in zip(box.lo, held.lo, strides, strict=True)) * itemsize
             for held, strides in ((source, sources), (target, targets))]  # fmt: skip
    run, axes = _merge(
        [_Axis(e, s * itemsize, t * itemsize) for e, s, t in zip(box.shape, sources, targets, strict=True)], itemsize
    )
    inner = axes[-2:]
    outer = axes[: -len(inner)] if inner else []
    slices, rows = (_Axis(1, 0, 0), _Axis(1, 0, 0), *inner)[-2:]
    if len(inner) == 1:  # one slice: OpenCL wants a pitch that holds its rows all the same
        slices = _Axis(1, rows.extent * rows.source, rows.extent * rows.target)
    for steps in product(*(range(axis.extent) for axis in outer)):
        yield StripCopy(
            first[0] + sum(step * axis.source for step, axis in zip(steps, outer, strict=True)),
            first[1] + sum(step * axis.target for step, axis in zip(steps, outer, strict=True)),
            run,
            rows.extent,
            slices.extent,
            (rows.source, slices.source),
            (rows.target, slices.target),
        )


def _merge(axes: Sequence[_Axis], itemsize: int) -> tuple[int, list[_Axis]]:
    """Return the length of the contiguous run and the axes that remain around it, outermost first."""
    run, left = itemsize, [axis for axis in axes if axis.extent > 1]
    while left and left[-1].source == left[-1].target == run:
        run *= left.pop().extent
    merged: list[_Axis] = []
    for axis in reversed(left):
        inner = merged[-1] if merged else _Axis(0, 0, 0)
        if (inner.extent * inner.source, inner.extent * inner.target) == axis[1:]:  # one long axis
            merged[-1] = _Axis(inner.extent * axis.extent, inner.source, inner.target)
        else:
            merged.append(axis)
    return run, merged[::-1]


class WorkRange(NamedTuple):
    """One call of a kernel. Sizes in OpenCL's order: the index space's last axis first."""

    offset: Shape
    size: Shape
    group: Shape | None
    checked: bool  # the size was rounded up, so the kernel must compare its indices with the extents


def folded(shape: Shape) -> Shape:
    """Return an index space in OpenCL's order, with at most three axes: what is left of the last two becomes one."""
    if len(shape) <= 3:
        return shape[::-1] or (1,)
    return (shape[-1], shape[-2], prod(shape[:-2]))


BLOCKS = (1024, 64)
"""Work-group sizes. Few, because a CPU driver compiles the kernel anew for each one (50 ms in PoCL)."""
SMALL = 4096
"""Below this many points one checked launch is cheaper than several exact ones."""


@lru_cache(maxsize=1024)
def launches(shape: Shape, *, exact: bool, largest: int) -> tuple[WorkRange, ...]:
    """Cut an index space into launches with work-groups of few different sizes, none above `largest`.

    On a CPU a bounds check keeps the compiler from vectorising (3 to 5 times slower in PoCL), so with `exact` all
    but a small rest runs without; elsewhere one launch, rounded up, does it all.
    """
    if not shape:  # a single point
        return (WorkRange((0,), (1,), (1,), checked=False),)
    size = folded(shape)
    axis = next(
        (a for a, extent in enumerate(size) if extent >= BLOCKS[-1]), max(range(len(size)), key=size.__getitem__)
    )
    blocks = [block for block in BLOCKS if block <= largest] or [1]
    found: list[WorkRange] = []
    done = 0
    if exact and prod(size) >= SMALL:
        for block in blocks:
            whole = (size[axis] - done) // block * block
            if whole:
                found.append(_block(size, axis, done, whole, block, checked=False))
                done += whole
    rest = size[axis] - done
    if rest:
        block = blocks[-1]
        found.append(_block(size, axis, done, -(-rest // block) * block, block, checked=rest % block != 0))
    return tuple(found)


def _block(size: Shape, axis: int, start: int, extent: int, block: int, *, checked: bool) -> WorkRange:
    offset, group, long = [0] * len(size), [1] * len(size), list(size)
    offset[axis], group[axis], long[axis] = start, block, extent
    return WorkRange(tuple(offset), tuple(long), tuple(group), checked)


def rounded(size: Shape, group: Shape) -> Shape:
    """Return `size` rounded up to whole work-groups."""
    return tuple(-(-extent // block) * block for extent, block in zip(size, group, strict=True))


def dividing_group(size: Shape, largest: int) -> Shape:
    """Return a work-group size along the first axis that divides `size` exactly, one of a few."""
    block = next(block for block in (1024, 256, 64, 16, 4, 1) if block <= largest and size[0] % block == 0)
    return (block, *(1 for _ in size[1:]))
