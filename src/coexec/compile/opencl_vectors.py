"""The same statements for a vector of points along the last axis, so that functions are computed for several elements at once.

Before: compile/opencl_points.py.  After: compile/opencl.py.  Pure text: knows no device.

Compilers for processors find the vectors of + and * themselves, but call exp or log for one element after the other, which
takes three to ten times as long. Values of one float type are vectors, truths are masks as wide as they are, and what is the
same along the last axis stays a number. At an array's end some elements are idle: they repeat the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph import FIRST, STEPS, Apply, Assign, Buffer, Counting, Draw, Fold, Gather, Line, Read, Traced, nodes_of
from .host import equal_sizes
from .opencl_points import BOOL, INTEGER, Points
from .opencl_text import ADDED, EIGHTS, TEXTS
from .trace import FEW
from .walk import Held, Index, Nest
from .zeros import lanes_of_extreme

WIDTHS = {"f4": 8, "f8": 8}
"""Elements of a vector. PoCL 3.0 miscompiles sixteen; eight doubles take 0.6 of the time of twice four where they are a register."""
MASKS = {"f4": "int", "f8": "long"}
"""What comparisons of vectors give: 0, or -1 where true."""
AT, LEFT = (
    "coexec_q",
    "coexec_left",
)  # where a vector begins along the last axis, and how many of its elements there are
TRUTHS = {
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_not": "~{0}",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "equal": "~({0} ^ {1})",
    "not_equal": "{0} ^ {1}",
}
"""Functions of masks."""


class NotVectors(Exception):
    """Something is not of one float type, or not computed element by element."""


def vector_type(stores: Sequence[Assign]) -> np.dtype[Any] | None:
    """Return the floats that are computed in vectors, or None if nothing gains by it or there are several types of them."""
    nodes = list(nodes_of(*(store.value for store in stores)))
    found = {node.dtype for node in nodes if node.dtype.kind == "f"}
    if len(found) != 1 or any(isinstance(node, Gather | Draw | Counting) for node in nodes):
        return None
    gains = any(isinstance(node, Fold) or (isinstance(node, Apply) and _is_wide(node)) for node in nodes)
    return found.pop() if gains else None


def _is_wide(node: Apply) -> bool:
    known = TEXTS.get(getattr(np, node.function, None))
    return known is not None and known.wide and node.dtype.kind == "f"


class Vectors(Points):
    """Writes the statements of a vector of points."""

    def __init__(self, traced: Traced, dtype: np.dtype[Any], *, name_numbers: bool) -> None:
        super().__init__(traced, name_numbers=name_numbers)
        self._float, self._width = dtype, WIDTHS[dtype.str[1:]]
        self._mask = f"{MASKS[dtype.str[1:]]}{self._width}"

    def vectors(self, stores: Sequence[Assign], space: str) -> None:
        """Write all stores; raise `NotVectors` where only one element after the other will do."""
        self.number_stores(list(stores))
        last = len(stores[0].value.shape) - 1
        self.check_doubles(stores)
        self.say(f"const long {AT} = i{last} * {self._width}; if ({AT} >= {space}_n{last}) return;")
        self.say(f"const int {LEFT} = min({self._width}L, {space}_n{last} - {AT});")
        for axis in range(last):
            self.stack.append(Nest(f"i{axis}", ("", ""), self.stack[-1]))
        self.stack.append(Nest(AT, ("", ""), self.stack[-1]))
        self._shared = self.stack[:-1]
        self.store_all(stores)

    def rows(self, stores: Sequence[Assign]) -> None:
        """Write all stores for a row of points, eight after eight; raise `NotVectors` where only one by one will do."""
        self.number_stores(list(stores))
        shape = stores[0].value.shape
        self.check_doubles(stores)
        for axis in range(len(shape) - 1):
            self.stack.append(Nest(f"i{axis}", ("", ""), self.stack[-1]))
        self._shared = self.stack[:-1]
        self._along("0L", self.size(shape[-1]))
        self.store_all(stores)
        row = self.stack.pop()
        self.stack[-1].lines.append(row)

    def _along(self, low: str, high: str) -> None:
        """Begin a loop over vectors."""
        self.stack.append(Nest(AT, (low, high), self.stack[-1], step=self._width))
        self.say(f"const int {LEFT} = min({self._width}L, {high} - {AT});")

    # Reductions ---------------------------------------------------------------------------------------------------------

    def fold(self, node: Fold, at: Index) -> Held:
        last = all(equal_sizes(extent, 1) for extent in node.arg.shape[node.axis + 1 :])
        short = isinstance(node.extent, int) and node.extent <= FEW
        in_a_row = last and node.dtype == self._float and not node.kind.startswith("arg")
        home = self.home(at)
        if any(line.axis == AT for line in at):
            if in_a_row and not short and not (node.free and node.kind == "sum"):
                raise NotVectors
            return super().fold(node, at)
        if short or not in_a_row or home in self._shared:
            return super().fold(node, at)
        found: Held
        if node.kind == "sum":
            found = self.within(home, lambda: self.in_pairs(node, at, home))
            return found
        if node.kind in ("max", "min"):
            found = self.within(home, lambda: self._extreme(node, at, home))
            return found
        return super().fold(node, at)

    def _extreme(self, node: Fold, at: Index, home: Nest) -> Held:
        """Return the largest or smallest element of a row, NaN if there is one."""
        kind, mask, own, total = self.c_type(node.dtype), self._mask, self.name("coexec_e"), self.name("coexec_t")
        sign, worst = (">", "-INFINITY") if node.kind == "max" else ("<", "INFINITY")
        self.say(f"{kind}8 {own} = ({kind}8)({worst}); {mask} {own}_odd = 0;")
        self._along("0L", self.size(node.extent))
        value = self._spread(self.emit(node.arg, (*at[: node.axis], Line(0, 1, AT), *at[node.axis :])))
        self.say(f"{own} = {own} {sign} {value} ? {own} : {value}; {own}_odd |= {value} != {value};")
        nest = self.stack.pop()
        home.lines.append(nest)
        self.say(f"{kind} {own}_some[8]; vstore8({own}, 0, {own}_some); {kind} {total} = {own}_some[0];")
        one = f"{own}_some[e]"
        self.say(f"for (int e = 1; e < 8; e++) {total} = {total} {sign} {one} ? {total} : {one};")
        self.say(f"if (any({own}_odd)) {total} = NAN;")
        self.settle_zero(node, at, home, total)
        return Held(total, node.dtype, False, home)

    def looped(self, node: Fold, at: Index, home: Nest, *, in_a_row: bool) -> Held:
        if not any(line.axis == AT for line in at):
            return super().looped(node, at, home, in_a_row=in_a_row)
        if (
            in_a_row
            and node.kind in ("max", "min")
            and node.extent > len(lanes_of_extreme(STEPS[node.kind], node.dtype.str))
        ):
            raise NotVectors

        def element(line: Line) -> Held:
            return self.emit(node.arg, (*at[: node.axis], line, *at[node.axis :]))

        from_first, places = node.kind not in FIRST, node.kind.startswith("arg")
        first = element(Line(0, 1, None)) if from_first else self.number(FIRST[node.kind], node.dtype)
        if first.dtype not in (self._float, BOOL) or (places and first.dtype == BOOL):
            raise NotVectors
        total, place = self.name("coexec_t"), self.name("coexec_p")
        self.say(f"{self._type(first.dtype)} {total} = {self._spread(first)};")
        nest = Nest(self.name("coexec_r"), ("1L" if from_first else "0L", self.size(node.extent)), home)
        self.stack.append(nest)
        now = Held(total, first.dtype, True, nest)
        value = self._spread(element(Line(0, 1, nest.var)))
        if places:
            sign = ">" if node.kind == "argmax" else "<"
            better = f"(({value} {sign} {total}) | ({value} != {value})) & ({total} == {total})"
            self.say(f"const {self._mask} {place}_new = {better};")
            self.say(f"{total} = {place}_new ? {value} : {total};")
            self.say(f"{place} = {place}_new ? ({self._mask})({nest.var}) : {place};")
        else:
            given = Held(value, first.dtype, True, nest)
            self.say(f"{total} = {self.computed(STEPS[node.kind], [now, given], node.dtype).text};")
        self.stack.pop()
        if places:
            self.say(f"{self._mask} {place} = 0;")
        home.lines.append(nest)
        if places:
            return self._vector(f"convert_long{self._width}({place})", INTEGER, home)
        return now._replace(home=home)

    def eight_sums(self, node: Fold, at: Index, own: str) -> None:
        kind, value = self.c_type(node.dtype), self.name("coexec_v")
        self.say(f"{kind}8 {own}_v = 0;")
        self._along(f"{own}_at", f"({own}_at + {own}_n)")
        given = self._spread(self.emit(node.arg, (*at[: node.axis], Line(0, 1, AT), *at[node.axis :])))
        self.say(f"const {kind}8 {value} = {given}; {kind} {value}_some[8]; vstore8({value}, 0, {value}_some);")
        for line in EIGHTS:
            self.say(line.format(own=own, value=value, at=AT, left=LEFT))
        nest = self.stack.pop()
        self.stack[-1].lines.append(nest)
        self.say(f"if ({own}_n >= 8 && {own}_n % 8 == 0) {own} = {ADDED.format(own=own)};")

    def _vector(self, text: str, dtype: np.dtype[Any], nest: Nest) -> Held:
        """Give a vector a name."""
        name = self.name("coexec_v")
        self.say(f"const {self._type(dtype)} {name} = {text};", nest)
        return Held(name, dtype, True, nest)

    def _type(self, dtype: np.dtype[Any]) -> str:
        return self._mask if dtype == BOOL else f"{self.c_type(dtype)}{self._width}"

    def _spread(self, value: Held) -> str:
        """Return a value as a vector."""
        if value.vector:
            return value.text
        if value.dtype == BOOL:
            return f"(({self._mask})({value.text} ? -1 : 0))"
        if value.dtype != self._float:
            raise NotVectors
        return f"(({self._type(value.dtype)})({value.text}))"

    # Memory -------------------------------------------------------------------------------------------------------------

    def load(self, node: Read, at: Index) -> Held:
        moving = [axis for axis, line in enumerate(at) if line.axis == AT]
        if not moving:
            return super().load(node, at)
        own, last = node.buffer.shape, len(at) - 1
        if len(moving) > 1 or len(own) != len(at) or not all(map(equal_sizes, node.shape, own)):
            raise NotVectors
        name, nest, width = self.name("coexec_x"), self.home(at), self._width
        if moving != [last] and nest.var != AT:  # elements from all over, for each turn of a reduction
            raise NotVectors
        kind = self.c_type(node.dtype)
        single = self._element(node.buffer, at, f"({AT} + min(e, {LEFT} - 1))")
        one_by_one = (
            f"{{ {kind} some[{width}]; for (int e = 0; e < {width}; e++) some[e] = {single}; "
            f"{name} = vload{width}(0, some); }}"
        )
        if moving == [last] and at[last].step == 1:
            whole = f"{LEFT} == {width} && {node.buffer.name}_stride{last} == 1"
            first = self._element(node.buffer, at, AT)
            one_by_one = f"if ({whole}) {name} = vload{width}(0, &{first}); else {one_by_one}"
        else:
            each = ", ".join(self._element(node.buffer, at, f"({AT} + {number})") for number in range(width))
            one_by_one = f"if ({LEFT} == {width}) {name} = ({kind}{width})({each}); else {one_by_one}"
        self.say(f"{kind}{width} {name}; {one_by_one}", nest)
        if node.dtype == BOOL:
            return self._vector(f"convert_{self._mask}({name}) != 0", BOOL, nest)
        return Held(name, node.dtype, True, nest)

    def _element(self, buffer: Buffer, at: Index, place: str) -> str:
        """Return an element of an array whose index along the last axis is `place`."""
        moved = [line._replace(axis=place) if line.axis == AT else line for line in at]
        return f"{buffer.name}({', '.join(map(self.position, moved))})"

    def put(self, buffer: Buffer, at: Index, value: Held) -> None:
        width, moving = self._width, [axis for axis, line in enumerate(at) if line.axis == AT]
        if len(moving) != 1 or at[moving[0]].step != 1 or value.dtype.kind not in "fiub":
            raise NotVectors
        text = self._spread(value)
        if value.dtype == BOOL:
            text = f"convert_uchar{width}({text} & 1)"
        first, single = (self._element(buffer, at, place) for place in (AT, f"({AT} + e)"))
        one_by_one = (
            f"{{ {self.c_type(value.dtype)} some[{width}]; vstore{width}({text}, 0, some); "
            f"for (int e = 0; e < {LEFT}; e++) {single} = some[e]; }}"
        )
        last = len(at) - 1
        if moving != [last]:
            self.say(one_by_one)
            return
        self.say(f"if ({LEFT} == {width} && {buffer.name}_stride{last} == 1) vstore{width}({text}, 0, &{first});")
        self.say(f"else {one_by_one}")

    # Values -------------------------------------------------------------------------------------------------------------

    def convert(self, value: Held, dtype: np.dtype[Any]) -> Held:
        if not value.vector:
            return super().convert(value, dtype)
        if value.dtype == BOOL and dtype == self._float:
            one, zero = (self._spread(self.number(n, dtype)) for n in (1, 0))
            return self._vector(f"{value.text} ? {one} : {zero}", dtype, value.home)
        if value.dtype.kind in "iu" and dtype == self._float:
            return self._vector(f"convert_{self._type(dtype)}({value.text})", dtype, value.home)
        if value.dtype.kind in "iu" and dtype.kind in "iu":
            return self._vector(f"convert_{self._type(dtype)}({value.text})", dtype, value.home)
        if dtype == BOOL and value.dtype != BOOL:
            zero = f"({self.c_type(value.dtype)})0"
            return self._vector(f"convert_{self._mask}({value.text} != {zero})", dtype, value.home)
        raise NotVectors

    def computed(self, function: str, values: list[Held], dtype: np.dtype[Any]) -> Held:
        if not any(value.vector for value in values):
            return super().computed(function, values, dtype)
        if dtype not in (self._float, BOOL):
            raise NotVectors
        nest, texts = self.deepest(values), [self._spread(value) for value in values]
        kinds = {value.dtype for value in values}
        if function == "where":
            chosen = "{0} ? {1} : {2}" if dtype != BOOL else "({0} & {1}) | (~{0} & {2})"
            return self._vector(chosen.format(*texts), dtype, nest)
        if kinds == {BOOL}:
            if function not in TRUTHS:
                raise NotVectors
            return self._vector(TRUTHS[function].format(*texts), dtype, nest)
        if kinds != {self._float}:
            raise NotVectors
        known, pattern = self.known(function, values)
        self.ulp += known.ulp + 0.5 if known.ulp else 0.0
        result = pattern.format(*texts)
        if known.narrow and dtype.itemsize == 8:
            halves = [pattern.format(*(f"{text}.{half}" for text in texts)) for half in ("lo", "hi")]
            result = f"({self._type(dtype)})({halves[0]}, {halves[1]})"
        if known.calm:
            return self._calm(result, pattern, texts[0], known.calm, nest)
        return self._vector(result, dtype, nest)

    def _calm(self, result: str, pattern: str, given: str, calm: float, nest: Nest) -> Held:
        """Return a function that is computed for one element after the other where one of them is large."""
        name, width, kind = self.name("coexec_v"), self._width, self.c_type(self._float)
        self.say(f"{kind}{width} {name} = {result};", nest)
        self.say(
            f"if (!all(fabs({given}) <= ({kind}){calm:.1f})) {{ {kind} some[{width}]; vstore{width}({given}, 0, some); "
            f"for (int e = 0; e < {width}; e++) some[e] = {pattern.format('some[e]')}; {name} = vload{width}(0, some); }}",
            nest,
        )
        return Held(name, self._float, True, nest)
