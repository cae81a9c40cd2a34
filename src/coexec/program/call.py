"""What belongs to one call of a kernel: its options, and the shapes by which calls are predicted alike.

Before: errors.py, program/placement.py.  After: program/kernel.py, graph/, plan/.  Knows no device.

A block `with placed(...)` holds for the context that opened it: its thread, or its asyncio task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, NamedTuple

from ..errors import ArgumentError
from .placement import Placement


class Key:
    """The shapes and types of one call's arrays: equal for calls that are predicted alike. Hashed once."""

    __slots__ = ("_hash", "_shapes", "kept", "varies", "work")

    def __init__(self, shapes: tuple[Any, ...]) -> None:
        self._shapes = shapes
        self._hash = hash(shapes)
        self.work: Any = None  # predict/features.py's own
        self.kept: dict[Any, Any] | None = None  # graph/mapped.py's own
        self.varies = False  # range mappers may say something else next time

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and self._shapes == other._shapes)

    def __repr__(self) -> str:
        return repr(self._shapes)


class Options(NamedTuple):
    """Options of one call, set with `kernel.using(...)`."""

    devices: str | None = None  # names, comma-separated; None = all
    priority: int = 0
    split: bool = True  # False: run undivided
    policy: str = ""  # how a division is made and kept: static, dynamic, auto, even; "" = as the runtime says
    oversubscribe: int = 1  # pieces that each device's part is cut into, so that copies overlap computation
    placement: Placement | None = None  # who computes which part; `devices` are its devices then
    loosely: bool = False  # a block around the call has said so: a call that cannot be cut so is divided as predicted
    streamed: bool = False  # for an item of a stream: what comes to its devices for it waits for what came before


DEFAULT = Options()
placed_now: ContextVar[Options] = ContextVar("coexec-placed", default=DEFAULT)
"""Options of calls that have none of their own: the placement of the innermost block."""


@contextmanager
def placed(where: Placement | str | None, *, item: int | None = None) -> Iterator[None]:
    """Place every call in a block: kernels, ready-made operations, operators and what they need.

    `where` is a placement or names of devices; None ends what a block around this one says. `item` is the number of the item
    of a stream, which decides whose turn it is among the replicas of the placement. A call that names devices or a
    placement itself is not affected. A call that cannot be cut as the placement says is divided over its devices as
    predictions say, and its plan tells why.
    """
    options = DEFAULT
    if where is not None:
        options = as_placed(Placement(where) if isinstance(where, str) else where, item)._replace(loosely=True)
    token = placed_now.set(options)
    try:
        yield
    finally:
        placed_now.reset(token)


def as_placed(where: Any, item: int | None = None) -> Options:
    """Return the options of a call that is placed; raise unless it is clear on which devices."""
    if not isinstance(where, Placement):
        raise ArgumentError(f"a placement is made by cx.Placement(devices, cut=...), not {where!r}")
    if item is not None:
        where = where.at(item)
    elif where.replicas > 1:
        raise ArgumentError(
            f"the placement has {where.replicas} groups in turn; say whose turn it is: placement.at(item)"
        )
    return DEFAULT._replace(devices=where.names, placement=where, streamed=item is not None)


def in_force(options: Options) -> Options:
    """Return the options of a call that is made now, with the placement of the block around it."""
    around = placed_now.get()
    return options if around is DEFAULT else _within(options, around)


def placed_in(context: Context | None) -> Options:
    """Return the options of a call in another context that has none of its own."""
    return DEFAULT if context is None else context.get(placed_now, DEFAULT)


def _within(options: Options, around: Options) -> Options:
    if options is DEFAULT:
        return around
    if options.devices is not None:
        return options
    return options._replace(devices=around.devices, placement=around.placement, loosely=True, streamed=around.streamed)


def check_oversubscribe(kernel: Any, count: Any) -> None:
    """Raise, with the reason, unless the parts of `kernel` may be cut again into `count` pieces."""
    why = "" if kernel.split else "it has no split=, so it is one piece"
    why = "its blocks are fixed, so that its bits do not depend on who computes them" if kernel.reduces else why
    why = "host tasks run whole" if kernel.host else why
    if type(count) is not int or count < 1:
        why = "it takes a whole number from 1"
    if why:
        raise ArgumentError(f"kernel {kernel.name!r} cannot have oversubscribe={count!r}: {why}")


def check_placed(kernel: Any, options: Options, placement: Placement | None) -> None:
    """Raise, with the reason, unless calls of `kernel` with these options may have a placement."""
    why = "devices= says the same; name them in the placement" if options.devices is not None else ""
    if placement is not None and placement.cut:
        why = "it has no split=, so it is one part; leave out cut=" if not kernel.split else why
        why = "split=False wants one part" if not options.split else why
        why = f"policy={options.policy!r} cuts otherwise" if options.policy else why
        if placement.rotate is not None and options.oversubscribe > 1:
            why = "oversubscribe= would change the order in which shards go around"
    why = "host tasks run on the host" if kernel.host else why
    if why:
        raise ArgumentError(f"kernel {kernel.name!r} cannot have a placement ({placement}): {why}")
