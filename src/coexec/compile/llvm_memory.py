"""LLVM's language for memory: what the host passes, addresses, loads and stores of elements and vectors, and loops.

Before: compile/walk.py, compile/llvm_text.py.  After: compile/llvm_calls.py.  Pure text: compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .graph import Assign, Buffer, Expr, Gather, Line, Read, Shape, View, through
from .host import Host, Size, equal_sizes, size_key
from .llvm_text import Inline, scalar_type, type_text
from .sizes import product
from .streaming import LINE
from .walk import Held, Index, Nest, Strip, Walk

NARROW = 2  # bytes: vectors of narrower elements would have as many lanes as LLVM takes long to compile
STRIP = 1024  # elements that NumPy's own loops are given at once: a few arrays of them stay in the first cache


class Passed(NamedTuple):
    """What the host passes: "pointer", "stride", "size", "scalar" or "scratch"; of what; and its LLVM type."""

    kind: str
    of: Any
    llvm_type: str


class LlvmMemory(Walk):
    """Writes loops, and reaches memory."""

    def __init__(self, register: int) -> None:
        super().__init__()
        self._register = register  # bytes of a vector register
        self.lanes = 1
        self.arguments: dict[Any, tuple[str, Passed]] = {}  # key -> name, what
        self._slots: list[str] = []  # memory of single values, made on entry
        self.inline = Inline()
        self.helpers: dict[str, str] = {}  # functions that the text calls, by name
        self.storing: Expr | None = None  # the value that the present store writes
        self.flags = False
        self.streaming: Assign | None = None  # the store of the present loops that goes past the caches

    # What the host passes -----------------------------------------------------------------------------------------------

    def argument(self, kind: str, of: Any, key: Any, llvm_type: str = "i64") -> str:
        """Return the name of an argument, asked for now or before."""
        found = self.arguments.get((kind, key))
        if found is None:
            name = f"%a{len(self.arguments)}"
            found = self.arguments[kind, key] = (name, Passed(kind, of, llvm_type))
        return found[0]

    def size(self, size: Size) -> str:
        """Return a size as an operand."""
        return self.argument("size", size, size_key(size)) if isinstance(size, Host) else str(size)

    def scratch(self, elements: Size, dtype: np.dtype[Any]) -> str:
        """Return the address of memory of the compiled form's own."""
        return self.argument("scratch", (elements, dtype), len(self.arguments), "ptr")

    def slot(self, llvm_type: str) -> str:
        """Return the address of one value that can be changed."""
        name = f"%{self.name('m')}"
        self._slots.append(f"{name} = alloca {llvm_type}, align 64")
        return name

    def put(self, text: str, nest: Nest | None = None) -> str:
        """Add an instruction and return the name of its result."""
        name = f"%{self.name()}"
        self.say(f"{name} = {text}", nest)
        return name

    def lanes_of(self, nodes: Sequence[Expr]) -> int:
        """Return how many elements a vector of the widest of these types has."""
        widest = max(node.dtype.itemsize for node in nodes)
        return max(1, self._register // max(widest, NARROW))

    def _putter(self, nest: Nest) -> Callable[[str], str]:
        return lambda text: self.put(text, nest)

    # Loops --------------------------------------------------------------------------------------------------------------

    def loop(self, low: str, high: str, body: Callable[[str], None], **options: Any) -> None:
        """Write a loop around a body."""
        nest = Nest(
            self.name("i"), (low, high), self.stack[-1], step=options.get("step", 1), lanes=options.get("lanes", 1)
        )
        nest.counts = options.get("counts", True)
        nest.strip = options.get("strip")
        self.stack.append(nest)
        body(nest.var)
        self.stack.pop()
        self.stack[-1].lines.append(nest)

    def row(self, size: Size, body: Callable[[str], None], *, strips: bool, first: str = "0") -> None:
        """Write the loops along a row, or along strips of it: whole vectors, then single elements.

        Elements before `first` are written one by one, too, for vectors to begin there.
        """
        high = self.size(size)
        if not strips:
            if first != "0":
                self.loop("0", first, body, strip=Strip("0", high, size))
            self.vectors(Strip(first, high, size), body)
            return

        def strip(var: str) -> None:
            end = self.put(f"add nsw i64 %{var}, {STRIP}")
            inside = self.put(f"icmp slt i64 {end}, {high}")
            end = self.put(f"select i1 {inside}, i64 {end}, i64 {high}")
            self.vectors(Strip(f"%{var}", end, STRIP), body)

        self.loop("0", high, strip, step=STRIP, counts=False)

    def vectors(self, strip: Strip, body: Callable[[str], None]) -> None:
        """Write the loops along a strip."""
        low, high, _ = strip
        middle = low
        if self.lanes > 1:
            length = high if low == "0" else self.put(f"sub nsw i64 {high}, {low}")
            whole = self.put(f"and i64 {length}, {-self.lanes}")
            middle = whole if low == "0" else self.put(f"add nsw i64 {low}, {whole}")
            self.loop(low, middle, body, step=self.lanes, lanes=self.lanes, strip=strip)
        self.loop(middle, high, body, strip=strip)

    # Memory -----------------------------------------------------------------------------------------------------------

    def _strides(self, buffer: Buffer, shape: Shape) -> list[str]:
        """Return how many elements lie between neighbours along each axis."""
        own = len(shape) == len(buffer.shape) and all(map(equal_sizes, shape, buffer.shape))
        found = []
        for axis in range(len(shape)):
            if buffer.parameter and own and axis < len(shape) - 1:
                found.append(self.argument("stride", (buffer.name, axis), (buffer.name, axis)))
            else:
                found.append(self.size(product(shape[axis + 1 :])) if axis < len(shape) - 1 else "1")
        return found

    def _base(self, buffer: Buffer) -> str:
        if buffer.parameter:
            return self.argument("pointer", buffer.name, buffer.name, "ptr")
        # By identity: two temporaries may have one name, and the first one's memory is too small for the other.
        return self.argument("scratch", (product(buffer.shape), buffer.dtype), ("of", id(buffer)), "ptr")

    def position(self, line: Line) -> str:
        """Return an index as a number, in the loop that knows it."""
        nest = self.home((line,))
        start = self.size(line.start)
        if line.axis is None:
            return start
        key = "position", line.key
        if key not in nest.memo:
            text = f"%{line.axis}"
            text = text if line.step == 1 else self.put(f"mul nsw i64 {text}, {line.step}", nest)
            nest.memo[key] = text if start == "0" else self.put(f"add nsw i64 {text}, {start}", nest)
        found: str = nest.memo[key]
        return found

    def address(self, buffer: Buffer, shape: Shape, at: Index) -> str:
        """Return where an element lies (the first one of a vector)."""
        offset, known = "0", self.root
        strides = self._strides(buffer, shape)
        for line, stride in sorted(zip(at, strides, strict=True), key=lambda pair: self._depth(pair[0])):
            nest = max(known, self.home((line,)), key=self.stack.index)
            part = self.position(line)
            if part == "0":
                continue
            key = "offset", offset, part, stride
            if key not in nest.memo:
                part = part if stride == "1" else self.put(f"mul nsw i64 {part}, {stride}", nest)
                nest.memo[key] = part if offset == "0" else self.put(f"add nsw i64 {offset}, {part}", nest)
            offset, known = nest.memo[key], nest
        element = scalar_type(buffer.dtype, memory=True)
        return self.put(f"getelementptr inbounds {element}, ptr {self._base(buffer)}, i64 {offset}", known)

    def _depth(self, line: Line) -> int:
        return self.stack.index(self.home((line,)))

    def until_line(self, where: str, dtype: np.dtype[Any], size: Size) -> str:
        """Return how many elements of a row that begins at an address lie before a line of memory does."""
        start = self.put(f"ptrtoint ptr {where} to i64")
        left = self.put(f"and i64 {self.put(f'sub i64 0, {start}')}, {LINE - 1}")
        count = self.put(f"lshr i64 {left}, {dtype.itemsize.bit_length() - 1}")
        short = self.put(f"icmp slt i64 {count}, {self.size(size)}")
        return self.put(f"select i1 {short}, i64 {count}, i64 {self.size(size)}")

    def _lane(self, at: Index) -> Nest | None:
        """Return the loop whose vectors an index goes along."""
        names = {line.axis for line in at}
        return next((nest for nest in self.stack if nest.lanes > 1 and nest.var in names), None)

    def _lane_stride(self, buffer: Buffer, shape: Shape, at: Index, nest: Nest) -> str:
        """Return how many elements lie between neighbours of a vector."""
        total = "0"
        for line, stride in zip(at, self._strides(buffer, shape), strict=True):
            if line.axis == nest.var:
                part = str(line.step * int(stride)) if stride.isdecimal() else stride
                if not stride.isdecimal() and line.step != 1:
                    part = self.put(f"mul nsw i64 {stride}, {line.step}", self.root)
                total = part if total == "0" else self.put(f"add nsw i64 {total}, {part}", self.root)
        return total

    def load(self, node: Read, at: Index) -> Held:
        nest = self.home(at)
        lane = self._lane(at)
        where = self.address(node.buffer, node.shape, at)
        stride = "1" if lane is None else self._lane_stride(node.buffer, node.shape, at, lane)
        return self.read(where, node.dtype, nest, self.lanes if lane else 1, stride)

    def gather(self, node: Gather, at: Index) -> Held:
        chosen = len(node.index.shape)
        number = self.emit(node.index, at[node.axis : node.axis + chosen])
        index = (*at[: node.axis], Line(0, 1, None), *at[node.axis + chosen :])
        read, along = node.arg, node.axis
        step = 1
        if isinstance(read, View):
            along = next(axis for axis, line in enumerate(read.axes) if line.axis == node.axis)
            step, index, read = read.axes[along].step, through(read.axes, index), read.arg
        assert isinstance(read, Read)
        nest = self.deepest([number, Held("", node.dtype, False, self.home(index))])
        lane, stride = self._lane(index), self._strides(read.buffer, read.shape)[along]
        where = self.address(read.buffer, read.shape, index)
        apart = "0" if lane is None else self._lane_stride(read.buffer, read.shape, index, lane)
        stride = stride if step == 1 else self.put(f"mul nsw i64 {stride}, {step}", self.root)
        if not number.vector:
            offset = self.put(f"mul nsw i64 {number.text}, {stride}", nest)
            element = scalar_type(node.dtype, memory=True)
            where = self.put(f"getelementptr inbounds {element}, ptr {where}, i64 {offset}", nest)
            return self.read(where, node.dtype, nest, 1 if lane is None else self.lanes, apart)
        offsets = []
        for number_of_lane in range(self.lanes):
            one = self.put(f"extractelement <{self.lanes} x i64> {number.text}, i64 {number_of_lane}", nest)
            one = self.put(f"mul nsw i64 {one}, {stride}", nest)
            more = self.put(f"mul nsw i64 {apart}, {number_of_lane}", nest)
            offsets.append(self.put(f"add nsw i64 {one}, {more}", nest))
        return self._as_read(self._collected(where, node.dtype, nest, offsets), node.dtype, nest, self.lanes)

    def read(self, where: str, dtype: np.dtype[Any], nest: Nest, lanes: int, stride: str = "1") -> Held:
        """Return what lies at an address, as a vector if there are lanes."""
        kind = type_text(dtype, lanes, memory=True)
        if stride == "1" or lanes == 1:
            text = self.put(f"load {kind}, ptr {where}, align {dtype.itemsize}", nest)
        else:
            text = self._gathered(where, dtype, nest, stride)
        return self._as_read(text, dtype, nest, lanes)

    def _as_read(self, text: str, dtype: np.dtype[Any], nest: Nest, lanes: int) -> Held:
        """Return what was loaded as a value: booleans are bytes in memory."""
        if dtype.kind == "b":
            zero = "0" if lanes == 1 else "zeroinitializer"
            text = self.put(f"icmp ne {type_text(dtype, lanes, memory=True)} {text}, {zero}", nest)
        return Held(text, dtype, lanes > 1, nest)

    def _gathered(self, where: str, dtype: np.dtype[Any], nest: Nest, stride: str) -> str:
        offsets = [self.put(f"mul nsw i64 {stride}, {lane}", nest) for lane in range(self.lanes)]
        return self._collected(where, dtype, nest, offsets)

    def _collected(self, where: str, dtype: np.dtype[Any], nest: Nest, offsets: Sequence[str]) -> str:
        """Return a vector of elements that lie so many elements from an address."""
        one, kind = scalar_type(dtype, memory=True), type_text(dtype, self.lanes, memory=True)
        text = "poison"
        for lane, offset in enumerate(offsets):
            place = self.put(f"getelementptr inbounds {one}, ptr {where}, i64 {offset}", nest)
            element = self.put(f"load {one}, ptr {place}, align {dtype.itemsize}", nest)
            text = self.put(f"insertelement {kind} {text}, {one} {element}, i64 {lane}", nest)
        return text

    def store(self, store: Assign, index: Index) -> None:
        """Write a value into its buffer."""
        at = through(store.axes, index)
        self.storing = store.value
        value = self.emit(store.value, index)
        lane = self._lane(index)
        value = self.lifted(value) if lane else value
        where = self.address(store.buffer, store.buffer.shape, at)
        stride = "1" if lane is None else self._lane_stride(store.buffer, store.buffer.shape, at, lane)
        self.write(where, value, stride, past_caches=store is self.streaming and lane is not None)

    def write(self, where: str, value: Held, stride: str = "1", *, past_caches: bool = False) -> None:
        """Write a value at an address in the present loop; vectors past the caches begin at multiples of their size."""
        lanes, dtype, text = self.lanes if value.vector else 1, value.dtype, value.text
        kind = type_text(dtype, lanes, memory=True)
        if dtype.kind == "b":
            text = self.put(f"zext {type_text(dtype, lanes)} {text} to {kind}")
        if past_caches and stride == "1":
            self.say(f"store {kind} {text}, ptr {where}, align {lanes * dtype.itemsize}, !nontemporal !0")
            return
        if stride == "1" or lanes == 1:
            self.say(f"store {kind} {text}, ptr {where}, align {dtype.itemsize}")
            return
        one = scalar_type(dtype, memory=True)
        for lane in range(lanes):
            offset = self.put(f"mul nsw i64 {stride}, {lane}")
            place = self.put(f"getelementptr inbounds {one}, ptr {where}, i64 {offset}")
            element = self.put(f"extractelement {kind} {text}, i64 {lane}")
            self.say(f"store {one} {element}, ptr {place}, align {dtype.itemsize}")

    def lifted(self, value: Held) -> Held:
        """Return a value in every lane of a vector."""
        if value.vector:
            return value
        key = "lifted", value.text, value.dtype.str, self.lanes
        if key not in value.home.memo:
            one, kind = type_text(value.dtype, 1), type_text(value.dtype, self.lanes)
            first = self.put(f"insertelement {kind} poison, {one} {value.text}, i64 0", value.home)
            zeros = f"<{self.lanes} x i32> zeroinitializer"
            text = self.put(f"shufflevector {kind} {first}, {kind} poison, {zeros}", value.home)
            value.home.memo[key] = Held(text, value.dtype, True, value.home)
        found: Held = value.home.memo[key]
        return found
