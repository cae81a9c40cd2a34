"""LLVM's language for values: instructions where there are some, and NumPy's own inner loops for the rest.

Before: compile/llvm_rows.py, compile/ufunc_loops.py.  After: compile/llvm.py.  Pure text: compiles nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .graph import Apply, Constant, Draw, Expr, Line, Scalar
from .host import size_key
from .llvm_rows import LlvmRows
from .llvm_text import constant_text, conversion, scalar_type, type_text
from .ufunc_loops import InnerLoop, inner_loop
from .walk import Held, Index, Nest, Strip

INTEGER = np.dtype(np.int64)
FLAGS = 29  # invalid, divide by zero, overflow and underflow, as x86 counts them


class LlvmCalls(LlvmRows):
    """Writes values of elements."""

    def constant(self, node: Constant) -> Held:
        return Held(constant_text(node.value, node.dtype), node.dtype, False, self.root)

    def scalar(self, node: Scalar) -> Held:
        key = node.host.text, type(node.host.value), node.dtype.str
        kind = scalar_type(node.dtype, memory=True)
        text = self.argument("scalar", (node.host, node.dtype), key, kind)
        if node.dtype.kind == "b":
            text = self.put(f"icmp ne i8 {text}, 0", self.root)
        return Held(text, node.dtype, False, self.root)

    def counting(self, at: Line) -> Held:
        nest = self.home((at,))
        value = Held(self.position(at), INTEGER, False, nest)
        if nest.lanes == 1:
            return value
        first = self.lifted(value)
        steps = ", ".join(f"i64 {lane * at.step}" for lane in range(self.lanes))
        return Held(self.put(f"add <{self.lanes} x i64> {first.text}, <{steps}>", nest), INTEGER, True, nest)

    def convert(self, value: Held, dtype: np.dtype[Any]) -> Held:
        lanes = self.lanes if value.vector else 1
        text = conversion(self._putter(value.home), value.text, value.dtype, dtype, lanes, self.inline.declared)
        return Held(text, dtype, value.vector, value.home)

    def _is_inline(self, node: Apply) -> bool:
        return self.inline.known(node.function, [arg.dtype for arg in node.inputs])

    def is_called(self, node: Expr) -> bool:
        """Tell whether a value is computed by a function that takes a strip of elements."""
        return isinstance(node, Draw) or (isinstance(node, Apply) and not self._is_inline(node))

    def computed(self, function: str, values: list[Held], dtype: np.dtype[Any]) -> Held:
        """Return an inline function of values."""
        nest = self.deepest(values)
        vector = any(value.vector for value in values)
        values = [self.lifted(value) for value in values] if vector else values
        lanes = self.lanes if vector else 1
        texts = [value.text for value in values]
        text = self.inline.write(self._putter(nest), function, texts, values[-1].dtype, lanes)
        return Held(text, dtype, vector, nest)

    def apply(self, node: Apply, at: Index) -> Held:
        if self._is_inline(node):
            return self.computed(node.function, self.args_at(node, at), node.dtype)
        loop = self.loop_of(node)
        nest = self.home(at)
        if nest.strip is not None:
            return self._staged(node, at, nest, loop)
        return self._called_at_once(node, self.args_at(node, at), loop)

    def loop_of(self, node: Apply) -> InnerLoop:
        """Return NumPy's own loop for a function."""
        return inner_loop(node.function, (*(arg.dtype.str for arg in node.inputs), node.dtype.str))

    def _called_at_once(self, node: Apply, values: list[Held], loop: InnerLoop) -> Held:
        """Return a function of a vector or a single value, by a call of its own."""
        nest = self.deepest(values)
        vector = any(value.vector for value in values)
        lanes = self.lanes if vector else 1

        def write_call() -> Held:
            places, strides = [], []
            for arg, value in zip(node.inputs, values, strict=True):
                spread = self.lifted(value) if vector and arg.shape else value
                place = self.slot(type_text(value.dtype, self.lanes if spread.vector else 1, memory=True))
                self.write(place, spread)
                places.append(place)
                strides.append(value.dtype.itemsize if arg.shape else 0)
            out = self.slot(type_text(node.dtype, lanes, memory=True))
            self.call(loop, [*places, out], [*strides, node.dtype.itemsize], str(lanes))
            return self.read(out, node.dtype, nest, lanes)

        found: Held = self.within(nest, write_call)
        return found

    def call(self, loop: InnerLoop, places: list[str], strides: list[int], count: str) -> None:
        """Write the call of an inner loop, and keep the flags that it may clear."""
        self.flags = True
        n = len(places)
        pointers, steps, number = self.slot(f"[{n} x ptr]"), self.slot(f"[{n} x i64]"), self.slot("i64")
        for position, (place, stride) in enumerate(zip(places, strides, strict=True)):
            for base, kind, text in ((pointers, "ptr", place), (steps, "i64", str(stride))):
                where = self.put(f"getelementptr inbounds {kind}, ptr {base}, i64 {position}")
                self.say(f"store {kind} {text}, ptr {where}")
        self.say(f"store i64 {count}, ptr {number}")
        self.keep_flags()
        function = self.put(f"inttoptr i64 {loop.function} to ptr")
        data = self.put(f"inttoptr i64 {loop.data} to ptr")
        self.say(f"call void {function}(ptr {pointers}, ptr {number}, ptr {steps}, ptr {data})")
        self.keep_flags()

    def keep_flags(self) -> None:
        """Remember the floating-point flags that are up now."""
        up = self.put(f"call i32 @fetestexcept(i32 {FLAGS})")
        before = self.put("load i32, ptr %flags")
        self.say(f"store i32 {self.put(f'or i32 {before}, {up}')}, ptr %flags")

    def _staged(self, node: Apply, at: Index, nest: Nest, loop: InnerLoop) -> Held:
        """Return a function along a row: the whole strip is computed before the loop that asks for it."""
        buffer, low = self.staged(node, at, nest, loop)
        offset = f"%{nest.var}" if low == "0" else self.put(f"sub nsw i64 %{nest.var}, {low}", nest)
        element = scalar_type(node.dtype, memory=True)
        where = self.put(f"getelementptr inbounds {element}, ptr {buffer}, i64 {offset}", nest)
        return self.read(where, node.dtype, nest, nest.lanes)

    def staged(self, node: Apply, at: Index, nest: Nest, loop: InnerLoop) -> tuple[str, str]:
        """Return the buffer that holds a function along the strip of a loop, filled before it, and the strip's start."""
        assert nest.strip is not None and nest.parent is not None
        low, high, _ = nest.strip
        places = tuple(("*", line.step, size_key(line.start)) if line.axis == nest.var else line.key for line in at)
        key = "strip", id(node), places, low, high
        parent = nest.parent
        if key not in parent.memo:
            parent.memo[key] = self.within(parent, lambda: self._strip(node, at, nest, loop))
        return parent.memo[key], low

    def _strip(self, node: Apply, at: Index, nest: Nest, loop: InnerLoop) -> str:
        """Fill a strip with a function's arguments, call it, and return where its results are."""
        assert nest.strip is not None
        low, high, size = nest.strip
        buffers: list[str] = []
        for arg in node.inputs:
            if arg.shape:
                buffers.append(self.scratch(size, arg.dtype))
            else:
                buffers.append(self.slot(type_text(arg.dtype, 1, memory=True)))
                self.write(buffers[-1], self.emit(arg, ()))
        pairs = list(zip(node.inputs, buffers, strict=True))
        self._fill([(arg, buffer) for arg, buffer in pairs if arg.shape], at, nest.var, nest.strip)
        same = [buffer for arg, buffer in pairs if loop.in_place and arg.shape and arg.dtype == node.dtype]
        out = same[0] if same else self.scratch(size, node.dtype)
        strides = [arg.dtype.itemsize if arg.shape else 0 for arg in node.inputs]
        count = high if low == "0" else self.put(f"sub nsw i64 {high}, {low}")
        self.call(loop, [*buffers, out], [*strides, node.dtype.itemsize], count)
        return out

    def _fill(self, wanted: list[tuple[Expr, str]], at: Index, var: str, strip: Strip) -> None:
        """Write values along a strip into buffers that begin with its first element."""

        def body(mine: str) -> None:
            moved = tuple(line._replace(axis=mine) if line.axis == var else line for line in at)
            nest = self.stack[-1]
            for node, buffer in wanted:
                value = self.emit(node, moved)
                value = self.lifted(value) if nest.lanes > 1 else value
                offset = f"%{mine}" if strip.low == "0" else self.put(f"sub nsw i64 %{mine}, {strip.low}")
                element = scalar_type(node.dtype, memory=True)
                self.write(self.put(f"getelementptr inbounds {element}, ptr {buffer}, i64 {offset}"), value)

        self.vectors(strip, body)
