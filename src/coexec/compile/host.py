"""Numbers of the host while a body is traced: known now, written down as expressions, and pinned where they decide.

Before: nothing.  After: compile/graph.py.  Knows Python numbers only, no array.

An extent, a number passed to the kernel or a chunk's corner is a `Host`: its value at this call, and the expression that
gives it at any call. Arithmetic keeps both. Whatever the body decides by one (a comparison, a loop, an index) becomes a
guard: the traced form serves calls for which every guard has the same answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .refused import Untraceable

Number = int | float | np.generic
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
Linear = tuple[tuple[tuple[str, int], ...], int]  # terms (expression, factor) in order, and what is added

BLOCK_ANSWER: list[Callable[[Any, str], bool]] = []  # compile/bounds.py's: compares with some block of a loop
LENGTH = 4_000  # characters of one number's expression; k = k * (2 - k) doubles it each time
GUARDS = 2_000  # decisions of one body; more means that a Python loop runs over elements


class Block(NamedTuple):
    """Some block of a loop `for low in range(start, stop, step)`: names of its beginning and its end, and the loop's ends."""

    low: str
    high: str
    start: int
    stop: Any  # Host
    step: Any  # int or Host


class Guards:
    """The decisions that a trace depends on, each as an expression and its answer."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.least: dict[str, int] = {}  # expressions that are integers, and the least value that each may have
        self.dense: set[str] = (
            set()
        )  # arrays that must lie in memory without gaps, where elements are found by counting
        self._equal: dict[str, Linear] = {}  # expressions that were found equal to others
        self.blocks: list[Block] = []  # of loops that are traced for one block
        self.named: dict[str, str] = {}  # names that other expressions use, and what each stands for

    def reduced(self, linear: Linear) -> Linear:
        """Return a linear form in which expressions that are equal have one name."""
        if not any(text in self._equal for text, _ in linear[0]):
            return linear
        terms: dict[str, int] = {}
        constant = linear[1]
        for text, factor in linear[0]:
            other, added = self._equal.get(text, (((text, 1),), 0))
            constant += factor * added
            for name, times in other:
                terms[name] = terms.get(name, 0) + factor * times
        return self.reduced((tuple(sorted((text, factor) for text, factor in terms.items() if factor)), constant))

    def learn(self, difference: Linear, symbol: str, answer: bool) -> bool:
        """Make use of what `difference symbol 0` tells; True if that says it all and no guard is needed."""
        terms, constant = difference
        if symbol == "==" and answer:
            name = next((text for text, factor in terms if abs(factor) == 1), None)
            if name is not None:
                factor = dict(terms)[name]
                rest = tuple((text, -times * factor) for text, times in terms if text != name)
                self._equal[name] = (rest, -constant * factor)
            return False
        if len(terms) != 1 or abs(terms[0][1]) != 1 or symbol not in _OPPOSITE:
            return False
        text, factor = terms[0]
        truth = symbol if answer else _OPPOSITE[symbol]
        if truth not in (("<", "<=") if factor < 0 else (">", ">=")):
            return False
        bound = (-constant if factor > 0 else constant) + (truth in "<>")
        self.least[text] = max(bound, self.least.get(text, bound))
        return True

    def decide(self, text: str, answer: bool, difference: Linear | None = None, symbol: str = "") -> bool:
        """Note that the expression (which compares a difference with zero, if one is given) has this truth value."""
        if difference is not None and self.learn(difference, symbol, answer):
            return answer
        self._add(f"bool({text})", answer)
        return answer

    def pin(self, text: str, value: Any) -> None:
        """Note that the expression has this very value."""
        self._add(text, value)

    def settle_block(self, block: Block) -> None:
        """Let the blocks of a loop be one: from where the first begins to where the last ends."""
        self.blocks.remove(block)
        for name, end in ((block.low, block.start), (block.high, block.stop)):
            self._equal[name] = ((), end) if type(end) is int else end.linear
            self.named[name] = as_text(end)

    def mentions_block(self, text: str) -> bool:
        """Tell whether an expression depends on the block of a loop."""
        return any(block.low in text or block.high in text for block in self.blocks)

    def _add(self, text: str, answer: Any) -> None:
        if self.blocks and self.mentions_block(text):
            raise Untraceable("its loop over blocks does something else in some blocks")
        if text not in self.answers and len(self.answers) >= GUARDS:
            raise Untraceable(f"it decides more than {GUARDS} times by sizes or numbers: a Python loop over elements?")
        self.answers.setdefault(text, answer)


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are alike: of one type, equal, zeros of one sign, NaN like NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float | np.floating):
        return bool(a == b and np.signbit(a) == np.signbit(b)) or bool(np.isnan(a) and np.isnan(b))
    return bool(a == b)


class Host:
    """A number of the host: `value` now, `text` at any call, and for integers the linear form of the text."""

    __slots__ = ("guards", "linear", "text", "value")

    def __init__(self, value: Number, text: str, guards: Guards, linear: Linear | None = None) -> None:
        if len(text) > LENGTH:
            raise Untraceable("it computes a number in too many steps: a Python loop?")
        self.value = value
        self.guards = guards
        self.linear = linear if linear is not None or type(value) is not int else (((text, 1),), 0)
        self.text = text

    @property
    def key(self) -> Any:
        """What is equal for expressions that are always equal."""
        return self.guards.reduced(self.linear) if self.linear is not None else self.text

    def _pinned(self) -> Any:
        self.guards.pin(self.text, self.value)
        return self.value

    def __index__(self) -> int:
        return operator.index(self._pinned())

    def __int__(self) -> int:
        return int(self._pinned())

    def __float__(self) -> float:
        return float(self._pinned())

    def __hash__(self) -> int:
        return hash(self._pinned())

    def __repr__(self) -> str:
        return repr(self._pinned())  # a body may decide by it

    def __str__(self) -> str:
        return str(self._pinned())

    def __format__(self, spec: str) -> str:
        return format(self._pinned(), spec)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._pinned(), digits)

    def __bool__(self) -> bool:
        return self.guards.decide(self.text, bool(self.value))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Untraceable(f"it makes an array of the number {self.text}")

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if not all(isinstance(x, Host) or is_number(x) for x in inputs):
            return NotImplemented
        name = function.__name__
        if method != "__call__" or options or getattr(np, name, None) is not function or function.nout != 1:
            raise Untraceable(f"np.{name} of numbers, called in a way that is not written down")
        value = function(*map(plain, inputs))
        return Host(value, f"np.{name}({', '.join(map(as_text, inputs))})", self.guards)


def as_text(value: Any) -> str:
    """Return the expression of an operand."""
    return value.text if isinstance(value, Host) else literal(value)


def literal(value: Any) -> str:
    """Return a constant as an expression that gives it again, type and bits."""
    if type(value) in (int, bool):
        return f"({value})"
    if type(value) is float:
        return f"float.fromhex({value.hex()!r})"
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return f"np.frombuffer(bytes.fromhex({value.tobytes().hex()!r}), {value.dtype.str!r})[0]"
    raise Untraceable(f"it computes with a {type(value).__name__}, which is no number")


def is_number(value: Any) -> bool:
    """Tell whether a value is a plain number."""
    return type(value) in (int, float, bool) or (isinstance(value, np.generic) and value.dtype.kind in "biuf")


def make_linear(terms: dict[str, int], constant: int, value: int, guards: Guards) -> Host | int:
    """Return a sum of terms; a plain integer if none is left."""
    kept = tuple(sorted((text, factor) for text, factor in terms.items() if factor))
    if not kept:
        return constant
    parts = [text if factor == 1 else f"{factor}*{text}" for text, factor in kept]
    text = " + ".join(parts + ([str(constant)] if constant else []))
    if len(parts) > 1 or constant or kept[0][1] != 1:
        text = f"({text})"
    return Host(value, text, guards, (kept, constant))


def _linear_of(value: Any) -> Linear | None:
    if type(value) is int:
        return (), value
    return value.linear if isinstance(value, Host) else None


def _combined(a: Any, b: Any, sign: int, guards: Guards) -> Host | int | None:
    """Return a + sign * b in linear form, or None if one has none."""
    left, right = _linear_of(a), _linear_of(b)
    if left is None or right is None:
        return None
    left, right = guards.reduced(left), guards.reduced(right)
    terms = dict(left[0])
    for text, factor in right[0]:
        terms[text] = terms.get(text, 0) + sign * factor
    value = plain(a) + sign * plain(b)
    return make_linear(terms, left[1] + sign * right[1], int(value), guards)


def _scaled(a: Any, b: Any, guards: Guards) -> Host | int | None:
    """Return a product with a constant in linear form, or None."""
    if type(a) is int:
        a, b = b, a
    linear = _linear_of(a)
    if linear is None or type(b) is not int:
        return None
    terms = {text: factor * b for text, factor in linear[0]}
    return make_linear(terms, linear[1] * b, int(plain(a) * b), guards)


def plain(value: Any) -> Any:
    """Return the value now."""
    return value.value if isinstance(value, Host) else value


def _operation(name: str, symbol: str) -> Callable[[Any, Any], Any]:
    compute: Callable[[Any, Any], Any] = getattr(operator, name)

    def apply(a: Any, b: Any) -> Any:
        if not all(isinstance(x, Host) or is_number(x) for x in (a, b)):
            return NotImplemented
        guards = a.guards if isinstance(a, Host) else b.guards
        short = None
        if name in ("add", "sub"):
            short = _combined(a, b, 1 if name == "add" else -1, guards)
        elif name == "mul":
            short = _scaled(a, b, guards)
        if short is not None:
            return short
        value = compute(plain(a), plain(b))
        if not is_number(value):
            raise Untraceable(f"{symbol} of numbers gives a {type(value).__name__}")
        return Host(value, f"({as_text(a)} {symbol} {as_text(b)})", guards)

    return apply


def _comparison(name: str, symbol: str) -> Callable[[Any, Any], Any]:
    compute: Callable[[Any, Any], Any] = getattr(operator, name)

    def apply(a: Host, b: Any) -> Any:
        if not isinstance(b, Host) and not is_number(b):
            return NotImplemented
        answer = bool(compute(a.value, plain(b)))
        difference = _combined(a, b, -1, a.guards)
        if isinstance(difference, int):
            return answer
        if difference is not None and a.guards.blocks and a.guards.mentions_block(difference.text):
            return BLOCK_ANSWER[0](difference, symbol)
        if difference is not None and difference.linear is not None:
            return a.guards.decide(f"{difference.text} {symbol} 0", answer, difference.linear, symbol)
        return a.guards.decide(f"{a.text} {symbol} {as_text(b)}", answer)

    return apply


_OPERATIONS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "lshift": "<<",
    "rshift": ">>",
    "and_": "&",
    "or_": "|",
    "xor": "^",
}


def _reflected(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: apply(b, a)


def _install() -> None:
    """Give `Host` Python's operators."""
    for name, symbol in _OPERATIONS.items():
        bare = name.rstrip("_")
        apply = _operation(name, symbol)
        setattr(Host, f"__{bare}__", apply)
        setattr(Host, f"__r{bare}__", _reflected(apply))
    for name, symbol in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}.items():
        setattr(Host, f"__{name}__", _comparison(name, symbol))
    Host.__ne__ = _negated(Host.__eq__)  # type: ignore[method-assign]
    for name, symbol in {"neg": "-", "pos": "+", "invert": "~"}.items():
        setattr(Host, f"__{name}__", _unary(name, symbol))
    Host.__abs__ = lambda a: Host(abs(a.value), f"abs({a.text})", a.guards)  # type: ignore[attr-defined]


def _negated(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(a: Host, b: Any) -> Any:
        answer = compare(a, b)
        return answer if answer is NotImplemented else not answer

    return apply


def _unary(name: str, symbol: str) -> Callable[[Host], Any]:
    compute: Callable[[Any], Any] = getattr(operator, name)

    def apply(a: Host) -> Any:
        if name == "neg" and a.linear is not None:
            return _scaled(a, -1, a.guards)
        return Host(compute(a.value), f"({symbol}{a.text})", a.guards)

    return apply


_install()


# Sizes: integers or `Host` integers -------------------------------------------------------------------------------------

Size = Any  # int | Host; the operators above are installed, which type checkers do not see


def size_key(size: Size) -> Any:
    """Return what is equal for sizes that are always equal."""
    return size.key if isinstance(size, Host) else ((), int(size))


def equal_sizes(a: Size, b: Size) -> bool:
    """Tell whether two sizes are equal at every call."""
    return bool(size_key(a) == size_key(b))
