"""Sums in any order, for kernels that declare to be close to NumPy: several accumulators, and one loop for several sums.

Before: compile/llvm_folds.py.  After: compile/llvm.py.  Pure text: compiles nothing.

A sum goes by the vectors of the loop around it (each lane adds up its own) or, where its elements are neighbours in
memory, by vectors along itself. Sums over the same range at one point share a loop: what they have in common is
computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .graph import Expr, Fold, Gather, Line, Read, View, nodes_of, through
from .host import size_key
from .llvm_draws import WantsScalars
from .llvm_folds import FEW, LlvmFolds
from .llvm_text import suffix, type_text
from .walk import Held, Index, Nest

ACCUMULATORS = 4  # of one loop: an addition takes four cycles, and two can begin in each
TOGETHER = 8  # sums of one loop; more would not stay in registers
ALONG = "along"  # the variable of a sum's own loop, before there is one

Sum = tuple[Fold, Index]


class LlvmSums(LlvmFolds):
    """Writes sums that need not have NumPy's bits."""

    def __init__(self, register: int) -> None:
        super().__init__(register)
        self.siblings: list[Sum] = []  # sums of the present point that read nothing that it writes

    def fold(self, node: Fold, at: Index) -> Held:
        if not node.free:
            return super().fold(node, at)
        if isinstance(node.extent, int) and node.extent <= FEW:
            return self._unrolled(node, at, in_pairs=False)
        if any(self.is_called(inner) for inner in nodes_of(node.arg)):
            return super().fold(node, at)
        home = self.home(at)
        nested = (place for inner, place in _looked_at(node, at) if isinstance(inner, Fold))
        if any(line.axis == ALONG for place in nested for line in place):  # the inner one goes by vectors
            found: Held = self.within(home, lambda: self._looped(node, at, home))
            return found
        along = self._goes_along(node, at)
        if along and self._lane(at) is not None:
            raise WantsScalars
        sums = self._together(node, at, home, along=along)
        made: list[Held] = self.within(home, lambda: self._added_up(sums, home, along=along))
        for (one, place), value in zip(sums, made, strict=True):
            home.memo[id(one), tuple(line.key for line in (place if one.shape else ()))] = value
        return made[0]

    def find_siblings(self, values: Sequence[Expr], indices: Sequence[Index], written: set[int]) -> None:
        """Note the sums of a point, given the values that are stored at each index and the buffers that are written."""
        self.siblings = []
        for value, index in zip(values, indices, strict=True):
            stack: list[tuple[Expr, Index]] = [(value, index)]
            seen: set[int] = set()
            while stack:
                node, at = stack.pop()
                if id(node) in seen:
                    continue
                seen.add(id(node))
                if isinstance(node, Fold):
                    reads = [inner for inner in nodes_of(node.arg) if isinstance(inner, Read)]
                    if node.free and not any(id(read.buffer) in written for read in reads):
                        self.siblings.append((node, at))
                elif isinstance(node, View):
                    stack.append((node.arg, through(node.axes, at)))
                elif not isinstance(node, Gather):
                    stack += [(arg, at if arg.shape else ()) for arg in node.args]

    def _together(self, node: Fold, at: Index, home: Nest, *, along: bool) -> list[Sum]:
        """Return the sums that share a loop with one, that one first."""
        found: list[Sum] = [(node, at)]
        names = {line.axis for line in at}
        for other, place in self.siblings:
            same = other is node and [line.key for line in place] == [line.key for line in at]
            if same or len(found) >= TOGETHER or size_key(other.extent) != size_key(node.extent):
                continue
            nested = any(isinstance(inner, Fold) for inner in nodes_of(other.arg))
            if nested or {line.axis for line in place} != names:
                continue
            if other.dtype == node.dtype and self.home(place) is home and self._goes_along(other, place) == along:
                found.append((other, place))
        return found

    def _goes_along(self, node: Fold, at: Index) -> bool:
        """Tell whether a sum goes by vectors along itself, not by those of the loop around it."""
        lane = self._lane(at)
        if lane is None:
            return True
        last = [place[-1] for inner, place in _looked_at(node, at) if isinstance(inner, Read) and place]
        along = any(line.axis == ALONG and line.step == 1 for line in last)
        return along and not any(line.axis == lane.var for line in last)

    def _added_up(self, sums: Sequence[Sum], home: Nest, *, along: bool) -> list[Held]:
        """Return several sums over one range."""
        outer, dtype = self.lanes, sums[0][0].dtype
        lanes = self.lanes_of([node.arg for node, _ in sums]) if along else self.lanes if self._lane(sums[0][1]) else 1
        if along:
            self.lanes = lanes
        count = max(1, ACCUMULATORS // len(sums))
        zero = Held("zeroinitializer" if lanes > 1 else "0.0", dtype, lanes > 1, self.root)
        slots = [[self.slot(type_text(dtype, lanes)) for _ in range(count)] for _ in sums]
        for slot in (slot for mine in slots for slot in mine):
            self.write(slot, zero)
        step = lanes if along else 1  # elements of the range that one vector takes
        high = self.size(sums[0][0].extent)
        middle = self.put(f"and i64 {high}, {-step * count}")
        self._adding(sums, slots, (("0", middle), step, lanes if along else 1))
        one_each = [mine[:1] for mine in slots]
        if step > 1:
            whole = self.put(f"and i64 {high}, {-step}")
            self._adding(sums, one_each, ((middle, whole), step, lanes))
            middle = whole
        made = [self._joined(mine, zero, home) for mine in slots]
        if along and lanes > 1:
            name = f"@llvm.vector.reduce.fadd.{suffix(dtype, lanes)}"
            one, kind = type_text(dtype, 1), type_text(dtype, lanes)
            self.inline.declared[name] = f"declare {one} {name}({one}, {kind})"
            texts = [self.put(f"call reassoc {one} {name}({one} 0.0, {kind} {value.text})") for value in made]
            made = [Held(text, dtype, False, home) for text in texts]
        rest = [self.slot(type_text(dtype, 1 if along else lanes)) for _ in sums]
        for slot, value in zip(rest, made, strict=True):
            self.write(slot, value)
        self._adding(sums, [[slot] for slot in rest], ((middle, high), 1, 1))
        found = [self.read(slot, dtype, home, 1 if along else lanes) for slot in rest]
        self.lanes = outer
        return found

    def _joined(self, slots: Sequence[str], zero: Held, home: Nest) -> Held:
        """Return the sum of some accumulators."""
        values = [self.read(slot, zero.dtype, home, self.lanes if zero.vector else 1) for slot in slots]
        while len(values) > 1:
            values = [self.computed("add", values[i : i + 2], zero.dtype) for i in range(0, len(values), 2)]
        return values[0]

    def _adding(
        self, sums: Sequence[Sum], slots: Sequence[Sequence[str]], over: tuple[tuple[str, str], int, int]
    ) -> None:
        """Write a loop that adds to accumulators, by vectors of so many lanes along the range."""
        (low, high), step, lanes = over

        def body(var: str) -> None:
            nest = self.stack[-1]
            for number in range(len(slots[0])):
                for (node, at), mine in zip(sums, slots, strict=True):
                    value = self._element(node, at, Line(number * step, 1, var))
                    vector = lanes > 1 or self._lane(at) is not None
                    now = self.read(mine[number], node.dtype, nest, self.lanes if vector else 1)
                    new = self.computed("add", [now, self.lifted(value) if vector else value], node.dtype)
                    self.write(mine[number], new)

        self.loop(low, high, body, step=step * len(slots[0]), lanes=lanes)


def _looked_at(node: Fold, at: Index) -> Iterator[tuple[Expr, Index]]:
    """Yield the reads and the reductions that a reduction is made of, and where each is looked at."""
    stack: list[tuple[Expr, Index]] = [(node.arg, (*at[: node.axis], Line(0, 1, ALONG), *at[node.axis :]))]
    seen: set[Any] = set()
    while stack:
        inner, place = stack.pop()
        key = id(inner), tuple(line.key for line in place)
        if key in seen:
            continue
        seen.add(key)
        if isinstance(inner, Read | Fold):
            yield inner, place
        elif isinstance(inner, View):
            stack.append((inner.arg, through(inner.axes, place)))
        elif isinstance(inner, Gather):
            stack.append((inner.index, place[inner.axis : inner.axis + len(inner.index.shape)]))
        else:
            stack += [(arg, place if arg.shape else ()) for arg in inner.args]
