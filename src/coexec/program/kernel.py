"""Kernels: a Python body, the declared access of each array, and how the index space may be divided.

Before: program/access.py, program/array.py.  After: graph/task.py.  Knows no device; a call goes to the session.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from itertools import count
from typing import Any, NamedTuple

from ..config import POLICIES
from ..errors import ArgumentError, CoexecWarning, ShapeError, unknown_name
from ..geometry import Box, whole
from . import session
from .access import Access, write
from .array import Array
from .call import DEFAULT, Key, Options, as_placed, check_oversubscribe, check_placed, in_force, placed_now
from .capture import PLAIN, Captured, is_plain, rebound_outputs, warn_if_drawing
from .cost import NOTHING_SAID, DeclaredCost, declare_cost
from .mapper import All, Same, all as map_all
from .placement import Placement
from .refusals import mutable, not_an_array, undeclared
from .returns import Returns, as_returns
from .value import Value
from .variant import Numerics, Variant, check_numerics, exact

SPECIAL = ("chunk", "xp")
_serials = count(1)
NO_SCALARS: dict[str, Any] = {}
SPACES = 64  # shapes of calls that are remembered as checked


class ArrayParam(NamedTuple):
    """An array parameter: its position in the signature (-1 for returned arrays) and its access."""

    name: str
    position: int
    access: Access


class Kernel:
    """A kernel. Calling it records a task and returns at once."""

    host = False  # host tasks are kernels that only the host runs
    internal = False  # coexec's own: its scalars are made to last and need no check
    op = ""  # what devices that list their operations call it, if that is not its name
    blind = False  # never looks at an array that it updates: what it does not assign just stays
    by_itself = False  # its body keeps to caches by itself, as BLAS does: to compute it in pieces gains nothing
    pointwise = False  # each point reads its own elements before it writes them, on every device
    order: Any = None  # host tasks with equal `order` run in program order

    def __init__(
        self,
        function: Callable[..., Any],
        accesses: dict[str, Access],
        *,
        split: int | Sequence[int] | None = None,
        over: str | int | Sequence[int] | None = None,
        returns: Any = None,
        name: str | None = None,
        granule: int = 1,
        cost: DeclaredCost = NOTHING_SAID,
        numerics: Numerics = exact,
    ) -> None:
        update_wrapper(self, function)
        self.serial = next(_serials)
        self.numerics = numerics  # how close to the body's own results what is made of it has to come
        self.cost = cost  # flops, features and weight, as declared
        self.scratches = cost.scratches  # whether temporaries were declared
        self.choices: tuple[Any, int, dict[str | None, Any]] = (None, 0, {})  # plan/candidate.py's own
        self.compiled: Any = None  # compile/serving.py's own: what was compiled of its body
        self.operands: dict[str, Any] = {}  # of a ufunc or a chain: what is known of each parameter before any call
        self.compilable: bool | None = None  # compile/serving.py's own: whether its body can be; None: not looked at
        self.lent: frozenset[str] | None = None  # backend/launch.py's own: inputs that its body gets as they are
        self.counts: Any = None  # predict/operations.py's own: the operations of its body
        self.function, self.name = function, name or function.__name__
        self.signature = inspect.signature(function)
        self.params = _parameters(self.name, self.signature)
        self.passed = tuple(p for p in self.params if p not in SPECIAL)
        self.takes_chunk, self.takes_xp = "chunk" in self.params, "xp" in self.params
        self.keyword_only = _keyword_only(self.signature)
        self.returns: Returns = as_returns(returns)
        self._declare(accesses, divisible=split is not None)
        self.split = () if split is None else (split,) if isinstance(split, int) else tuple(split)
        self.over, self.granule = over, granule  # parts are multiples of so many rows
        self._check_declaration()
        special = self.takes_chunk or self.takes_xp or self.returns.names or self.keyword_only
        self.plain = not special  # arguments as passed, nothing more
        self.space_varies = any(name == over for _, name in self.scalar_params)
        self._spaces: dict[Any, tuple[tuple[int, ...], Box, Any]] = {}
        body = Variant("python", "python", function=function, numerics=exact)
        self.variants: list[Variant] = [body]
        plain = inspect.isfunction(function)
        self._captured = Captured(function) if plain else None  # type: ignore[arg-type]
        self.captures_nothing = self._captured is None or self._captured.nothing
        if self.split:
            warn_if_drawing(f"kernel {self.name!r}", function, stacklevel=3)
        for output, line in rebound_outputs(function, (p.name for p in self.array_params if p.access.writes)):
            warnings.warn(
                f"kernel {self.name!r} (line {line}) rebinds its output {output!r}, so the array passed in does not "
                f"change; write into it: {output}[...] = ...",
                CoexecWarning,
                stacklevel=3,
            )

    def _declare(self, accesses: dict[str, Access], *, divisible: bool) -> None:
        unknown = [name for name in accesses if name not in self.passed]
        if unknown:
            raise ArgumentError(
                f"kernel {self.name!r} declares access to {', '.join(map(repr, unknown))}, but its parameters are "
                f"({', '.join(self.passed)}); options are split, over, returns, name, granule, numerics"
            )
        params = [ArrayParam(p, i, accesses[p]) for i, p in enumerate(self.passed) if p in accesses]
        params += [ArrayParam(name, -1, write) for name in self.returns.names]
        if not divisible and all(type(p.access.mapper) in (Same, All) for p in params):
            # One chunk: the part that an array shares with the index space is the whole array.
            params = [p._replace(access=_whole(p.access)) for p in params]
        self.array_params = tuple(params)
        self.scalar_params = tuple((i, p) for i, p in enumerate(self.passed) if p not in accesses)
        self.looked_at = tuple(p for _, p in self.scalar_params if p in self.cost.takes)  # scalars that features use
        self.reduces = any(p.access.mode == "reduce" for p in params)
        # Whole-array mappers everywhere: an undivided call touches exactly what it was given.
        self.simple = not self.reduces and all(type(p.access.mapper) in (Same, All) for p in params)

    def _check_declaration(self) -> None:
        if isinstance(self.over, str) and self.over not in self.passed:
            raise ArgumentError(f"kernel {self.name!r}: over={self.over!r} is not one of its parameters")
        if self.split and not self.host and not any(p.access.writes for p in self.array_params):
            raise ArgumentError(f"kernel {self.name!r} declares split= but writes no array; declare its outputs")
        if self.granule < 1 or (self.granule > 1 and not self.split):
            raise ArgumentError(
                f"kernel {self.name!r}: granule={self.granule!r} takes a number from 1, and needs split="
            )
        if any(axis < 0 for axis in self.split):
            raise ArgumentError(f"kernel {self.name!r}: split axes count from 0, not {self.split}")

    # Calls ------------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record a task and return at once: its handle, or the new arrays of the functional form."""
        return session.current().submit(self, args, kwargs, placed_now.get())

    def using(
        self,
        *,
        devices: str | None = None,
        priority: int = 0,
        split: bool = True,
        policy: str = "",
        oversubscribe: int = 1,
        placement: Placement | None = None,
    ) -> Configured:
        """Return this kernel with options for the calls made through it."""
        if policy and policy not in POLICIES:
            raise unknown_name("policy", policy, POLICIES)
        if oversubscribe != 1:
            check_oversubscribe(self, oversubscribe)
        options = Options(devices, priority, split, policy, oversubscribe)
        if placement is not None:
            where = as_placed(placement)
            check_placed(self, options, where.placement)
            options = options._replace(devices=where.devices, placement=where.placement)
        return Configured(self, options)

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """Return the Plan of a call with these arguments, without making the call."""
        return session.current().plan(self, args, kwargs, in_force(DEFAULT))

    def body(self) -> Callable[..., Any]:
        """Return the Python body with the outside values of this moment."""
        return self.function if self._captured is None or self.captures_nothing else self._captured.fixed()

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Array], dict[str, Any]]:
        """Return the arrays, in the order of `array_params`, and the scalars by name."""
        if kwargs or len(args) != len(self.passed) or self.keyword_only:
            args = self._complete(args, kwargs)
        arrays: list[Array] = []
        for param in self.array_params:
            position = param[1]
            if position >= 0:
                array = args[position]
                if type(array) is not Array and (type(array) is not Value or param.access.writes):
                    raise not_an_array(self.name, param.name, param.access.mode, array)
                arrays.append(array)
        if not self.scalar_params:
            return arrays, NO_SCALARS
        scalars = {}
        for position, name in self.scalar_params:
            value = args[position]
            if type(value) not in PLAIN and not self.internal:
                self._check_scalar(name, value)
            scalars[name] = value
        return arrays, scalars

    def _complete(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        special = {name: None for name in self.params if name in SPECIAL}
        for name in special:
            if name in kwargs:
                raise ArgumentError(f"kernel {self.name!r}: {name!r} is given by coexec, do not pass it")
        if special:
            names = iter(self.passed)
            kwargs = {**{next(names): a for a in args[: len(self.passed)]}, **kwargs} if args else kwargs
            if len(args) > len(self.passed):
                raise ArgumentError(f"kernel {self.name!r} takes ({', '.join(self.passed)}), got {len(args)} arguments")
            args = ()
        try:
            bound = self.signature.bind(*args, **kwargs, **special)
        except TypeError as error:
            raise ArgumentError(f"kernel {self.name!r} takes ({', '.join(self.passed)}): {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in self.passed)

    def _check_scalar(self, name: str, value: Any) -> None:
        if isinstance(value, Array):
            if value.ndim:
                raise undeclared(self.name, name, value.shape)
        elif not is_plain(value):
            inside = [entry for entry in value if not is_plain(entry)] if isinstance(value, tuple | frozenset) else []
            raise mutable(self.name, name, value, *inside[:1])

    # Index space --------------------------------------------------------------------------------------------------

    def space(self, arrays: Sequence[Array], scalars: dict[str, Any]) -> tuple[tuple[int, ...], Box, Any]:
        """Return the shape of the index space, the part of it that is visited, and a key for these shapes. Checks all."""
        shapes = tuple([(array._shape, array._storage.dtype.num) for array in arrays])
        if self.space_varies:
            shape, visited = self.find_space(arrays, scalars)
            return shape, visited, Key((shapes, shape))
        known = self._spaces.get(shapes)
        if known is None:
            known = (*self.find_space(arrays, scalars), Key(shapes))
            if len(self._spaces) >= SPACES:
                self._spaces.clear()
            self._spaces[shapes] = known
        return known

    def find_space(self, arrays: Sequence[Array], scalars: dict[str, Any]) -> tuple[tuple[int, ...], Box]:
        """Return the shape of the index space and the part of it that is visited, of arrays of any kind. Checks all."""
        shape = self._space_shape(arrays, scalars)
        visited = whole(shape)
        for param, array in zip(self.array_params, arrays, strict=True):
            mapper = param.access.mapper
            if param.access.mode != "reduce":
                mapper.check(param.name, array.shape, shape)
                visited = mapper.visited(visited, array.shape)
        if self.split and max(self.split) >= len(shape):
            raise ShapeError(f"kernel {self.name!r} is split along axis {max(self.split)}; its index space is {shape}")
        return shape, visited

    def _space_shape(self, arrays: Sequence[Array], scalars: dict[str, Any]) -> tuple[int, ...]:
        over = self.over
        if over is None:
            for param, array in zip(self.array_params, arrays, strict=True):
                if param.access.writes and param.access.mode != "reduce":
                    return array.shape
            return arrays[0].shape if arrays else ()
        if not isinstance(over, str):
            return (over,) if isinstance(over, int) else tuple(over)
        for param, array in zip(self.array_params, arrays, strict=True):
            if param.name == over:
                return array.shape
        extent = scalars[over]
        if isinstance(extent, bool) or not hasattr(extent, "__index__") or isinstance(extent, Array):
            raise ArgumentError(f"kernel {self.name!r}: over={over!r} needs an integer, got {extent!r}")
        if (count := int(extent)) < 0:
            raise ShapeError(f"kernel {self.name!r}: over={over!r} is {count}; an index space cannot be negative")
        return (count,)

    # Variants -----------------------------------------------------------------------------------------------------

    def variant(
        self, function: Callable[..., Any], *, kind: str = "cpu", name: str | None = None, numerics: Numerics = exact
    ) -> Callable[..., Any]:
        """Add another callable that computes the same: on NumPy arrays, or on those of another `kind` of device."""
        label = name or str(getattr(function, "__name__", "callable"))
        self.variants.append(Variant(label, kind, function=function, numerics=numerics))
        return function

    def opencl(
        self,
        source: str,
        *,
        entry: str | None = None,
        global_size: Callable[..., Any] | None = None,
        local_size: tuple[int, ...] | None = None,
        numerics: Numerics | None = None,
        contract: bool = False,
        elsewhere: Variant | None = None,
    ) -> Kernel:
        """Add OpenCL C source for this kernel: a statement per index-space point, or a whole `__kernel`.

        `contract` allows fused multiply-add; devices that are no CPU run the variant `elsewhere` instead, if given.
        """
        self.variants.append(
            Variant(
                "opencl",
                "opencl",
                source=source,
                entry=entry,
                global_size=global_size,
                local_size=local_size,
                numerics=Numerics(2) if numerics is None else numerics,
                contract=contract,
                elsewhere=elsewhere,
            )
        )
        return self

    def __repr__(self) -> str:
        inner = ", ".join(f"{p.name}={p.access!r}" for p in self.array_params)
        return f"<cx.kernel {self.name}({inner})>"


class Configured:
    """A kernel with options for its calls."""

    __slots__ = ("_kernel", "_options")

    def __init__(self, kernel: Kernel, options: Options) -> None:
        self._kernel = kernel
        self._options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record a task with these options and return at once."""
        return session.current().submit(self._kernel, args, kwargs, in_force(self._options))

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """Return the Plan of a call with these options and arguments, without making the call."""
        return session.current().plan(self._kernel, args, kwargs, in_force(self._options))


def check_accesses(accesses: dict[str, Any]) -> None:
    """Raise unless every declared access is one."""
    for name, access in accesses.items():
        if not isinstance(access, Access):
            raise ArgumentError(
                f"{name}={access!r} is neither an access nor an option; use cx.read, cx.write, cx.update or "
                "cx.reduce(op), with a range mapper as in cx.read(cx.halo(1))"
            )


def _whole(access: Access) -> Access:
    return access if access.mode == "reduce" else access(map_all)


def _keyword_only(signature: inspect.Signature) -> tuple[str, ...]:
    return tuple(p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY)


def _parameters(name: str, signature: inspect.Signature) -> tuple[str, ...]:
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ArgumentError(f"kernel {name!r} takes *{parameter.name}; name every parameter instead")
    return tuple(signature.parameters)


def kernel(
    *bare: Callable[..., Any],
    split: int | Sequence[int] | None = None,
    over: str | int | Sequence[int] | None = None,
    returns: Any = None,
    name: str | None = None,
    granule: int = 1,
    flops: Callable[..., float] | float | None = None,
    features: Mapping[str, Callable[..., float]] | None = None,
    weight: Callable[..., Any] | None = None,
    scratch: Callable[..., float] | float | None = None,
    numerics: Numerics = exact,
    **accesses: Any,
) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel: `@cx.kernel(split=0, x=cx.read, y=cx.update)`.

    Each array parameter names its access; all others are passed by value. `split` names the axes of the index space
    along which coexec may divide the task; without it the task is indivisible. The index space is the first written
    array unless `over` names an array, a shape or an integer parameter. `returns` makes the functional form. Parts begin
    at multiples of `granule` rows.

    Predictions are made from bytes and points, and better ones from what only you know: `flops` and each of `features`
    is a function of named arguments (arrays arrive as shapes: `.shape`, `.size`, `.dtype`, `.nbytes`), called for the
    part that a chunk gets; a plain number for `flops` counts per point. `weight` is a function of row numbers along the
    axis that is cut, `weight(rows)`, and says how much work each row is: shares become fractions of work. `scratch` is
    the bytes of temporaries while the body runs, per point or a function like `flops`: memory is kept free for them.
    `numerics=cx.close(ulp)` lets compiled forms of the body add in any order, within so many ulp of the largest result.
    """
    check_accesses(accesses)
    cost = declare_cost(flops, features, weight, scratch)
    options: dict[str, Any] = {"split": split, "over": over, "returns": returns, "name": name, "granule": granule}
    options |= {"cost": cost, "numerics": check_numerics(numerics)}

    def make(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, accesses, **options)

    if bare:
        raise ArgumentError("write @cx.kernel(...) with the access of each array: @cx.kernel(x=cx.read, y=cx.update)")
    return make
