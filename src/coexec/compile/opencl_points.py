"""The statements of one point of a chunk, in C: what OpenCL and CUDA have in common.

Before: compile/walk.py, compile/opencl_text.py.  After: compile/opencl.py, compile/opencl_vectors.py.  Pure text: knows no device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .graph import (
    FIRST,
    STEPS,
    Apply,
    Assign,
    Buffer,
    Constant,
    Draw,
    Fold,
    Gather,
    Line,
    Read,
    Scalar,
    Traced,
    nodes_of,
    through,
)
from .host import Host, Size, equal_sizes
from .opencl_text import (
    C_TYPES,
    COMPARISONS,
    EIGHT,
    HALVES,
    JOINED,
    ONE_POWER,
    PHILOX,
    TEXTS,
    Text,
    arithmetic_text,
    extent_text,
    lines_text,
)
from .refused import Untraceable
from .trace import FEW
from .walk import Held, Index, Nest, Walk, WantsMemory
from .zeros import lanes_of_extreme, zero_text

BOOL, INTEGER, WORD, DOUBLE = np.dtype(bool), np.dtype(np.int64), np.dtype(np.uint64), np.dtype(float)


class Points(Walk):
    """Writes the statements of a point."""

    def __init__(self, traced: Traced, *, name_numbers: bool) -> None:
        super().__init__()
        self.ulp = 0.0
        self.coarse = 0.0  # what one ulp of the least precise function is
        self.numbers: dict[str, Scalar] = {}
        self._name_numbers = name_numbers
        self._shared: list[Nest] = []  # what several work-items compute alike
        self._outside: list[Nest] = []  # what is known there is the same for all elements of a row
        buffers = [p for p in traced.parameters.values() if isinstance(p, Buffer)]
        self._doubles = any(buffer.dtype == np.float64 for buffer in buffers)

    def points(self, stores: Sequence[Assign], *, rows: bool) -> None:
        """Write all stores, for a point or for a row of points."""
        self.number_stores(list(stores))
        self.check_doubles(stores)
        shape = stores[0].value.shape
        for axis in range(len(shape) - rows):
            self.stack.append(Nest(f"i{axis}", ("", ""), self.stack[-1]))
        self._shared = self.stack[:-1]
        if rows:
            self.stack.append(Nest("coexec_j", ("0L", self.size(shape[-1])), self.stack[-1]))
        self.store_all(stores)
        if rows:
            row = self.stack.pop()
            self.stack[-1].lines.append(row)

    def check_doubles(self, stores: Sequence[Assign]) -> None:
        """Raise `Untraceable` if a device without doubles would be asked to compute with them."""
        nodes = nodes_of(*(store.value for store in stores))
        if not self._doubles and any(node.dtype == np.float64 for node in nodes):
            raise Untraceable("it computes in double precision without an array of it")

    def store_all(self, stores: Sequence[Assign]) -> None:
        """Write all stores inside the loops that there are."""
        self._outside = self.stack[:-1]
        index = tuple(Line(0, 1, nest.var) for nest in self.stack[1:])
        for store in stores:
            self.put(store.buffer, through(store.axes, index), self.emit(store.value, index))
            self.stored.append((store, index))

    def put(self, buffer: Buffer, at: Index, value: Held) -> None:
        """Write one element."""
        self.say(f"{buffer.name}({', '.join(map(self.position, at))}) = {value.text};")

    def source(self) -> Iterator[str]:
        """Yield the lines."""
        for nest in self.stack:
            yield from lines_text(nest.lines, 0)

    # Numbers ------------------------------------------------------------------------------------------------------------

    def c_type(self, dtype: np.dtype[Any]) -> str:
        """Return how C calls a type."""
        return C_TYPES[dtype.str[1:]]

    def size(self, size: Size) -> str:
        """Return a size as C computes it."""
        if not isinstance(size, Host):
            return f"{size}L"
        if size.linear is None:
            raise Untraceable(f"the size {size.text} is not a sum of extents")
        terms, constant = size.guards.reduced(size.linear)
        parts = [f"{factor}L * {extent_text(text)}" for text, factor in terms]
        return f"({' + '.join([*parts, f'{constant}L'])})"

    def position(self, line: Line) -> str:
        """Return an index along one axis."""
        start = self.size(line.start)
        if line.axis is None:
            return start
        moved = line.axis if line.step == 1 else f"{line.axis} * {line.step}L"
        return moved if start == "0L" else f"{moved} + {start}"

    def constant(self, node: Constant) -> Held:
        return self.number(node.value, node.dtype)

    def number(self, value: Any, dtype: np.dtype[Any]) -> Held:
        """Return a number that is known now."""
        if dtype.kind == "f" and value == 0 and np.signbit(value):
            return self._negative_zero(dtype)
        if dtype.kind == "f":
            text = float(value).hex() if np.isfinite(value) else "NAN" if np.isnan(value) else "INFINITY"
            text = f"({self.c_type(dtype)})({'-' if np.isinf(value) and value < 0 else ''}{text}{'f' if dtype.itemsize == 4 and np.isfinite(value) else ''})"
        else:
            suffix = "UL" if dtype.kind == "u" else "L"
            low = int(value) == -(1 << 63)
            text = "(-9223372036854775807L - 1)" if low else f"({int(value)}{suffix})"
            text = f"(({self.c_type(dtype)}){text})"
        return Held(text, dtype, False, self.root)

    def _negative_zero(self, dtype: np.dtype[Any]) -> Held:
        """Return -0.0, which compilers must not see: LLVM takes `x < 0 ? -0.0 : x` for a maximum that would be -0.0 for 0.0."""
        key = "-0.0", dtype.str
        if key not in self.root.memo:
            name = self.name("coexec_zero")
            self.say(f"volatile {self.c_type(dtype)} {name}_hidden = -0.0f;", self.root)
            self.say(f"const {self.c_type(dtype)} {name} = {name}_hidden;", self.root)
            self.root.memo[key] = Held(name, dtype, False, self.root)
        found: Held = self.root.memo[key]
        return found

    def scalar(self, node: Scalar) -> Held:
        host = node.host
        if self._name_numbers:
            name = f"coexec_h{len(self.numbers)}"
            self.numbers[name] = node
            return self.let(self._as(name, node.dtype), node.dtype, self.root)
        plain = host.text.isidentifier()
        if not plain and not (node.dtype == np.float64 and isinstance(host.value, float)):
            raise Untraceable(f"the number {host.text} is computed on the host")
        text = host.text if plain else arithmetic_text(host.text)
        return self.let(self._as(text, node.dtype), node.dtype, self.root)

    def _as(self, text: str, dtype: np.dtype[Any]) -> str:
        """Return a number of the host in a type: whatever is not zero is true, also where it is below one."""
        return f"(({text}) != 0)" if dtype.kind == "b" else f"({self.c_type(dtype)})({text})"

    def counting(self, at: Line) -> Held:
        return Held(f"({self.position(at)})", INTEGER, False, self.home((at,)))

    # Values -------------------------------------------------------------------------------------------------------------

    def let(self, text: str, dtype: np.dtype[Any], nest: Nest) -> Held:
        """Give a value a name."""
        name = self.name("coexec_v")
        self.say(f"const {self.c_type(dtype)} {name} = {text};", nest)
        return Held(name, dtype, False, nest)

    def load(self, node: Read, at: Index) -> Held:
        if not node.buffer.parameter:
            raise Untraceable("it needs memory of its own")
        where = f"({', '.join(self._places(node, at))})" if node.buffer.shape else ""
        text = f"{node.buffer.name}{where}"
        return self.let(f"{text} != 0" if node.dtype.kind == "b" else text, node.dtype, self.home(at))

    def _places(self, node: Read, at: Index) -> list[str]:
        """Return the index of an element in its array, which may have been reshaped."""
        places = [self.position(line) for line in at]
        shape, own = node.shape, node.buffer.shape
        if len(shape) == len(own) and all(map(equal_sizes, shape, own)):
            return places
        number = "0L"
        for place, extent in zip(places, shape, strict=True):
            number = f"(({number}) * {self.size(extent)} + ({place}))"
        flat = self.let(number, INTEGER, self.home(at)).text
        found = []
        for axis in reversed(range(len(own))):
            found.append(flat if not axis else f"{flat} % {self.size(own[axis])}")
            if axis:
                flat = self.let(f"{flat} / {self.size(own[axis])}", INTEGER, self.home(at)).text
        return found[::-1]

    def convert(self, value: Held, dtype: np.dtype[Any]) -> Held:
        if value.dtype.kind == "f" and dtype.kind in "iu":
            raise Untraceable("floats to integers beyond their ends depend on the device")
        text = f"({value.text} != 0)" if dtype.kind == "b" else f"({self.c_type(dtype)}){value.text}"
        return self.let(text, dtype, value.home)

    def apply(self, node: Apply, at: Index) -> Held:
        values = self.args_at(node, at)
        if node.function in COMPARISONS and values[0].dtype.kind == "i" and not self._name_numbers:
            values = [self._as_passed(arg, value) for arg, value in zip(node.inputs, values, strict=True)]
        return self.computed(node.function, values, node.dtype)

    def _as_passed(self, node: Any, value: Held) -> Held:
        """Return an integer to compare: a Python number may lie beyond the array's type, and is compared all the same."""
        if isinstance(node, Scalar) and type(node.host.value) is int:
            return Held(f"((long){node.host.text})", INTEGER, False, self.root)
        return self.convert(value, INTEGER)

    def known(self, function: str, values: list[Held]) -> tuple[Text, str]:
        """Return the text of a function, and its pattern for values of their type; raise `Untraceable` if there is none."""
        known, last = TEXTS.get(getattr(np, function, None)), values[-1].dtype
        if known is None or len({value.dtype for value in values}) > 1:
            raise Untraceable(f"np.{function} has no OpenCL C")
        pattern = known.floats if last.kind == "f" else known.integers
        if last.kind == "u" and function == "absolute":
            pattern = "{0}"  # the text looks at the sign
        if not pattern or (last.kind == "b" and not function.startswith(("logical", "bitwise", "equal", "not_equal"))):
            raise Untraceable(f"np.{function} of {last} has no OpenCL C")
        if function == "power" and values[1].home in self._outside:
            pattern = ONE_POWER
        return known, pattern

    def computed(self, function: str, values: list[Held], dtype: np.dtype[Any]) -> Held:
        """Return a function of values."""
        nest, texts, last = self.deepest(values), [value.text for value in values], values[-1].dtype
        if function == "where":
            return self.let(f"{texts[0]} ? {texts[1]} : {texts[2]}", dtype, nest)
        known, pattern = self.known(function, values)
        if known.calm:
            raise Untraceable(f"np.{function} has no OpenCL C for one element, as PoCL would put several into a vector")
        if known.ulp and last.kind == "f":
            self.ulp += known.ulp + 0.5
            self.coarse = max(self.coarse, float(np.finfo(last).eps))
        if known.wraps and last.kind in "iu":  # C says what becomes of unsigned integers only
            kind = self.c_type(last).removeprefix("u")
            texts = [f"((u{kind}){text})" for text in texts]
        result = pattern.format(*texts)
        return self.let(f"(({result}) != 0)" if dtype.kind == "b" else f"({self.c_type(dtype)})({result})", dtype, nest)

    def gather(self, node: Gather, at: Index) -> Held:
        raise Untraceable("indices in an array are looked at on the host, where this is not")

    def draw(self, node: Draw, at: Index) -> Held:
        if node.kind != "uniform":
            raise Untraceable("normal random numbers are made by functions of NumPy")
        low, high, first, *steps = (self.emit(number, ()).text for number in node.numbers)
        terms = [f"({self.position(line)}) * {step}" for line, step in zip(at, steps, strict=True)]
        nest = self.home(at)
        number = self.let(" + ".join([f"(ulong)({first})", *terms]), WORD, nest).text
        name = self.name("coexec_u")
        for line in PHILOX:
            self.say(line.format(name=name, number=number, low=low, high=high), nest)
        return Held(name, DOUBLE, False, nest)

    # Reductions ---------------------------------------------------------------------------------------------------------

    def fold(self, node: Fold, at: Index) -> Held:
        last = all(equal_sizes(extent, 1) for extent in node.arg.shape[node.axis + 1 :])
        floats = node.arg.dtype.kind == "f"
        home = self.home(at)
        short = isinstance(node.extent, int) and node.extent <= FEW
        if not short and home in self._shared:  # each of many work-items would do it
            raise WantsMemory(node)
        if last and floats and node.kind == "prod":
            raise Untraceable("a row of floats is multiplied in an order of NumPy's own")
        if floats and node.kind == "sum" and short:
            return self._few(node, at, in_pairs=last and not node.free)
        if last and floats and node.kind == "sum" and not node.free:
            found: Held = self.within(home, lambda: self.in_pairs(node, at, home))
        else:
            found = self.within(home, lambda: self.looped(node, at, home, in_a_row=last and floats))
        return found

    def _few(self, node: Fold, at: Index, *, in_pairs: bool) -> Held:
        """Return a sum of a few floats, written out in NumPy's order."""
        places = [Line(number, 1, None) for number in range(int(node.extent))]
        values = [self.emit(node.arg, (*at[: node.axis], line, *at[node.axis :])) for line in places]
        if in_pairs and len(values) >= 8:
            whole = len(values) - len(values) % 8
            lanes = values[:8]
            if whole > 8:
                lanes = [self._sum(a, b) for a, b in zip(lanes, values[8:16], strict=True)]
            while len(lanes) > 1:
                lanes = [self._sum(*lanes[i : i + 2]) for i in range(0, len(lanes), 2)]
            values = [lanes[0], *values[whole:]]
        total = values[0]
        for value in values[1:]:
            total = self._sum(total, value)
        return self._sum(self.number(0, node.dtype), total)

    def _sum(self, a: Held, b: Held) -> Held:
        return self.computed("add", [a, b], a.dtype)

    def in_pairs(self, node: Fold, at: Index, home: Nest) -> Held:
        """Return a sum of floats in NumPy's order: halves of halves, and at most 128 elements in eight sums."""
        kind, own = self.c_type(node.dtype), self.name("coexec_s")
        self.say(f"{kind} {own} = 0; long {own}_low[64], {own}_count[64]; {kind} {own}_left[64]; int {own}_state[64];")
        self.say(f"int {own}_top = 0; {own}_low[0] = 0; {own}_count[0] = {self.size(node.extent)}; {own}_state[0] = 0;")
        halves = Nest("", (f"while ({own}_top >= 0)", ""), home)
        halves.counts = False
        self.stack.append(halves)
        for line in HALVES:
            self.say(line.format(own=own, kind=kind))
        self.eight_sums(node, at, own)
        self.say(f"{own}_top--;")
        self.stack.pop()
        home.lines.append(halves)
        return self.let(f"0 + {own}", node.dtype, home)

    def eight_sums(self, node: Fold, at: Index, own: str) -> None:
        """Add up to 128 elements."""
        nest = Nest(self.name("coexec_r"), (f"{own}_at", f"{own}_at + {own}_n"), self.stack[-1])
        self.stack.append(nest)
        value = self.emit(node.arg, (*at[: node.axis], Line(0, 1, nest.var), *at[node.axis :]))
        for line in EIGHT:
            self.say(line.format(own=own, value=value.text, var=nest.var))
        self.stack.pop()
        self.stack[-1].lines.append(nest)
        self.say(f"if ({own}_n >= 8 && {own}_n % 8 == 0) {own} = {JOINED.format(own=own)};")

    def looped(self, node: Fold, at: Index, home: Nest, *, in_a_row: bool) -> Held:
        """Return a reduction one element after the other."""

        def element(line: Line) -> Held:
            return self.emit(node.arg, (*at[: node.axis], line, *at[node.axis :]))

        from_first = node.kind not in FIRST
        first = element(Line(0, 1, None)) if from_first else self.number(FIRST[node.kind], node.dtype)
        total, place = self.name("coexec_t"), self.name("coexec_p")
        self.say(f"{self.c_type(first.dtype)} {total} = {first.text};")
        self.say(f"long {place} = 0;")
        nest = Nest(self.name("coexec_r"), ("1L" if from_first else "0L", self.size(node.extent)), home)
        self.stack.append(nest)
        value, now = element(Line(0, 1, nest.var)), Held(total, first.dtype, False, nest)
        if node.kind.startswith("arg"):
            sign = ">" if node.kind == "argmax" else "<"
            better = f"{value.text} {sign} {total}"
            if value.dtype.kind == "f":
                better = f"({better} || {value.text} != {value.text}) && {total} == {total}"
            self.say(f"if ({better}) {{ {total} = {value.text}; {place} = {nest.var}; }}")
        else:
            step = STEPS[node.kind]
            self.say(f"{total} = {self.computed(step, [now, value], node.dtype).text};")
        self.stack.pop()
        home.lines.append(nest)
        if node.kind.startswith("arg"):
            return Held(place, INTEGER, False, home)
        if in_a_row and node.kind in ("max", "min"):
            self.settle_zero(node, at, home, total)
        return now._replace(home=home)

    def settle_zero(self, node: Fold, at: Index, home: Nest, total: str) -> None:
        """Give the extreme of a row NumPy's sign where it is zero."""
        lanes = lanes_of_extreme(STEPS[node.kind], node.dtype.str)
        if len(lanes) == 1 or (isinstance(node.extent, int) and node.extent <= len(lanes)):
            return  # the last of them, as ever
        own, count = self.name("coexec_z"), self.size(node.extent)
        if_zero = Nest("", (f"if ({total} == 0)", ""), home)
        if_zero.counts = False
        self.stack.append(if_zero)
        self.say(f"long {own}_best = -1;")
        again = Nest(self.name("coexec_r"), ("0L", count), if_zero)
        self.stack.append(again)
        value = self.emit(node.arg, (*at[: node.axis], Line(0, 1, again.var), *at[node.axis :]))
        for line in zero_text(lanes, own, again.var, count, value.text, total):
            self.say(line)
        self.stack.pop()
        if_zero.lines.append(again)
        self.stack.pop()
        home.lines.append(if_zero)
