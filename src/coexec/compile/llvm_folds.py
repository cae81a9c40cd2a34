"""Reductions in LLVM's language, in NumPy's order: element by element, in pairs, or by NumPy's own loop along a row.

Before: compile/llvm_calls.py.  After: compile/llvm_sums.py.  Pure text: compiles nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .graph import FIRST, STEPS, Apply, Expr, Fold, Line, Read, View, through
from .host import equal_sizes
from .llvm_calls import INTEGER
from .llvm_draws import LlvmDraws, WantsScalars
from .llvm_text import BOOL, constant_text, type_text
from .ufunc_loops import inner_loop
from .walk import Held, Index, Nest, Strip

FEW = 16  # a constant axis of at most so many elements is written out


class LlvmFolds(LlvmDraws):
    """Writes reductions."""

    def fold(self, node: Fold, at: Index) -> Held:
        in_a_row = self._in_a_row(node)
        short = isinstance(node.extent, int) and node.extent <= FEW
        if in_a_row and not (short and node.kind == "sum"):
            return self._row_fold(node, at)
        home = self.home(at)
        if short:
            return self._unrolled(node, at, in_pairs=in_a_row)
        found: Held = self.within(home, lambda: self._looped(node, at, home))
        return found

    @staticmethod
    def _in_a_row(node: Fold) -> bool:
        """Tell whether floats are reduced along their last axis, which NumPy does in an order of its own."""
        last = all(equal_sizes(extent, 1) for extent in node.arg.shape[node.axis + 1 :])
        return last and node.arg.dtype.kind == "f" and node.kind in ("sum", "prod", "max", "min")

    def _element(self, node: Fold, at: Index, line: Line) -> Held:
        return self.emit(node.arg, (*at[: node.axis], line, *at[node.axis :]))

    def _number(self, value: Any, dtype: np.dtype[Any]) -> Held:
        return Held(constant_text(value, dtype), dtype, False, self.root)

    def _unrolled(self, node: Fold, at: Index, *, in_pairs: bool) -> Held:
        """Return a reduction of a few elements, written out."""
        values = [self._element(node, at, Line(number, 1, None)) for number in range(int(node.extent))]
        if node.kind.startswith("arg"):
            return self._unrolled_place(node, values)
        step = STEPS[node.kind]
        first = self._number(FIRST[node.kind], node.dtype) if node.kind in FIRST else None
        if in_pairs:
            values = [self._in_pairs(values)]
        total = first or values[0]
        for value in values if first else values[1:]:
            total = self._step(node, step, total, value)
        return total

    def _in_pairs(self, values: list[Held]) -> Held:
        """Return a sum of fewer than 17 floats in NumPy's order."""
        dtype = values[0].dtype
        if len(values) >= 8:
            whole = len(values) - len(values) % 8
            lanes = values[:8]
            for more in range(8, whole, 8):
                lanes = [
                    self.computed("add", [a, b], dtype) for a, b in zip(lanes, values[more : more + 8], strict=True)
                ]
            while len(lanes) > 1:
                lanes = [self.computed("add", lanes[i : i + 2], dtype) for i in range(0, len(lanes), 2)]
            values = [lanes[0], *values[whole:]]
        total = values[0]
        for value in values[1:]:
            total = self.computed("add", [total, value], dtype)
        return total

    def _unrolled_place(self, node: Fold, values: list[Held]) -> Held:
        best, place = values[0], self._number(0, INTEGER)
        for number, value in enumerate(values[1:], 1):
            better = self._better(node.kind, value, best)
            best = self.computed("where", [better, value, best], value.dtype)
            place = self.computed("where", [better, self._number(number, INTEGER), place], INTEGER)
        return place

    def _better(self, kind: str, value: Held, best: Held) -> Held:
        """Tell whether an element comes before the best so far: NaN comes first, and of equal ones the earlier."""
        better = self.computed("greater" if kind == "argmax" else "less", [value, best], BOOL)
        if value.dtype.kind != "f":
            return better
        unset = self.computed("isnan", [value], BOOL)
        settled = self.computed("logical_not", [self.computed("isnan", [best], BOOL)], BOOL)
        return self.computed("logical_and", [self.computed("logical_or", [better, unset], BOOL), settled], BOOL)

    def _step(self, node: Fold, step: str, total: Held, value: Held) -> Held:
        if node.dtype.kind == "b" and step not in ("logical_or", "logical_and"):
            step = "logical_or" if step == "maximum" else "logical_and"
        return self.computed(step, [total, value], node.dtype)

    def _looped(self, node: Fold, at: Index, home: Nest) -> Held:
        """Return a reduction one element after the other, each lane by itself."""
        vector = self._lane(at) is not None
        lanes = self.lanes if vector else 1
        places = node.kind.startswith("arg")
        from_first = node.kind not in FIRST
        first = self._element(node, at, Line(0, 1, None)) if from_first else self._number(FIRST[node.kind], node.dtype)
        total = self.slot(type_text(first.dtype, lanes, memory=True))
        self.write(total, self.lifted(first) if vector else first)
        where = self.slot(type_text(INTEGER, lanes)) if places else ""
        if places:
            zero = self._number(0, INTEGER)
            self.write(where, self.lifted(zero) if vector else zero)

        def body(var: str) -> None:
            nest = self.stack[-1]
            value = self._element(node, at, Line(0, 1, var))
            now = self.read(total, first.dtype, nest, lanes)
            if not places:
                new = self._step(node, STEPS[node.kind], now, value)
                self.write(total, self.lifted(new) if vector else new)
                return
            better = self._better(node.kind, value, now)
            chosen = self.computed("where", [better, value, now], value.dtype)
            self.write(total, self.lifted(chosen) if vector else chosen)
            mine = self.computed(
                "where",
                [better, Held(f"%{var}", INTEGER, False, nest), self.read(where, INTEGER, nest, lanes)],
                INTEGER,
            )
            self.write(where, self.lifted(mine) if vector else mine)

        self.loop("1" if from_first else "0", self.size(node.extent), body)
        return self.read(where, INTEGER, home, lanes) if places else self.read(total, first.dtype, home, lanes)

    def _row_fold(self, node: Fold, at: Index) -> Held:
        """Return a reduction of floats that lie in a row, by NumPy's own loop."""
        if self._lane(at) is not None:
            raise WantsScalars
        home = self.home(at)

        def write_row() -> Held:
            row = self._row_of(node, at, home)
            dtype = node.dtype
            name = STEPS[node.kind]
            loop = inner_loop(name, (dtype.str,) * 3)
            total = self.slot(type_text(dtype, 1))
            count, first = self.size(node.extent), row
            if node.kind in FIRST:
                self.write(total, self._number(FIRST[node.kind], dtype))
            else:
                self.write(total, self.read(row, dtype, home, 1))
                first = self.put(f"getelementptr inbounds i8, ptr {row}, i64 {dtype.itemsize}")
                count = self.put(f"sub nsw i64 {count}, 1")
            self.call(loop, [total, first, total], [0, dtype.itemsize, 0], count)
            return self.read(total, dtype, home, 1)

        found: Held = self.within(home, write_row)
        return found

    def _row_of(self, node: Fold, at: Index, home: Nest) -> str:
        """Return where the elements to reduce lie next to each other, put there if need be."""
        direct = self._direct(node, at)
        if direct is not None:
            return direct
        key = "row", id(node.arg), tuple(line.key for line in at), node.axis
        if key not in home.memo:
            lanes, self.lanes = self.lanes, self.lanes_of([node.arg])
            home.memo[key] = self._filled_row(node, at)
            self.lanes = lanes
        row: str = home.memo[key]
        return row

    def _filled_row(self, node: Fold, at: Index) -> str:
        """Compute a row into memory; a function that NumPy computes leaves it there anyway."""
        arg = node.arg
        if isinstance(arg, Apply) and not self._is_inline(arg):
            strip = Strip("0", self.size(node.extent), node.extent)
            nest = Nest(self.name("i"), ("0", strip.high), self.stack[-1])
            nest.strip = strip
            index = (*at[: node.axis], Line(0, 1, nest.var), *at[node.axis :])
            return self.staged(arg, index, nest, self.loop_of(arg))[0]
        row = self.scratch(node.extent, arg.dtype)

        def body(var: str) -> None:
            value = self._element(node, at, Line(0, 1, var))
            value = self.lifted(value) if self.stack[-1].lanes > 1 else value
            element = type_text(arg.dtype, 1, memory=True)
            self.write(self.put(f"getelementptr inbounds {element}, ptr {row}, i64 %{var}"), value)

        self.row(node.extent, body, strips=False)
        return row

    def _direct(self, node: Fold, at: Index) -> str | None:
        """Return where the elements to reduce lie in memory already, next to each other."""
        read: Expr = node.arg
        index = (*at[: node.axis], Line(0, 1, "along"), *at[node.axis :])
        if isinstance(read, View):
            index = through(read.axes, index)
            read = read.arg
        if not isinstance(read, Read) or any(store.buffer is read.buffer for store, _ in self.stored):
            return None
        along = [axis for axis, line in enumerate(index) if line.axis == "along"]
        if along != [len(index) - 1] or index[-1].step != 1:
            return None
        first = (*index[:-1], index[-1]._replace(axis=None))
        return self.address(read.buffer, read.shape, first)
