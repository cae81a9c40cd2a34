"""Whether the blocks of a traced loop may become the whole: each row must be computed from its own place only.

Before: compile/loops.py.  After: compile/trace.py.  Pure: looks at stores, changes nothing.

In a turn of the loop, axes whose extent depends on the block are block axes. Element i of one must be computed from
elements i + c of other block axes, or from what does not depend on the block, and be written to its own place, so that
the blocks do not see each other. A sum over a block axis that is added to something outside is the sum over the whole,
in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .bounds import high_of, low_of
from .cells import Loop, TraceTape
from .graph import (
    Apply,
    Assign,
    Axes,
    Convert,
    Counting,
    Draw,
    Expr,
    Fold,
    Gather,
    Line,
    Read,
    Scalar,
    View,
    nodes_of,
    through,
    whole_axes,
)
from .host import Host, Size, size_key
from .refused import Untraceable

Place = tuple[int, Any]  # an axis of a buffer, and how far from the block's beginning it is looked at


def settle_loops(tape: TraceTape) -> None:
    """Let the blocks of every loop become the whole; raise if that would compute something else."""
    if not tape.loops:
        return
    if any(not loop.end for loop in tape.loops):
        raise Untraceable("it leaves a loop over blocks before its end")
    for loop in tape.loops:
        _Check(tape, loop).run()
    for loop in tape.loops:
        tape.guards.settle_block(loop.block)


class _Check:
    def __init__(self, tape: TraceTape, loop: Loop) -> None:
        self._tape, self._loop = tape, loop
        self._low = low_of(loop.block, tape.guards)
        self._extent: Size = high_of(loop.block, tape.guards) - self._low  # type: ignore[operator]
        self._written: dict[int, set[Place]] = {}  # buffers from outside -> where a block writes them
        self._read: dict[int, set[Place]] = {}
        self._added: set[int] = set()  # buffers that sums are added to

    def run(self) -> None:
        inside = [store for store in self._tape.stores if self._loop.begin < store.time < self._loop.end]
        for store in self._tape.stores:
            if store not in inside and any(self._mentioned(size) for size in _sizes(store)):
                raise Untraceable("it uses after its loop over blocks what the last one left")
        for store in inside:
            self._store(store)
        for buffer, places in self._written.items():
            if len(places | self._read.get(buffer, set())) > 1:
                raise Untraceable("its blocks read or write what other blocks write")
        if self._added & (self._written.keys() | self._read.keys()):
            raise Untraceable("its loop over blocks uses sums before they are complete")

    def _mentioned(self, size: Size) -> bool:
        if not isinstance(size, Host):
            return False
        text = str(size.key)
        return self._loop.block.low in text or self._loop.block.high in text

    def _outer(self, buffer: Any) -> bool:
        return bool(buffer.born < self._loop.begin)

    def _offset(self, line: Line) -> Any:
        """Return how far from the block's beginning a line starts; raise unless it goes along the block, row by row."""
        offset = line.start - self._low
        if self._mentioned(offset) or line.step != 1 or line.axis is None:
            raise Untraceable("its blocks are not parts of an array, row by row")
        return size_key(offset)

    def _store(self, store: Assign) -> None:
        shape = store.value.shape
        along = [axis for axis, extent in enumerate(shape) if self._mentioned(extent)]
        placed = [axis for axis, line in enumerate(store.axes) if self._mentioned(line.start)]
        if not self._outer(store.buffer):
            self._inner_store(store, along)
        elif not along and not placed:
            self._addition(store)
            return
        else:
            fits = len(along) == len(placed) == 1 and store.axes[placed[0]].axis == along[0]
            if not fits or size_key(shape[along[0]]) != size_key(self._extent):
                raise Untraceable("its blocks are not parts of an array, row by row")
            place = placed[0], self._offset(store.axes[placed[0]])
            self._written.setdefault(id(store.buffer), set()).add(place)
        self._walk(store.value, whole_axes(len(shape)), along[0] if along else None)

    def _inner_store(self, store: Assign, along: list[int]) -> None:
        """Check a write into memory that a turn has made: of all rows of the block, or of none."""
        for line, extent in zip(store.axes, store.buffer.shape, strict=True):
            if self._mentioned(line.start):
                raise Untraceable("its blocks are not parts of an array, row by row")
            if not self._mentioned(extent):
                continue
            whole = size_key(line.start) == ((), 0) and line.step == 1 and [line.axis] == along
            if not whole or size_key(store.value.shape[along[0]]) != size_key(extent):
                raise Untraceable("its loop over blocks writes some rows of a block")
        if len(along) > 1:
            raise Untraceable("its loop over blocks pairs rows of a block")

    def _addition(self, store: Assign) -> None:
        """Check that a sum over the block is added to something outside, in an order that does not matter."""
        value = store.value
        exact = value.dtype.kind in "iu"
        if not isinstance(value, Apply) or value.function != "add" or not (exact or self._tape.free):
            raise Untraceable("its loop over blocks writes the same elements in each block")
        same = [n for n, arg in enumerate(value.inputs) if _is_old(arg, store, self._loop)]
        if len(same) != 1 or id(store.buffer) in self._added:
            raise Untraceable("its loop over blocks writes the same elements in each block")
        term = value.inputs[1 - same[0]]
        while not (isinstance(term, Fold) and self._mentioned(term.extent)):
            plain = isinstance(term, View) and not any(self._mentioned(line.start) for line in term.axes)
            kept = isinstance(term, Convert) and term.arg.dtype.kind == term.dtype.kind
            if not (plain or kept or (isinstance(term, Fold) and term.kind == "sum")):
                raise Untraceable("its loop over blocks writes the same elements in each block")
            term = term.args[0]
        if term.kind != "sum" or size_key(term.extent) != size_key(self._extent):
            raise Untraceable("its loop over blocks writes the same elements in each block")
        self._added.add(id(store.buffer))
        self._walk(term.arg, whole_axes(len(term.arg.shape)), term.axis)

    # Values -------------------------------------------------------------------------------------------------------------

    def _walk(self, value: Expr, axes: Axes, block: int | None) -> None:
        """Check where a value looks, given which of its axes is the block's."""
        fresh = -1
        stack: list[tuple[Expr, Axes]] = [(value, axes)]
        seen: set[Any] = set()
        while stack:
            node, at = stack.pop()
            key = id(node), tuple(line.key for line in at)
            if key in seen:
                continue
            seen.add(key)
            self._check_node(node, at, block)
            match node:
                case View():
                    stack.append((node.arg, through(node.axes, at)))
                case Gather():
                    stack.append((node.index, at[node.axis : node.axis + len(node.index.shape)]))
                case Fold():
                    stack.append((node.arg, (*at[: node.axis], Line(0, 1, fresh), *at[node.axis :])))
                    fresh -= 1
                case _:
                    stack += [(arg, at if arg.shape else ()) for arg in node.args]

    def _check_node(self, node: Expr, at: Axes, block: int | None) -> None:
        """Raise if a value at a point of a block is something else than the same value of the whole."""
        match node:
            case Read():
                self._look(node, at, block)
            case Gather():
                self._gathered(node, at, block)
            case Fold() if self._mentioned(node.extent):
                raise Untraceable("its loop over blocks reduces the rows of a block")
            case Counting() | Draw():
                if any(self._mentioned(line.start) or (block is not None and line.axis == block) for line in at):
                    raise Untraceable("its loop over blocks counts the rows of a block, or draws numbers for them")
            case Scalar() if self._mentioned(node.host):
                raise Untraceable("its loop over blocks computes with the number of a row")
            case _:
                pass

    def _look(self, node: Read, at: Axes, block: int | None, skipped: int = -1) -> None:
        outer = self._outer(node.buffer)
        shaped = [size_key(size) for size in node.shape] == [size_key(size) for size in node.buffer.shape]
        here = False
        for axis, (line, extent) in enumerate(zip(at, node.shape, strict=True)):
            goes = block is not None and line.axis == block
            if axis == skipped or not (goes or self._mentioned(line.start) or self._mentioned(extent)):
                if self._mentioned(line.start) or self._mentioned(extent):
                    raise Untraceable("its loop over blocks looks up rows of a block")
                continue
            if here or not goes or not shaped:
                raise Untraceable("its blocks are not parts of an array, row by row")
            here = True
            if outer:
                self._read.setdefault(id(node.buffer), set()).add((axis, self._offset(line)))
            elif self._mentioned(line.start) or line.step != 1 or not self._mentioned(extent):
                raise Untraceable("its blocks are not parts of an array, row by row")
        if outer and not here:
            self._read.setdefault(id(node.buffer), set()).add((-1, None))

    def _gathered(self, node: Gather, at: Axes, block: int | None) -> None:
        index = (*at[: node.axis], Line(0, 1, None), *at[node.axis + len(node.index.shape) :])
        read, along = node.arg, node.axis
        if isinstance(read, View):
            along = next(axis for axis, line in enumerate(read.axes) if line.axis == node.axis)
            index, read = through(read.axes, index), read.arg
        assert isinstance(read, Read)
        self._look(read, index, block, along)
        self._read.setdefault(id(read.buffer), set()).add((-1, None))


def _is_old(node: Expr, store: Assign, loop: Loop) -> bool:
    """Tell whether a value is what a store overwrites, read in the same turn of a loop."""
    axes = whole_axes(len(node.shape))
    if isinstance(node, View):
        axes, node = node.axes, node.arg
    return (
        isinstance(node, Read)
        and node.buffer is store.buffer
        and node.time > loop.begin
        and [line.key for line in axes] == [line.key for line in store.axes]
    )


def _sizes(store: Assign) -> Iterator[Size]:
    """Yield the sizes that a store depends on."""
    yield from store.buffer.shape
    yield from (line.start for line in store.axes)
    for node in nodes_of(store.value):
        yield from node.shape
        if isinstance(node, View):
            yield from (line.start for line in node.axes)
        elif isinstance(node, Fold):
            yield node.extent
        elif isinstance(node, Scalar):
            yield node.host
