"""Groups of stores as one function in LLVM's language: their loops, and reductions in NumPy's order.

Before: compile/llvm_calls.py.  After: compile/build.py.  Pure text: compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product as combinations
from typing import Any

import numpy as np

from .graph import Apply, Assign, Expr, Fold, Line, Read, Shape, View, nodes_of, through
from .host import equal_sizes
from .llvm_calls import FLAGS, INTEGER, LlvmCalls
from .llvm_text import BOOL, constant_text, type_text
from .ufunc_loops import inner_loop
from .walk import Held, Index, Nest, Strip

UNROLLED = 64  # elements of constant axes that are written out instead of looped over
FEW = 16  # a constant axis of at most so many elements is written out
ENTRY = "coexec_body"
STEPS = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
FIRST = {"sum": 0, "prod": 1, "any": 0, "all": 1}
"""What NumPy begins with; extremes begin with their first element."""


class WantsScalars(Exception):
    """The rows that are reduced belong to single elements, so that the loop around them cannot go by vectors."""


class Llvm(LlvmCalls):
    """Writes a function of all groups."""

    def __init__(self, register: int) -> None:
        super().__init__(register)
        self.written = 0
        self._loops: list[str] = []  # variables of loops, for which the entry makes room

    def write_groups(self, groups: Sequence[Sequence[Assign]], vectors: Sequence[bool]) -> None:
        """Write the loops of all groups, by vectors or by single elements; `written` counts those that are done."""
        self.number_stores([store for group in groups for store in group])
        for group, vector in zip(groups, vectors, strict=True):
            self._group(list(group), vector=vector)
            self.root.memo.clear()  # memory has changed
            self.written += 1

    def _group(self, stores: list[Assign], *, vector: bool) -> None:
        shape = stores[0].value.shape
        nodes = list(nodes_of(*(store.value for store in stores)))
        self.lanes = self.lanes_of(nodes) if vector else 1
        constant = [axis for axis, extent in enumerate(shape) if isinstance(extent, int) and extent <= FEW]
        while constant and np.prod([shape[axis] for axis in constant]) > UNROLLED:
            constant.pop(0)
        looped = [axis for axis in range(len(shape)) if axis not in constant]
        # Strips keep a few arrays in the first cache; rows that are reduced too are computed once, as a whole.
        strips = not any(isinstance(node, Fold) and self._in_a_row(node) for node in nodes)
        strips = strips and any(isinstance(node, Apply) and not self._is_inline(node) for node in nodes)

        def body(at: dict[int, Line]) -> None:
            self.stored = []
            for chosen in combinations(*(range(shape[axis]) for axis in constant)):
                point = at | {axis: Line(number, 1, None) for axis, number in zip(constant, chosen, strict=True)}
                index = tuple(point[axis] for axis in range(len(shape)))
                for store in stores:
                    self.store(store, index)
                    self.stored.append((store, index))

        self._axes(looped, shape, {}, body, strips=strips)
        self.stored = []

    def _axes(
        self,
        looped: list[int],
        shape: Shape,
        at: dict[int, Line],
        body: Callable[[dict[int, Line]], None],
        *,
        strips: bool,
    ) -> None:
        if not looped:
            body(at)
            return
        axis, rest = looped[0], looped[1:]
        if rest:
            end = self.size(shape[axis])
            self.loop("0", end, lambda var: self._axes(rest, shape, at | {axis: Line(0, 1, var)}, body, strips=strips))
        else:
            self.row(shape[axis], lambda var: body(at | {axis: Line(0, 1, var)}), strips=strips)

    # Reductions -------------------------------------------------------------------------------------------------------

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

    # Text -------------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the whole module."""
        entry = []
        for number, (name, passed) in enumerate(self.arguments.values()):
            entry.append(f"%p{number} = getelementptr i64, ptr %arguments, i64 {number}")
            entry.append(f"{name} = load {passed.llvm_type}, ptr %p{number}")
        lines = list(self._flat(self.root.lines))
        slots = [*self._slots, "%flags = alloca i32", *(f"%{var}_at = alloca i64" for var in self._loops)]
        return "\n".join(
            [
                "declare i32 @feclearexcept(i32)",
                "declare i32 @fetestexcept(i32)",
                *self.inline.declared.values(),
                f"define i32 @{ENTRY}(ptr noalias %arguments) {{",
                "entry:",
                *slots,
                *entry,
                "store i32 0, ptr %flags",
                "%cleared = call i32 @feclearexcept(i32 61)",
                *lines,
                f"%up = call i32 @fetestexcept(i32 {FLAGS})",
                "%kept = load i32, ptr %flags",
                "%all = or i32 %up, %kept",
                "ret i32 %all",
                "}",
            ]
        )

    def _flat(self, lines: Sequence[Any]) -> Iterator[str]:
        for line in lines:
            if not isinstance(line, Nest):
                yield line
                continue
            var, (low, high) = line.var, line.bounds
            self._loops.append(var)
            yield f"store i64 {low}, ptr %{var}_at"
            yield f"br label %{var}_test"
            yield f"{var}_test:"
            yield f"%{var} = load i64, ptr %{var}_at"
            yield f"%{var}_goes = icmp slt i64 %{var}, {high}"
            yield f"br i1 %{var}_goes, label %{var}_body, label %{var}_end"
            yield f"{var}_body:"
            yield from self._flat(line.lines)
            yield f"%{var}_next = add nsw i64 %{var}, {line.step}"
            yield f"store i64 %{var}_next, ptr %{var}_at"
            yield f"br label %{var}_test"
            yield f"{var}_end:"
