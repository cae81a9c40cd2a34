"""Random NumPy bodies as text, and arguments for them: what the compiler is tried with."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any, NamedTuple

import numpy as np

DTYPES = ("f8", "f8", "f8", "f4", "f4", "i8", "i4", "u1", "i2", "u4", "?")
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-310, 1e300, 0.5)
UNARY = (
    "np.sqrt",
    "np.exp",
    "np.abs",
    "np.negative",
    "np.sin",
    "np.floor",
    "np.isnan",
    "np.square",
    "np.log1p",
    "np.rint",
)
BINARY = ("+", "-", "*", "/", "<", ">=", "==", "&", "//", "%")
CALLS = ("np.maximum", "np.minimum", "np.hypot", "np.copysign", "np.logical_or", "np.subtract", "np.fmod", "np.arctan2")
FOLDS = ("sum", "max", "min", "mean", "any", "all", "prod", "argmin", "argmax")
TYPES = ("np.float64", "np.float32", "np.int64", "bool", "np.int32")
numbers = itertools.count()


class Drawn(NamedTuple):
    """A body, its text, the arrays that it writes, and two sets of arguments."""

    body: Any
    text: str
    writes: tuple[str, ...]
    calls: list[dict[str, Any]]


class Draw:
    """Draws one body over arrays of one shape (n, m), vectors (m,) and rows' vectors (n, 1)."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.two = random.random() < 0.6
        self.values = ["a", "b", "u"]
        self.lines: list[str] = []

    def pick(self, choices: tuple[Any, ...] | list[str]) -> str:
        return str(self.random.choice(choices))

    def leaf(self) -> str:
        kind = self.random.random()
        if kind < 0.15:
            return self.pick(("s", "0.5", "2", "np.float32(1.5)", "k", "-1", "True", "3.0", "(s * 2 - 1)", "len(a)"))
        if kind < 0.3:
            return (
                self.pick(("w[1:-1]", "w[2:]", "w[:-2]"))
                if not self.two
                else self.pick(("w[1:-1, 1:-1]", "w[2:, 1:-1]", "w[:-2, 2:]", "w[1:-1, :-2]"))
            )
        if kind < 0.33:
            return self.pick(
                ("a[i]", "b[i, :]", "np.take(b, i, axis=0)", "b[:, j]", "v[j]", "u[i]", "b[..., j]")
                if self.two
                else ("a[i]", "v[i]", "b[::-1][i]", "u[i]", "np.take(u, i)", "(a * 2)[i]")
            )
        if kind < 0.43:
            return (
                self.pick(("v", "v[::-1]", "a[0]", "a[-1:]")) if self.two else self.pick(("b[::-1]", "a[0]", "v[:1]"))
            )
        return self.pick(self.values)

    def fold(self, depth: int) -> str:
        inner = self.array(depth - 1)
        kind = self.pick(FOLDS)
        if kind.startswith("arg"):
            return (
                f"np.{kind}({inner})"
                if not self.two
                else f"np.{kind}({inner}, axis={self.pick((0, 1))})" + ("[:, None]" if "axis=1" in inner else "")
            )
        axis = self.random.choice((0, 1, None) if self.two else (0, None))
        return f"({inner}).{kind}(axis={axis}, keepdims=True)" if axis is not None else f"({inner}).{kind}()"

    def array(self, depth: int) -> str:
        """Return an expression that is surely of the whole shape."""
        return f"({self.expression(depth)} {self.pick(('+', '*', '-'))} {self.pick(self.values)})"

    def expression(self, depth: int) -> str:
        if depth <= 0:
            return self.leaf()
        kind = self.random.random()
        if kind < 0.4:
            return f"({self.expression(depth - 1)} {self.pick(BINARY)} {self.expression(depth - 1)})"
        if kind < 0.52:
            return f"{self.pick(CALLS)}({self.expression(depth - 1)}, {self.expression(depth - 1)})"
        if kind < 0.67:
            return f"{self.pick(UNARY)}({self.expression(depth - 1)})"
        if kind < 0.75:
            return f"np.where({self.array(depth - 1)} > {self.leaf()}, {self.expression(depth - 1)}, {self.leaf()})"
        if kind < 0.8:
            return f"({self.array(depth - 1)}).astype({self.pick(TYPES)})"
        if kind < 0.85:
            return f"({self.array(depth - 1)}) ** {self.pick(('2', '0.5', '1.5', '3', 's'))}"
        if kind < 0.93:
            return self.fold(depth)
        if kind < 0.96:
            return f"np.clip({self.array(depth - 1)}, {self.pick(('0', '-1.0', 's'))}, {self.pick(('1', '2.5'))})"
        return self.leaf()

    def statement(self) -> str:
        kind = self.random.random()
        depth = self.random.choice((1, 2, 2, 3))
        target = self.pick(("out", "u"))
        if kind < 0.25:
            name = f"t{len(self.lines)}"
            text = f"{name} = {self.array(depth)}"
            self.values.append(name)
            return text
        if kind < 0.45:
            return f"{target}[...] = {self.expression(depth)}"
        if kind < 0.55:
            return f"u {self.pick(('+=', '-=', '*='))} {self.expression(depth)}"
        if kind < 0.62:
            return self.pick(
                (
                    f"{target}[1:] = {target}[:-1]",
                    "u[:-1] = u[1:] * 2",
                    "u[::2] += 1",
                    "u[0] = s",
                    f"{target}[...] = u[::-1]",
                )
            )
        if kind < 0.7:
            return f"{target}[{self.array(depth)} > {self.leaf()}] = {self.pick(('0', '1', 's'))}"
        if kind < 0.8:
            name = f"t{len(self.lines)}"
            first, second = self.array(1), self.array(1)
            maker = self.pick(("np.empty_like(a)", "np.zeros(a.shape)", "np.full(a.shape, s)", "np.ones_like(u)"))
            self.values.append(name)
            return f"{name} = {maker}; {name}[:3] = ({first})[:3]; {name}[3:] = ({second})[3:]"
        if kind < 0.88:
            name = f"t{len(self.lines)}"
            self.values.append(name)
            return f"{name} = np.empty_like(u); np.copyto({name}, u); np.add({name}, {self.pick(self.values)}, out={name}, casting='unsafe')"
        if kind < 0.94:
            return f"if s > {self.pick(('0', '0.5', '2'))}: {target}[...] = {self.expression(1)}"
        return f"np.multiply({self.expression(1)}, {self.pick(self.values)}, out=u, where={self.array(1)} > 0)"

    def text(self) -> str:
        for _ in range(self.random.choice((1, 1, 2, 3, 4))):
            self.lines.append(self.statement())
        self.lines.append(f"out[...] = {self.array(2)}")
        return "def body(a, b, w, v, u, out, i, j, s, k):\n" + "\n".join(f"    {line}" for line in self.lines) + "\n"


def array(random: Random, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(random.randrange(1 << 30))
    kind = np.dtype(dtype)
    if kind.kind == "f":
        data = (rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3, shape)).astype(kind)
        if random.random() < 0.5 and data.size:
            flat = data.reshape(-1)
            with np.errstate(all="ignore"):
                special = np.array(SPECIAL).astype(kind)
            flat[rng.integers(0, flat.size, max(1, flat.size // 7))] = rng.choice(special, max(1, flat.size // 7))
        return data
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    low, high = (0, 9) if random.random() < 0.6 else (np.iinfo(kind).min, np.iinfo(kind).max)
    return rng.integers(low, high, shape, dtype=kind, endpoint=True)


def arguments(random: Random, dtypes: dict[str, str], *, two: bool) -> dict[str, Any]:
    n = random.choice((4, 5, 7, 33))
    m = random.choice((3, 8, 17, 18, 40, 129, 300, 1300))
    shape = (n, m) if two else (m + 1,)
    shapes = {
        "a": shape,
        "b": shape,
        "u": shape,
        "out": shape,
        "v": shape[-1:],
        "w": tuple(extent + 2 for extent in shape),
    }
    found: dict[str, Any] = {}
    for name, mine in shapes.items():
        if random.random() < 0.25:  # a part of a larger array
            larger = array(random, tuple(extent + 3 for extent in mine), dtypes[name])
            found[name] = larger[tuple(slice(1, 1 + extent) for extent in mine)]
        else:
            found[name] = array(random, mine, dtypes[name])
    for name, extent in (("i", shape[0]), ("j", shape[-1])):
        numbers = np.random.default_rng(random.randrange(1 << 30)).integers(-extent, extent, extent)
        found[name] = numbers.astype(random.choice(("i8", "i8", "i4")) if name == "i" else "i8")
    return {**found, "s": random.choice((0.25, 1.5, -2.0)), "k": random.choice((2, 3))}


def draw(seed: int) -> Drawn:
    """Return the body of a seed."""
    random = Random(seed)
    drawing = Draw(random)
    text = drawing.text()
    if random.random() < 0.6:
        kind = random.choice(("f8", "f4"))
        dtypes = dict.fromkeys("abwvu", kind) | {"out": random.choice((kind, "f8"))}
    else:
        dtypes = {name: random.choice(DTYPES) for name in ("a", "b", "w", "v", "u", "out")}
    space: dict[str, Any] = {"np": np}
    exec(text, space)
    calls = [arguments(random, dtypes, two=drawing.two) for _ in range(2)]
    return Drawn(space["body"], text, ("u", "out"), calls)


def copied(call: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with arrays of their own, laid out alike."""
    found = {}
    for name, value in call.items():
        if isinstance(value, np.ndarray) and value.base is not None and value.base.ndim == value.ndim:
            base = value.base.copy()
            found[name] = base[tuple(slice(1, 1 + extent) for extent in value.shape)]
        else:
            found[name] = value.copy() if isinstance(value, np.ndarray) else value
    return found


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array's bits, NaNs made alike."""
    if array.dtype.kind != "f":
        return array
    plain = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return plain.view(f"i{array.itemsize}")
