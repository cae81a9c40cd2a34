"""Random numbers in LLVM's language: strips of Philox numbers, and of normal ones made of pairs of them.

Before: compile/llvm_calls.py, compile/llvm_philox.py.  After: compile/llvm_folds.py.  Pure text: compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .graph import Draw
from .host import Size
from .llvm_calls import LlvmCalls
from .llvm_philox import NAME, philox_text
from .llvm_text import constant_text
from .ufunc_loops import inner_loop
from .walk import Held, Index, Nest, WantsMemory

DOUBLE = np.dtype(np.float64)


class WantsScalars(Exception):
    """What is computed belongs to single elements, so that the loop around it cannot go by vectors."""


class LlvmDraws(LlvmCalls):
    """Writes draws of random numbers."""

    def draw(self, node: Draw, at: Index) -> Held:
        nest = self.home(at)
        places = [line for line in at if line.axis is not None and line.axis == nest.var]
        if nest.strip is not None and len(places) == 1 and at[-1] is places[0] and at[-1].step == 1:
            return self._drawn_strip(node, at, nest)
        if node is not self.storing:
            raise WantsMemory(node)
        if self._lane(at) is not None:
            raise WantsScalars

        def write_one() -> Held:
            return self.read(self._filled(node, self._number_of(node, at), "1", 1), DOUBLE, nest, 1)

        found: Held = self.within(nest, write_one)
        return found

    def _drawn_strip(self, node: Draw, at: Index, nest: Nest) -> Held:
        assert nest.strip is not None and nest.parent is not None
        low, high, size = nest.strip
        key = "draw", id(node), tuple(line.key for line in at[:-1]), at[-1].key[0], low, high
        parent = nest.parent
        if key not in parent.memo:
            first = at[-1]

            def write_strip() -> str:
                count = high if low == "0" else self.put(f"sub nsw i64 {high}, {low}")
                start = self.put(f"add nsw i64 {self.size(first.start)}, {low}")
                return self._filled(node, self._number_of(node, at[:-1], start), count, size)

            parent.memo[key] = self.within(parent, write_strip)
        buffer = parent.memo[key]
        offset = f"%{nest.var}" if low == "0" else self.put(f"sub nsw i64 %{nest.var}, {low}", nest)
        where = self.put(f"getelementptr inbounds double, ptr {buffer}, i64 {offset}", nest)
        return self.read(where, DOUBLE, nest, nest.lanes)

    def _number_of(self, node: Draw, at: Index, last: str = "") -> str:
        """Return the number of an element among all of the draw; `last` is its place along the last axis if given."""
        first, *steps = (self.emit(number, ()).text for number in node.numbers[2:])
        places = [*(self.position(line) for line in at), *([last] if last else [])]
        for place, step in zip(places, steps, strict=True):
            first = self.put(f"add nsw i64 {first}, {self.put(f'mul nsw i64 {place}, {step}')}")
        return first

    def _filled(self, node: Draw, first: str, count: str, size: Size) -> str:
        """Fill memory with the numbers from `first` on, and return where it is."""
        self.helpers[NAME] = philox_text()
        keys = [self.emit(number, ()).text for number in node.numbers[:2]]
        if node.kind == "uniform":
            out = self.scratch(size, DOUBLE)
            self._uniform(out, first, count, keys)
            return out
        return self._normal(first, count, size, keys)

    def _uniform(self, out: str, first: str, count: str, keys: list[str]) -> None:
        self.say(f"call void @{NAME}(ptr {out}, i64 {first}, i64 {count}, i64 {keys[0]}, i64 {keys[1]})")

    def _normal(self, first: str, count: str, size: Size, keys: list[str]) -> str:
        """Return where normal numbers are: pairs of uniform ones, through NumPy's own logarithm and tangent."""
        odd = self.put(f"and i64 {first}, 1")
        reach = self.put(f"add nsw i64 {count}, {odd}")
        pairs = self.put(f"lshr i64 {self.put(f'add nsw i64 {reach}, 1')}, 1")
        room = size + 2
        numbers, radius, half = (self.scratch(room, DOUBLE) for _ in range(3))
        even = self.put(f"sub nsw i64 {first}, {odd}")
        self._uniform(numbers, even, self.put(f"shl i64 {pairs}, 1"), keys)
        self._each(pairs, lambda var: self._apart(var, numbers, radius, half))
        for name, place in (("log1p", radius), ("tan", half)):
            loop = inner_loop(name, ("<f8", "<f8"))
            out = place if loop.in_place else self.scratch(room, DOUBLE)
            self.call(loop, [place, out], [8, 8], pairs)
            radius, half = (out, half) if name == "log1p" else (radius, out)
        self._each(pairs, lambda var: self._joined_pair(var, numbers, radius, half))
        return self.put(f"getelementptr inbounds double, ptr {numbers}, i64 {odd}")

    def _each(self, count: str, body: Callable[[str], None]) -> None:
        self.loop("0", count, body, counts=False)

    def _at(self, base: str, place: str) -> str:
        return self.put(f"getelementptr inbounds double, ptr {base}, i64 {place}")

    def _pair(self, var: str) -> tuple[str, str]:
        even = self.put(f"shl i64 %{var}, 1")
        return even, self.put(f"or i64 {even}, 1")

    def _apart(self, var: str, numbers: str, radius: str, half: str) -> None:
        """Write the first of a pair with the other sign, and the second as half an angle."""
        even, odd = self._pair(var)
        one = self.put(f"load double, ptr {self._at(numbers, even)}, align 8")
        self.say(f"store double {self.put(f'fneg double {one}')}, ptr {self._at(radius, f'%{var}')}, align 8")
        two = self.put(f"load double, ptr {self._at(numbers, odd)}, align 8")
        two = self.put(f"fsub double {two}, {constant_text(0.5, DOUBLE)}")
        two = self.put(f"fmul double {two}, {constant_text(np.pi, DOUBLE)}")
        self.say(f"store double {two}, ptr {self._at(half, f'%{var}')}, align 8")

    def _joined_pair(self, var: str, numbers: str, radius: str, half: str) -> None:
        """Write two normal numbers, of a logarithm and a tangent."""
        root = "@llvm.sqrt.f64"
        self.inline.declared[root] = f"declare double {root}(double)"
        one, two = constant_text(1.0, DOUBLE), constant_text(2.0, DOUBLE)
        logarithm = self.put(f"load double, ptr {self._at(radius, f'%{var}')}, align 8")
        doubled = self.put(f"fmul double {logarithm}, {constant_text(-2.0, DOUBLE)}")
        far = self.put(f"call double {root}(double {doubled})")
        tangent = self.put(f"load double, ptr {self._at(half, f'%{var}')}, align 8")
        square = self.put(f"fmul double {tangent}, {tangent}")
        far = self.put(f"fdiv double {far}, {self.put(f'fadd double {one}, {square}')}")
        even, odd = self._pair(var)
        first = self.put(f"fmul double {self.put(f'fsub double {one}, {square}')}, {far}")
        second = self.put(f"fmul double {self.put(f'fmul double {tangent}, {two}')}, {far}")
        self.say(f"store double {first}, ptr {self._at(numbers, even)}, align 8")
        self.say(f"store double {second}, ptr {self._at(numbers, odd)}, align 8")
