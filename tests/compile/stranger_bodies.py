"""Random bodies of the kinds that strangers write: many types, layouts and sizes, shifts in place, masks, blocks, empty arrays.

Beside `random_bodies`, which has fewer kinds of each: every operator and most ufuncs with dtype=, casting= and where=; reductions by
tuples of axes, with keepdims; temporaries in parts; loops over rows; arguments that are parts, turned, repeated or unaligned.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import numpy as np

TYPES = ("f8", "f8", "f8", "f4", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
SPECIAL = (
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    1e-310,
    5e-324,
    1e308,
    -1e308,
    0.5,
    2.0**31,
    2.0**63,
    -(2.0**63),
    1e-40,
)
OPERATORS = ["+", "-", "*", "/", "+", "-", "*", "//", "%", "**", "&", "|", "^", "<<", ">>", "<", ">=", "!=", "==", "<="]
FLOATING = ["+", "-", "*", "/", "+", "-", "*", "/", "%", "//", "<", ">=", "!=", "==", "<="]
ONE = [
    "sqrt",
    "exp",
    "abs",
    "negative",
    "sin",
    "floor",
    "ceil",
    "trunc",
    "isnan",
    "isfinite",
    "square",
    "log",
    "log1p",
    "expm1",
    "tanh",
    "rint",
    "sign",
    "cbrt",
    "invert",
    "logical_not",
    "reciprocal",
    "positive",
    "exp2",
    "log2",
    "isinf",
    "fabs",
    "cos",
    "arctan",
    "sinh",
]
TWO = [
    "maximum",
    "minimum",
    "fmod",
    "hypot",
    "arctan2",
    "logical_and",
    "logical_xor",
    "remainder",
    "floor_divide",
    "true_divide",
    "bitwise_or",
    "left_shift",
    "right_shift",
    "power",
    "divide",
    "logaddexp",
    "gcd",
    "greater",
    "equal",
    "subtract",
    "add",
    "multiply",
]
BITWISE = {"&", "|", "^", "<<", ">>", "bitwise_or", "left_shift", "right_shift", "gcd", "invert"}
SHAPED = ("v", "c", "e", "z", "v[None]", "c[:, :1]", "c * v", "e[0]", "c[::-1]", "v[::-1]")
NEAR = tuple(f"h[{rows}, {columns}]" for rows in ("1:-1", "2:", ":-2") for columns in ("1:-1", "2:", ":-2"))
PARTS = (
    "x[::-1]", "y[:, ::-1]", "x[:1]", "y[-1]", "x[0]", "y[:, :1]", "y[:, -1:]", "x[-1:, :]", "y[:, 0][:, None]", "x[..., -1:]",
    "x[len(x) - 1]", "y.T.T", "q[:, :, 0]", "q[..., 1]", "q.T[2].T", "q.sum(axis=2)", "q.max(axis=-1)", "q[:, :, ::-1][..., 0]",
    "q.argmax(axis=2)", "(q * q).sum(axis=-1)", "np.broadcast_to(v, x.shape)",
)  # fmt: skip
NUMBERS = (
    "s", "k", "f", "g", "0.5", "2", "-1", "True", "3", "1e-3", "0", "np.float32(0.1)", "np.int8(3)", "np.uint8(200)", "x.shape[0]",
    "x.size", "(s - 1)", "-s", "k % 3", "max(x.shape)", "len(y)", "(1 if k > 2 else 0)", "x.shape[1] // 2", "2 ** 40", "-7", "255",
    "np.bool_(True)",
)  # fmt: skip
COUNTS = (
    "np.arange(x.shape[1])",
    "np.arange(x.shape[0])[:, None]",
    "np.arange(x.shape[1], dtype=np.float32)",
    "(np.arange(x.shape[0])[:, None] < np.arange(x.shape[1]))",
    "x[i]",
    "v[j]",
    "y[:, j]",
    "c[i]",
    "np.take(v, j)",
)
CASTS = ("np.float64", "np.float32", "np.int64", "bool", "np.int32", "x.dtype", "float")
WRITES = (
    "{w}[1:] += {w}[:-1]", "{w}[:-1] -= {w}[1:]", "{w}[:, 1:] *= {w}[:, :-1]", "{w}[:, ::2] += 1", "{w}[...] = {w}[::-1]",
    "{w}[1:-1, 1:-1] = {w}[2:, 1:-1] + {w}[:-2, 1:-1] + {w}[1:-1, 2:]", "{w}[:] = {w}[:, ::-1]", "{w}[0], {w}[1] = {w}[1], {w}[0]",
    "{w}[0], {w}[-1] = {w}[-1].copy(), {w}[0].copy()", "{w}[0, 0] = y[-1, -1]", "{w}[0] = {w}[-1]", "{w}[:, 0] = {w}[:, -1]",
    "{w}[1:, 1:] = {w}[:-1, :-1]", "{w}[:, -1] = 0", "{w}.T[...] = {w}.T * 2", "{w}[::-1][0] = 7", "{w}[1:2] = {w}.sum(axis=0)",
    "{w} -= {w}[0]", "{w} *= {w}", "{w}[len({w}) // 2:] = 3", "{w}.fill(s)", "{w}[y > 2] = 0", "{w}[~(y > 0) & (x < 2)] = k",
    "wide = np.broadcast_to({w}[:1], {w}.shape); {w} += 1; out[...] = wide", "row = {w}[0]; {w}[0] = 3; {w}[1] = row",
    "one = {w}[0, 0]; {w}[0, 0] = 3; {w}[1, 1] = one", "np.copyto({w}, y, casting='unsafe')", "part = {w}[1:]; part += part[::-1]",
    "out[...] = np.stack([x[:, 0], y[:, 0]], axis=1).sum(axis=1)[:, None]",
)  # fmt: skip
TURNS = (
    "{w}[a] += a", "{w} += y * a", "{w}[a] = x[len(x) - 1 - a]", "{w}[a:] += 1", "{w}[...] = {w} * 0.5 + y", "{w}[a, :] = y[a] + {w}[a - 1]",
)  # fmt: skip
CONDITIONS = (
    "s > 0.5",
    "k % 2",
    "x.shape[0] > 4",
    "x.dtype == y.dtype",
    "len(x) % 2 == 0",
    "g",
    "x.shape[0] > x.shape[1]",
)
NAMES = ("x", "y", "h", "v", "c", "e", "z", "q", "row", "col", "tot", "out")
CHANGED = ("x", "row", "col", "tot", "out")


class Writer:
    """Draws the text of one body: of floats, of integers, or of whatever types."""

    def __init__(self, random: Random, kind: str) -> None:
        self.random, self.kind = random, kind
        self.values = ["x", "y", "out"]
        self.lines: list[str] = []

    def pick(self, choices: Any) -> str:
        """Return one of some texts; bits of floats are no business of bodies of floats."""
        kept = [text for text in choices if self.kind != "floats" or text not in BITWISE]
        return str(self.random.choice(kept))

    def leaf(self) -> str:
        draw = self.random.random()
        for below, choices in ((0.42, self.values), (0.52, SHAPED), (0.66, NEAR), (0.76, PARTS), (0.8, COUNTS)):
            if draw < below:
                return self.pick(choices)
        return self.pick(NUMBERS)

    def operator(self) -> str:
        return self.pick(FLOATING if self.kind == "floats" else OPERATORS)

    def array(self, depth: int) -> str:
        """Return an expression that is surely an array of the whole shape."""
        mine, deep = self.pick(self.values), self.expression(depth)
        return self.pick(
            (
                f"({deep} {self.pick('+-*')} {mine})",
                f"({mine} {self.operator()} {deep})",
                f"np.where({mine} {self.pick(('>', '==', '<='))} {self.leaf()}, {deep}, {mine})",
            )
        )

    def expression(self, depth: int) -> str:
        if depth <= 0:
            return self.leaf()
        draw, deep = self.random.random(), self.expression(depth - 1)
        if draw < 0.36:
            return f"({deep} {self.operator()} {self.expression(depth - 1)})"
        if draw < 0.46:
            return f"np.{self.pick(TWO)}({deep}, {self.expression(depth - 1)})"
        if draw < 0.6:
            return f"np.{self.pick(ONE)}({deep})"
        if draw < 0.66:
            return f"np.where({deep} {self.pick('<>')} {self.leaf()}, np.where({self.array(0)} > {self.leaf()}, {deep}, {self.leaf()}), {deep})"
        if draw < 0.71:
            return f"({self.array(depth - 1)}).astype({self.pick(CASTS)})"
        if draw < 0.75:
            return f"(~({self.array(depth - 1)} > {self.leaf()}) {self.pick('&|^+*')} ({deep} < {self.leaf()}))"
        if draw < 0.79:
            return f"np.{self.pick(('add', 'multiply', 'divide'))}({self.array(depth - 1)}, {deep}, dtype=np.float64)"
        if draw < 0.94:
            return self.fold(depth)
        return (
            f"np.clip({self.array(depth - 1)}, {self.pick(('0', '-1.0', 's'))}, {self.pick(('1', '2.5', 'k', '100'))})"
        )

    def fold(self, depth: int) -> str:
        inner, kind = (
            self.array(depth - 1),
            self.pick(("sum", "max", "min", "mean", "any", "all", "prod", "sum", "max")),
        )
        place = self.pick(("argmin", "argmax"))
        return self.pick(
            (
                f"({inner}).{kind}(axis={self.pick(('0', '-2'))})",
                f"({inner}).{kind}(axis={self.pick(('1', '-1'))}, keepdims=True)",
                f"np.{kind}({inner}, axis=1)[:, None]",
                f"({inner}).{kind}()",
                f"np.{kind}({inner}, axis={self.pick(('(0, 1)', '(1, 0)', '(0,)', 'None'))}, keepdims=True)",
                f"np.{self.pick(('add', 'maximum', 'minimum', 'logical_or'))}.reduce({inner}, axis=0)",
                self.pick(
                    (f"({inner}).{place}(axis=0)", f"({inner}).{place}(axis=1)[:, None]", f"({inner}).{place}()")
                ),
            )
        )

    def statement(self) -> str:
        draw, depth = self.random.random(), self.random.choice((1, 2, 2, 3))
        name, target = f"t{len(self.lines)}", self.pick([value for value in self.values if value != "y"])
        if draw < 0.2:
            text = f"{name} = {self.array(depth)}"
            self.values.append(name)
        elif draw < 0.3:
            text = f"{target}[...] = {self.expression(depth)}"
        elif draw < 0.38:
            text = f"{target} {self.pick(('+', '-', '*', '&', '|', '^', '<<', '>>', '//', '%'))}= {self.expression(depth - 1)}"
        elif draw < 0.58:
            text = self.pick(WRITES).format(w=target)
        elif draw < 0.66:
            mask = f"{self.pick(('y', 'x', 'v', 'c'))} {self.pick(('!= 0', '> 0'))}"
            function = self.pick(("add", "divide", "subtract", "floor_divide", "power", "arctan2"))
            text = f"np.{function}({self.expression(depth - 1)}, {self.pick(self.values)}, out={target}, where={mask})"
        elif draw < 0.7:
            text = f"np.{self.pick(('sqrt', 'exp', 'log', 'reciprocal'))}({self.pick(self.values)}, out={target}, where=y > 0)"
        elif draw < 0.77:
            made = self.pick(
                ("np.zeros(x.shape)", "np.full(x.shape, s)", "np.ones(x.shape, dtype=y.dtype)", "x.copy()")
            )
            part = self.pick((":2", "::2", "1:", "-1:", "...", ":, 1:", "1:-1, 1:-1"))
            text = f"{name} = {made}; {name}[{part}] = {self.pick(('1', 's', 'z'))}; {name}[2:] = ({self.array(1)})[2:]"
            self.values.append(name)
        elif draw < 0.82:
            text = f"if {self.pick(CONDITIONS)}: {target}[...] = {self.expression(1)}\n    else: {target} += 1"
        elif draw < 0.87:
            text = f"for a in range({self.pick(('3', 'k', '2'))}): {self.pick(TURNS).format(w=target)}"
        elif draw < 0.92:
            text = f"row[...] = ({self.array(depth)}).{self.pick(('sum', 'max', 'min', 'mean', 'argmax'))}(axis=1)"
        elif draw < 0.96:
            text = f"col {self.pick(('+', '*'))}= ({self.array(depth)}).{self.pick(('sum', 'max', 'any'))}(axis=0)"
        else:
            text = f"tot += ({self.array(depth)}).{self.pick(('sum', 'max', 'mean', 'argmax', 'any'))}()"
        return text

    def text(self) -> str:
        """Return the whole body."""
        for _ in range(self.random.choice((1, 1, 2, 3, 4))):
            self.lines.append(self.statement())
        self.lines.append(f"out{self.pick(('[...] ', ' +', '[:] '))}= {self.array(2)}")
        head = f"def body({', '.join(NAMES[:8])}, i, j, row, col, tot, out, s, k, f, g):\n"
        return head + "\n".join(f"    {line}" for line in self.lines) + "\n"


# Arguments --------------------------------------------------------------------------------------------------------------

LAYOUTS = ("plain", "plain", "plain", "part", "part", "beside", "every other")
ODD = ("turned", "unaligned", "backwards", "repeated")
SIZES = ((4, 17), (5, 8), (7, 33), (33, 40), (3, 129), (9, 300), (6, 5), (16, 64), (2, 1300), (17, 70))
OTHERS = ((1, 1), (1, 9), (9, 1), (0, 5), (5, 0), (2, 2), (40, 31), (8, 513), (3, 100), (64, 16), (130, 7), (11, 65))
LARGE = ((16, 64), (17, 130), (24, 257), (9, 1000), (33, 96), (41, 65), (8, 128))


class Call(NamedTuple):
    """Arguments: arrays with how they are to lie in memory, and numbers."""

    arrays: dict[str, tuple[np.ndarray[Any, Any], str]]
    numbers: dict[str, Any]

    def arguments(self) -> dict[str, Any]:
        """Return them with memory of their own, in the body's order."""
        made = {name: laid_out(array, how, name in CHANGED) for name, (array, how) in self.arrays.items()}
        order = (*NAMES[:8], "i", "j", *NAMES[8:])
        return {name: made[name] for name in order} | self.numbers


def elements(random: Random, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Return an array of a type, often with its ends and what is special in it."""
    rng, kind = np.random.default_rng(random.randrange(1 << 30)), np.dtype(dtype)
    if kind.kind == "b":
        return np.array(rng.integers(0, 2, shape)).astype(bool)
    if kind.kind == "f":
        found = np.array(rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3, shape)).astype(kind)
        with np.errstate(all="ignore"):
            special = np.array(SPECIAL).astype(kind)
    else:
        ends = np.iinfo(kind)
        low, high = random.choice(((0, 9), (max(ends.min, -4), 4), (ends.min, ends.max), (0, 70)))
        found = np.array(rng.integers(low, high, shape, dtype=kind, endpoint=True))
        special = np.array([ends.min, ends.max, 0], kind)
    if found.size and random.random() < 0.5:
        flat, count = found.reshape(-1), max(1, found.size // 6)
        flat[rng.integers(0, flat.size, count)] = rng.choice(special, count)
    return found


def laid_out(array: np.ndarray[Any, Any], how: str, changed: bool) -> np.ndarray[Any, Any]:
    """Return an array with the same elements that lies in memory in some way."""
    if not array.ndim or how == "plain" or (how == "repeated" and (changed or array.ndim < 2)):
        return array.copy()
    if how == "repeated":
        return np.broadcast_to(array[:1], array.shape)
    raw = np.zeros(array.nbytes + 64, np.uint8)
    if how == "part":
        found = np.zeros([extent + 3 for extent in array.shape], array.dtype)[
            tuple(slice(1, 1 + n) for n in array.shape)
        ]
    elif how == "beside":
        found = np.ndarray(array.shape, array.dtype, raw, (-raw.ctypes.data) % 64 % array.itemsize + array.itemsize)
    elif how == "unaligned":
        found = np.ndarray(array.shape, array.dtype, raw, 1)
    elif how == "turned":
        found = np.zeros(array.shape[::-1], array.dtype).T
    elif how == "backwards":
        found = np.zeros(array.shape, array.dtype)[::-1]
    else:
        found = np.zeros((2 * array.shape[0], *array.shape[1:]), array.dtype)[::2]
    found[...] = array
    return found


def call(random: Random, types: dict[str, str], size: tuple[int, int], numbers: dict[str, Any]) -> Call:
    """Return arguments of a size."""
    n, m = size
    shapes: dict[str, tuple[int, ...]] = {
        "h": (n + 2, m + 2),
        "v": (m,),
        "c": (n, 1),
        "e": (1, m),
        "z": (),
        "q": (n, m, 3),
    }
    shapes |= {"row": (n,), "col": (m,), "tot": ()}
    odd, plain = random.choice(NAMES) if random.random() < 0.06 else "", random.random() < 0.4
    arrays = {}
    for name in NAMES:
        shape = shapes.get(name, (n, m))
        how = random.choice(ODD) if name == odd else "plain" if plain or len(shape) < 2 else random.choice(LAYOUTS)
        arrays[name] = elements(random, shape, types[name]), how
    rng = np.random.default_rng(random.randrange(1 << 30))
    for name, extent in (("i", n), ("j", m)):
        arrays[name] = (rng.integers(-extent, extent, extent) if extent else np.zeros(0, np.int64)), "plain"
    return Call(arrays, numbers)


def drawn(
    seed: int, sizes: tuple[tuple[int, int], ...] = SIZES, others: tuple[tuple[int, int], ...] = SIZES + OTHERS
) -> Any:
    """Return the text of a body, the body, and four calls: the first of one of `sizes`."""
    random = Random(seed)
    kind = random.choice(("floats", "floats", "floats", "integers", "all"))
    text = Writer(random, kind).text()
    if kind == "floats":
        one = random.choice(("f8", "f8", "f4"))
        types = {name: one if random.random() < 0.85 else random.choice(("f8", "f4")) for name in NAMES}
    elif kind == "integers":
        one = random.choice(TYPES[5:])
        types = {name: one if random.random() < 0.7 else random.choice(TYPES[5:]) for name in NAMES}
        types["out"] = random.choice((one, one, "f8", "i8", "f4"))
    else:
        types = {name: random.choice(TYPES) for name in NAMES}
    whole = kind == "integers"
    numbers: dict[str, Any] = {
        "s": random.choice((2, -3, 0, 1) if whole else (0.25, 1.5, -2.0, 0.0)),
        "k": random.choice((2, 3, 0, -1, 70)),
    }
    numbers |= {
        "f": random.choice((np.int16(300), np.uint8(3), 3) if whole else (np.float32(1.5), 2.5, np.int8(5))),
        "g": random.random() < 0.5,
    }
    calls = [call(random, types, random.choice(sizes), numbers)]
    for _ in range(3):
        changed = {} if whole or random.random() < 0.7 else {"s": random.choice((0.25, -3.5))}
        calls.append(call(random, types, random.choice(others), numbers | changed))
    space: dict[str, Any] = {"np": np}
    exec(text, space)
    return text, space["body"], calls
