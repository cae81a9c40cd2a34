"""A NumPy body to a graph: run once on arrays that write down what is done to them.

Before: compile/scope.py.  After: compile/schedule.py, compile/reference.py.  Knows no compiler and no device.
"""

from __future__ import annotations

import inspect
import keyword
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .blocks import settle_loops
from .cells import CarriedBy, Cell, TraceTape, check_dtype
from .draws import TracedRandom
from .graph import Buffer, Traced, nodes_of
from .host import Host, is_number
from .refused import Untraceable
from .scope import Scope, fields_only
from .sizes import normal, same_shape
from .symbolic import Symbolic

RESERVED = frozenset({"np", "abs", "bool", "float", "int", "bytes", "same", "pack"})
"""Names that guards use themselves."""
FEW = 16
"""A last axis of at most so many elements (colours, coordinates) is a constant of the compiled form, which is unrolled."""
CARRIED = 20
"""Arrays that loops over blocks carry from one to the next."""
NODES = 4_000
"""Values of one body. A large stencil has a hundred."""


class ChunkStandIn:
    """`chunk` while a body is traced: places and extents are numbers of the host."""

    def __init__(self, chunk: Any, tape: TraceTape, arrays: Mapping[str, int]) -> None:
        def number(value: Any, text: str) -> Host:
            return Host(value, text, tape.guards)

        self.lo = tuple(number(value, f"chunk.lo[{axis}]") for axis, value in enumerate(chunk.lo))
        self.hi = tuple(number(value, f"chunk.hi[{axis}]") for axis, value in enumerate(chunk.hi))
        self.shape = tuple(number(value, f"chunk.shape[{axis}]") for axis, value in enumerate(chunk.shape))
        self._chunk, self._number, self._arrays, self._tape = chunk, number, arrays, tape

    @property
    def whole(self) -> bool:
        """Whether it is all of the index space; bodies may ask whether it `is True`."""
        self._tape.guards.pin("chunk.whole", bool(self._chunk.whole))
        return bool(self._chunk.whole)

    def at(self, name: str) -> tuple[slice, ...]:
        """Return the slices of this chunk inside the box that array `name` was given."""
        found = []
        for axis, part in enumerate(self._chunk.at(name)):
            text = f"chunk.at({name!r})[{axis}]"
            found.append(slice(self._number(part.start, f"{text}.start"), self._number(part.stop, f"{text}.stop")))
        return tuple(found)

    def rng(self, seed: Any, stream: Any = 0) -> TracedRandom:
        """Return random numbers that depend on an element's place only."""
        first, steps = self._chunk.first, self._chunk.steps
        place = [self._number(first, "chunk.first")]
        place += [self._number(step, f"chunk.steps[{axis}]") for axis, step in enumerate(steps[:-1])]
        return TracedRandom(self._tape, tuple(map(normal, self.shape)), (*place, *steps[-1:]), seed, stream)


@runtime_checkable
class Formula(Protocol):
    """A body that is an object, not a function, and can say in one formula what it computes."""

    __name__: str

    def formula(self, xp: Any) -> Callable[..., Any]:
        """Return a function of the same parameters, which makes new arrays by `xp` and uses nothing else from outside."""


def trace(
    body: Any,
    arguments: Mapping[str, Any],
    writes: Collection[str],
    returns: Sequence[str] = (),
    *,
    free: bool = False,
    counting: bool = False,
) -> Traced:
    """Return the graph of a body for arguments like these; `Untraceable` says why there is none.

    What the body returns is written to the arguments that `returns` names. A `free` graph may add in any order. One for
    `counting` has large products of matrices, too, which nobody would compile.
    """
    try:
        return _traced(body, arguments, writes, returns, free=free, vanish=True, counting=counting)
    except Untraceable as reason:
        if not reason.blocks:
            raise
        first = str(reason)
    try:
        return _traced(body, arguments, writes, returns, free=free, vanish=False, counting=counting)
    except Untraceable as reason:
        raise Untraceable(f"{reason} ({first})") from None


def _traced(
    body: Any,
    arguments: Mapping[str, Any],
    writes: Collection[str],
    returns: Sequence[str],
    *,
    free: bool,
    vanish: bool,
    counting: bool = False,
) -> Traced:
    """Return the graph of a body, whose loops over blocks become the whole (`vanish`) or are unrolled."""
    remembered: frozenset[int] = frozenset()
    for _ in range(CARRIED):
        tape = TraceTape(free=free, counting=counting, remembered=remembered)
        scope = Scope(tape, vanish=vanish)
        try:
            return _recorded(body, arguments, {*writes, *returns}, returns, scope)
        except CarriedBy as found:
            remembered |= {found.number}
        except Untraceable as reason:
            reason.blocks = bool(tape.loops)
            raise
    raise Untraceable("its loops over blocks carry too many arrays")


def _recorded(
    body: Any, arguments: Mapping[str, Any], writes: Collection[str], returns: Sequence[str], scope: Scope
) -> Traced:
    """Run a body on arrays that write down what is done to them."""
    tape = scope.tape
    if isinstance(body, types.FunctionType):
        function = scope.translated(body)
    elif isinstance(body, Formula):
        function = body.formula(scope.numpy)
    else:
        raise Untraceable("it is no plain Python function")
    names = list(inspect.signature(body).parameters)
    if missing := [name for name in (*names, *returns) if name not in arguments and name != "xp"]:
        raise Untraceable(f"no value was given for {', '.join(missing)}")
    given: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for name in (*names, *returns):
        given[name], parameters[name] = _argument(name, arguments.get(name), tape, writes, scope)
    targets = [given.pop(name) for name in returns]
    with np.errstate(all="ignore"):  # filters of warnings belong to all threads, and are left alone
        try:
            result = function(**given)
        except Exception as error:  # noqa: BLE001 - whatever a body raises on traced arrays is a reason
            raise Untraceable(f"it raises {type(error).__name__} when it is traced: {error}") from None
    if returns:
        _place(result, targets)
    elif result is not None:
        raise Untraceable("it returns a value")
    settle_loops(tape)
    if not tape.stores:
        raise Untraceable("it writes nothing")
    if sum(1 for _ in nodes_of(*(store.value for store in tape.stores))) > NODES:
        raise Untraceable(f"it computes more than {NODES} values: a Python loop over elements?")
    return Traced(
        body.__name__,
        parameters,
        frozenset(writes),
        tape.stores,
        tape.guards,
        list(scope.captured),
        tape.indices,
        tape.free,
    )


def _place(result: Any, targets: Sequence[Symbolic]) -> None:
    """Write down that what a body returns goes to the arrays that were declared for it."""
    results = result if isinstance(result, tuple | list) else (result,)
    if len(results) != len(targets):
        raise Untraceable(f"it returns {len(results)} values where {len(targets)} are declared")
    for value, target in zip(results, targets, strict=True):
        if not isinstance(value, Symbolic) or not same_shape(value.shape, target.shape):
            raise Untraceable("it returns something else than an array of the declared shape")
        if not np.can_cast(value.dtype, target.dtype, "same_kind"):
            raise Untraceable(f"it returns {value.dtype} where {target.dtype} is declared")
        target.write(value)


def _argument(name: str, value: Any, tape: TraceTape, writes: Collection[str], scope: Scope) -> tuple[Any, Any]:
    """Return what the body gets for one parameter, and what the graph knows of it."""
    if name in RESERVED or keyword.iskeyword(name) or name.startswith("_") or "__" in name:
        raise Untraceable(f"its parameter {name!r} has the name of something else")
    if name == "xp":
        return scope.numpy, scope.numpy
    if name == "chunk":
        return ChunkStandIn(value, tape, {}), value
    if isinstance(value, np.ndarray):
        shape = tuple(_extent(name, axis, extent, value.ndim, tape) for axis, extent in enumerate(value.shape))
        buffer = Buffer(name, check_dtype(value.dtype), shape, parameter=True)
        cell = Cell(tape, value.dtype, shape, buffer=buffer, writable=name in writes)
        return Symbolic(cell), buffer
    if is_number(value) and type(value) is not bool:
        host = Host(value, name, tape.guards)
        return host, host
    seen = fields_only(value) if isinstance(value, tuple) else value
    if seen is None and value is not None:
        raise Untraceable(f"its parameter {name!r} is a {type(value).__name__} of what may change")
    if isinstance(seen, tuple) or type(seen) in (bool, str, bytes, type(None)):
        tape.guards.pin(name, value)
        return seen, value
    raise Untraceable(f"its parameter {name!r} is a {type(value).__name__}")


def _extent(name: str, axis: int, extent: int, ndim: int, tape: TraceTape) -> Any:
    host = Host(extent, f"{name}__{axis}", tape.guards)
    if ndim > 1 and axis == ndim - 1 and 1 < extent <= FEW:
        tape.guards.pin(host.text, extent)
        return extent
    return normal(host)
