"""The same graph as OpenCL C: the statements for one point of the chunk, as `kernel.opencl` takes them.

Before: compile/walk.py, compile/opencl_text.py.  After: whoever adds the variant.  Pure text: knows no device.

Additions are in NumPy's order or refused; divisions and functions are as exact as OpenCL asks for, which `numerics`
says. What the text takes for granted beside the declared shapes is in `guards`: a caller must check them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..program.ufunc_source import TEXTS
from ..program.variant import Numerics, close, exact
from .graph import (
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
    whole_axes,
)
from .host import Host, Size, equal_sizes
from .opencl_text import C_TYPES, EIGHT, HALVES, JOINED, MORE, PHILOX, arithmetic_text, extent_text, lines_text
from .refused import DEEP, Declined, Untraceable
from .schedule import scheduled
from .sizes import same_shape
from .trace import FEW, trace
from .walk import Held, Index, Nest, Walk, WantsMemory

BOOL, INTEGER, WORD, DOUBLE = np.dtype(bool), np.dtype(np.int64), np.dtype(np.uint64), np.dtype(float)
FREE = 64.0  # ulp of the largest result that sums in any order are apart; the kernel says how many it allows
LEFT_OUT = frozenset({"sin", "cos"})
"""PoCL 3.0 gets them wrong for small numbers beside large ones."""
STEPS = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
FIRST = {"sum": 0, "prod": 1, "any": 0, "all": 1}
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
    space: str  # the array whose elements are the points
    rows: bool  # a point is a row: the last axis is gone through inside
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


def statements(traced: Traced, *, name_numbers: bool) -> Statements:
    """Return a graph as OpenCL C; raise `Untraceable` if it has none.

    With `name_numbers`, whoever launches it passes the numbers that Python computes; else C computes them.
    """
    groups = scheduled(traced.stores)
    if len(groups) > 1 or any(not store.buffer.parameter for store in groups[0]):
        raise Untraceable("it needs several passes over its arrays")
    space = _check_points(traced, groups[0])
    rows = False
    writer = _Points(traced, name_numbers=name_numbers)
    try:
        try:
            writer.points(groups[0], rows=False)
        except WantsMemory:
            if not (name_numbers and len(groups[0][0].value.shape) > 1):
                raise
            rows, writer = True, _Points(traced, name_numbers=name_numbers)
            writer.points(groups[0], rows=True)
    except WantsMemory:
        raise Untraceable("it reduces the same elements for many points") from None
    except RecursionError:
        raise Untraceable(DEEP) from None
    numerics = close(writer.ulp + FREE) if traced.free else close(writer.ulp) if writer.ulp else exact
    return Statements("\n".join(writer.source()), numerics, space, rows, writer.numbers)


def _is_relation(text: str, answer: Any) -> bool:
    """Tell whether a guard says that extents go together, which the declared accesses see to."""
    return answer is True and text.startswith("bool(") and text.endswith(" == 0)") and "__" in text


def _check_points(traced: Traced, group: Sequence[Assign]) -> str:
    """Return the array whose elements are the points; raise unless each point computes its own elements."""
    first = next(p for name, p in traced.parameters.items() if isinstance(p, Buffer) and name in traced.writes)
    if len(first.shape) > 3 or not first.shape:
        raise Untraceable("its index space has no axes, or more than three")
    for store in group:
        shape = store.value.shape
        moved = store.axes != whole_axes(len(store.buffer.shape))
        if moved or not same_shape(shape, store.buffer.shape) or not same_shape(shape, first.shape):
            raise Untraceable("it writes a part of an array, or arrays of different shapes")
    return first.name


class _Points(Walk):
    """Writes the statements of a point."""

    def __init__(self, traced: Traced, *, name_numbers: bool) -> None:
        super().__init__()
        self.ulp = 0.0
        self.numbers: dict[str, Scalar] = {}
        self._name_numbers = name_numbers
        self._shared: list[Nest] = []  # what several work-items compute alike
        buffers = [p for p in traced.parameters.values() if isinstance(p, Buffer)]
        self._doubles = any(buffer.dtype == np.float64 for buffer in buffers)

    def points(self, stores: Sequence[Assign], *, rows: bool) -> None:
        """Write all stores, for a point or for a row of points."""
        self.number_stores(list(stores))
        for node in nodes_of(*(store.value for store in stores)):
            if node.dtype == np.float64 and not self._doubles:
                raise Untraceable("it computes in double precision without an array of it")
        shape = stores[0].value.shape
        for axis in range(len(shape) - rows):
            self.stack.append(Nest(f"i{axis}", ("", ""), self.stack[-1]))
        self._shared = self.stack[:-1]
        if rows:
            self.stack.append(Nest("coexec_j", ("0L", self._size(shape[-1])), self.stack[-1]))
        index = tuple(Line(0, 1, nest.var) for nest in self.stack[1:])
        for store in stores:
            value = self.emit(store.value, index)
            at = through(store.axes, index)
            self.say(f"{store.buffer.name}({', '.join(map(self._position, at))}) = {value.text};")
            self.stored.append((store, index))
        if rows:
            row = self.stack.pop()
            self.stack[-1].lines.append(row)

    def source(self) -> Iterator[str]:
        """Yield the lines."""
        for nest in self.stack:
            yield from lines_text(nest.lines, 0)

    # Numbers ------------------------------------------------------------------------------------------------------------

    def _c_type(self, dtype: np.dtype[Any]) -> str:
        return C_TYPES[dtype.str[1:]]

    def _size(self, size: Size) -> str:
        if not isinstance(size, Host):
            return f"{size}L"
        if size.linear is None:
            raise Untraceable(f"the size {size.text} is not a sum of extents")
        terms, constant = size.guards.reduced(size.linear)
        parts = [f"{factor}L * {extent_text(text)}" for text, factor in terms]
        return f"({' + '.join([*parts, f'{constant}L'])})"

    def _position(self, line: Line) -> str:
        start = self._size(line.start)
        if line.axis is None:
            return start
        moved = line.axis if line.step == 1 else f"{line.axis} * {line.step}L"
        return moved if start == "0L" else f"{moved} + {start}"

    def constant(self, node: Constant) -> Held:
        return self._number(node.value, node.dtype)

    def _number(self, value: Any, dtype: np.dtype[Any]) -> Held:
        if dtype.kind == "f":
            text = float(value).hex() if np.isfinite(value) else "NAN" if np.isnan(value) else "INFINITY"
            text = f"({self._c_type(dtype)})({'-' if np.isinf(value) and value < 0 else ''}{text}{'f' if dtype.itemsize == 4 and np.isfinite(value) else ''})"
        else:
            suffix = "UL" if dtype.kind == "u" else "L"
            low = int(value) == -(1 << 63)
            text = "(-9223372036854775807L - 1)" if low else f"({int(value)}{suffix})"
            text = f"(({self._c_type(dtype)}){text})"
        return Held(text, dtype, False, self.root)

    def scalar(self, node: Scalar) -> Held:
        host = node.host
        if self._name_numbers:
            name = f"coexec_h{len(self.numbers)}"
            self.numbers[name] = node
            return self._let(f"({self._c_type(node.dtype)})({name})", node.dtype, self.root)
        plain = host.text.isidentifier()
        if not plain and not (node.dtype == np.float64 and isinstance(host.value, float)):
            raise Untraceable(f"the number {host.text} is computed on the host")
        text = host.text if plain else arithmetic_text(host.text)
        return self._let(f"({self._c_type(node.dtype)})({text})", node.dtype, self.root)

    def counting(self, at: Line) -> Held:
        return Held(f"({self._position(at)})", INTEGER, False, self.home((at,)))

    # Values -------------------------------------------------------------------------------------------------------------

    def _let(self, text: str, dtype: np.dtype[Any], nest: Nest) -> Held:
        name = self.name("coexec_v")
        self.say(f"const {self._c_type(dtype)} {name} = {text};", nest)
        return Held(name, dtype, False, nest)

    def load(self, node: Read, at: Index) -> Held:
        if not node.buffer.parameter:
            raise Untraceable("it needs memory of its own")
        where = f"({', '.join(self._places(node, at))})" if node.buffer.shape else ""
        text = f"{node.buffer.name}{where}"
        return self._let(f"{text} != 0" if node.dtype.kind == "b" else text, node.dtype, self.home(at))

    def _places(self, node: Read, at: Index) -> list[str]:
        """Return the index of an element in its array, which may have been reshaped."""
        places = [self._position(line) for line in at]
        shape, own = node.shape, node.buffer.shape
        if len(shape) == len(own) and all(map(equal_sizes, shape, own)):
            return places
        number = "0L"
        for place, extent in zip(places, shape, strict=True):
            number = f"(({number}) * {self._size(extent)} + ({place}))"
        flat = self._let(number, INTEGER, self.home(at)).text
        found = []
        for axis in reversed(range(len(own))):
            found.append(flat if not axis else f"{flat} % {self._size(own[axis])}")
            if axis:
                flat = self._let(f"{flat} / {self._size(own[axis])}", INTEGER, self.home(at)).text
        return found[::-1]

    def convert(self, value: Held, dtype: np.dtype[Any]) -> Held:
        if value.dtype.kind == "f" and dtype.kind in "iu":
            raise Untraceable("floats to integers beyond their ends depend on the device")
        text = f"({value.text} != 0)" if dtype.kind == "b" else f"({self._c_type(dtype)}){value.text}"
        return self._let(text, dtype, value.home)

    def apply(self, node: Apply, at: Index) -> Held:
        return self.computed(node.function, self.args_at(node, at), node.dtype)

    def computed(self, function: str, values: list[Held], dtype: np.dtype[Any]) -> Held:
        """Return a function of values."""
        nest, texts, last = self.deepest(values), [value.text for value in values], values[-1].dtype
        if function == "where":
            return self._let(f"{texts[0]} ? {texts[1]} : {texts[2]}", dtype, nest)
        known = TEXTS.get(getattr(np, function, None)) or MORE.get(function)
        if known is None or function in LEFT_OUT or len({value.dtype for value in values}) > 1:
            raise Untraceable(f"np.{function} has no OpenCL C")
        pattern = known.floats if last.kind == "f" else known.integers
        if not pattern or (last.kind == "b" and not function.startswith(("logical", "bitwise", "equal", "not_equal"))):
            raise Untraceable(f"np.{function} of {last} has no OpenCL C")
        self.ulp += known.ulp + 0.5 if known.ulp and last.kind == "f" else 0.0
        if known.wraps and last.kind in "iu":  # C says what becomes of unsigned integers only
            kind = self._c_type(last).removeprefix("u")
            texts = [f"((u{kind}){text})" for text in texts]
        result = pattern.format(*texts)
        return self._let(
            f"(({result}) != 0)" if dtype.kind == "b" else f"({self._c_type(dtype)})({result})", dtype, nest
        )

    def gather(self, node: Gather, at: Index) -> Held:
        raise Untraceable("indices in an array are looked at on the host, where this is not")

    def draw(self, node: Draw, at: Index) -> Held:
        if node.kind != "uniform":
            raise Untraceable("normal random numbers are made by functions of NumPy")
        low, high, first, *steps = (self.emit(number, ()).text for number in node.numbers)
        terms = [f"({self._position(line)}) * {step}" for line, step in zip(at, steps, strict=True)]
        nest = self.home(at)
        number = self._let(" + ".join([f"(ulong)({first})", *terms]), WORD, nest).text
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
            found: Held = self.within(home, lambda: self._in_pairs(node, at, home))
        else:
            found = self.within(home, lambda: self._looped(node, at, home))
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
        return self._sum(self._number(0, node.dtype), total)

    def _sum(self, a: Held, b: Held) -> Held:
        return self.computed("add", [a, b], a.dtype)

    def _in_pairs(self, node: Fold, at: Index, home: Nest) -> Held:
        """Return a sum of floats in NumPy's order: halves of halves, and at most 128 elements in eight sums."""
        kind, own = self._c_type(node.dtype), self.name("coexec_s")
        self.say(f"{kind} {own} = 0; long {own}_low[64], {own}_count[64]; {kind} {own}_left[64]; int {own}_state[64];")
        self.say(
            f"int {own}_top = 0; {own}_low[0] = 0; {own}_count[0] = {self._size(node.extent)}; {own}_state[0] = 0;"
        )
        halves = Nest("", (f"while ({own}_top >= 0)", ""), home)
        halves.counts = False
        self.stack.append(halves)
        for line in HALVES:
            self.say(line.format(own=own, kind=kind))
        nest = Nest(self.name("coexec_r"), (f"{own}_at", f"{own}_at + {own}_n"), halves)
        self.stack.append(nest)
        value = self.emit(node.arg, (*at[: node.axis], Line(0, 1, nest.var), *at[node.axis :]))
        for line in EIGHT:
            self.say(line.format(own=own, value=value.text, var=nest.var))
        self.stack.pop()
        halves.lines.append(nest)
        self.say(f"if ({own}_n >= 8 && {own}_n % 8 == 0) {own} = {JOINED.format(own=own)};")
        self.say(f"{own}_top--;")
        self.stack.pop()
        home.lines.append(halves)
        return self._let(f"0 + {own}", node.dtype, home)

    def _looped(self, node: Fold, at: Index, home: Nest) -> Held:
        def element(line: Line) -> Held:
            return self.emit(node.arg, (*at[: node.axis], line, *at[node.axis :]))

        from_first = node.kind not in FIRST
        first = element(Line(0, 1, None)) if from_first else self._number(FIRST[node.kind], node.dtype)
        total, place = self.name("coexec_t"), self.name("coexec_p")
        self.say(f"{self._c_type(first.dtype)} {total} = {first.text};")
        self.say(f"long {place} = 0;")
        nest = Nest(self.name("coexec_r"), ("1L" if from_first else "0L", self._size(node.extent)), home)
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
        return Held(place, INTEGER, False, home) if node.kind.startswith("arg") else now._replace(home=home)
