"""Items that a device gets together, because each by itself takes less time than handing it over: one task for all of them.

Before: stream/following.py, stream/frames.py.  After: stream/window.py.  Decides no place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..compile.serving import Bodies
from ..errors import Reported
from ..graph.task import Task
from ..program import session
from ..program.access import read
from ..program.body import signature
from ..program.call import Options
from ..program.kernel import Kernel
from ..program.mapper import all as map_all
from ..runtime import Runtime
from .following import Followed, Follower
from .frames import Frame, framed
from .item_session import Route, Watched
from .tape import Tape, TapedCall, TapedView
from .taping import Taping
from .trees import mapped

TOGETHER = 4e-3  # seconds of work that a device gets at a time
MOST_TOGETHER = 16  # items
SHORT = 4e-3  # seconds of an item: what takes longer gains nothing
LOOKED_AT = 8  # bundles before that is decided: the first ones load and compile
LEAVES = 4  # times that a function left its tape, after which a new one is written
TAPES = 3  # of one kind of items; beyond, the function does something else each time
KINDS = 16  # kinds of items that are known
MOST_BUFFERS = 4 * MOST_TOGETHER  # of one kind
ALONE = 4  # references to an array that only its run has: its attribute, two arguments, and that of the question


class FollowedItem(NamedTuple):
    """An item whose function has done what is on a tape."""

    tape: TapeRuns
    data: list[Any]  # its arrays
    followed: Followed


class Bundle:
    """Some items of one kind, and what became of them."""

    def __init__(self, known: KnownItems, items: Sequence[FollowedItem]) -> None:
        """Take items that were followed along one tape."""
        self._known, self._items, self._tape = known, list(items), items[0].tape
        self.results: list[Any] = [None] * len(items)
        self.errors: list[Exception | None] = [None] * len(items)
        self.task: Task | None = None
        self.told = Reported()
        self.told.yes = True  # whoever takes the items is told

    def submit(self, runtime: Runtime, options: Options) -> None:
        """Give all of them to a device."""
        tape = self._tape
        with session.answering(self.told):
            self.task = runtime.submit(tape.kernel, (self, *tape.outside), {}, options)

    def compute(self, arrays: Sequence[Any]) -> None:
        """Compute all of them, on the thread of a device."""
        tape = self._tape
        frame = tape.frame()
        frame.outside(arrays)
        begin = perf_counter()
        for number, item in enumerate(self._items):
            followed = item.followed
            try:
                frame.compute(item.data, followed.given, followed.numbers, tape.bodies)
                self.results[number] = _results(followed.result, frame)
            except Exception as error:  # noqa: BLE001 - it is computed by itself later, which tells what is wrong
                self.errors[number] = error
        tape.back(frame)
        self._known.took((perf_counter() - begin) / len(self._items))
        self._items = []


def _results(tree: Any, frame: Frame) -> Any:
    if type(tree) is TapedView:
        return frame.result(tree)
    return mapped(tree, lambda leaf: frame.result(leaf) if type(leaf) is TapedView else leaf)


class BundleBody:
    """A body: computes a bundle, with arrays from outside."""

    def __init__(self, name: str, arrays: int) -> None:
        self.__signature__ = signature(["bundle", *[f"x{n}" for n in range(arrays)]])
        self.__name__ = name

    def __call__(self, bundle: Bundle, *arrays: Any) -> None:
        """Compute."""
        bundle.compute(arrays)


class BundleKernel(Kernel):
    """A kernel that takes a bundle beside arrays."""

    def _check_scalar(self, name: str, value: Any) -> None:
        """Take anything: nobody but its device looks at a bundle."""


def bundle_kernel(tape: Tape) -> Kernel:
    """Return the kernel of bundles of one tape."""
    names = [entry.kernel.name for entry in tape.entries if isinstance(entry, TapedCall)]
    name = "+".join(names[:3]) + (f"+{len(names) - 3} more" if len(names) > 3 else "")
    accesses = {f"x{n}": read(map_all) for n in range(len(tape.outside))}
    return BundleKernel(BundleBody(name, len(accesses)), accesses, over=1, name=name)


class TapeRuns:
    """A tape that was written to its end, and what runs it: items keep the one that they were followed along."""

    def __init__(self, taping: Taping, tape: Tape, runtime: Runtime, takes: Any, bodies: Bodies | None) -> None:
        self.tape, self.bodies = tape, bodies
        self.outside = tuple(tape.outside.values())
        self.kernel = bundle_kernel(tape)
        self._first = framed(tape, taping.arrays, taping.ids(), runtime, takes)
        self._free = [self._first]

    def frame(self) -> Frame:
        """Return memory to compute items in, for the caller alone until it is given back."""
        try:
            return self._free.pop()
        except IndexError:
            return self._first.twin()

    def back(self, frame: Frame) -> None:
        """Take back memory."""
        frame.let_go()
        self._free.append(frame)


class KnownItems:
    """What is known of items of one kind."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._tape: TapeRuns | None = None
        self._follower: Follower | None = None
        self._in_use = Lock()
        self._buffers: list[np.ndarray[Any, Any]] = []  # that items were copied to, and that nobody looks at any more
        self._left = self._tapes = self._bundles = 0
        self.seconds = 0.0  # of an item; 0 = not known
        self.why = ""  # it is computed as ever

    def together(self, seconds: float) -> int:
        """How many items a device gets at a time, if it may be so many seconds of work."""
        if not self.seconds or self._tape is None:
            return 1
        return max(1, min(MOST_TOGETHER, round(seconds / self.seconds)))

    @property
    def taping(self) -> bool:
        """Whether a tape is to be written."""
        return self._tape is None and not self.why

    def follower(self) -> tuple[Follower, TapeRuns] | None:
        """Return what follows the function, for the caller alone until `back`; None if there is nothing, or if it is in use."""
        if self._tape is None or self.why or not self._in_use.acquire(blocking=False):
            return None
        if self._follower is None:
            self._follower = Follower(self._runtime, self._tape.tape)
        return self._follower, self._tape

    def back(self, follower: Follower) -> None:
        """Take it back."""
        if follower.left:
            self._follower = None
            self._left += 1
            if self._left >= LEAVES:
                self._tape, self._left = None, 0
        self._in_use.release()

    def learn(
        self, taping: Taping, results: Sequence[Any], takes: Callable[[Any], bool], bodies: Bodies | None
    ) -> None:
        """Take the tape of an item that was computed."""
        tape = taping.tape(results)
        self._tapes += 1
        if tape is None or self._tapes > TAPES:
            self.why = taping.why or "the function does something else each time"
            return
        self._tape = TapeRuns(taping, tape, self._runtime, takes, bodies)

    def copied(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a copy of an item that is one array."""
        try:
            copy = self._buffers.pop()
        except IndexError:
            return array.copy()
        np.copyto(copy, array)
        return copy

    def over(self, copy: Any) -> None:
        """Take back such a copy: the caller alone has it."""
        if type(copy) is np.ndarray and getrefcount(copy) <= ALONE and len(self._buffers) < MOST_BUFFERS:
            self._buffers.append(copy)

    @property
    def bytes(self) -> int:
        """Of the arrays of an item."""
        return self._tape.tape.bytes if self._tape is not None else 0

    def took(self, seconds: float) -> None:
        """Take the seconds that an item took."""
        known = self.seconds
        self.seconds = seconds if not known else min(seconds, 0.9 * known + 0.1 * seconds)
        self._bundles += 1
        if self._bundles >= LOOKED_AT and self.seconds > SHORT:
            self.why = "its items take long"


class Tapes:
    """What is known of the items of one function, by their kind."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[Any, KnownItems] = {}
        self._routes: dict[int, tuple[Route, bool]] = {}
        driver = runtime._driver
        config = driver.config
        told = config.debug or config.reproducible or bool(config.plan) or config.sync
        self.on = driver.parts.simulation is None and not told and not driver.scheduler.limits_host
        self._cores = {device.name for device in runtime.platform.devices if device.is_core and not device.ops}
        self.takes = lambda operation: driver.scheduler.takes(operation, np.geterr())
        self.bodies: Bodies | None = driver.parts.bodies

    def of(self, kind: Any) -> KnownItems | None:
        """Return what is known of a kind of items; None if they are computed as ever."""
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= KINDS:
                return None
            known = self._known[kind] = KnownItems(self._runtime)
        return None if known.why else known

    def serve(self, route: Route, watched: Watched) -> bool:
        """Tell whether items that go this way may be computed together: all of it in one stage, on cores."""
        if watched.log is not None or watched.states:
            return False
        known = self._routes.get(id(route))
        if known is None or known[0] is not route:
            places = route.places
            one = len(places) == 1 and self._cores.issuperset(places[0].devices)
            whole = one and places[0].placement.replicas == len(places[0].devices) and not places[0].placement.cut
            if len(self._routes) > KINDS:
                self._routes.clear()
            known = self._routes[id(route)] = (route, whole)
        return known[1]


def kind_of(item: Any) -> Any:
    """Return what items have in common that one tape may serve; None if none may."""
    if type(item) is np.ndarray:
        return None if item.dtype.hasobject or not item.size else (item.dtype, item.shape)
    found: list[Any] = []
    return tuple(found) if _describe(item, found) else None


def _describe(tree: Any, found: list[Any]) -> bool:
    kind = type(tree)
    if kind is np.ndarray:
        found += (tree.dtype, tree.shape)
        return not tree.dtype.hasobject and bool(tree.size)
    found.append(kind)
    if isinstance(tree, tuple | list):
        found.append(len(tree))
        return all(_describe(entry, found) for entry in tree)
    if isinstance(tree, dict):
        found += tree
        return all(_describe(entry, found) for entry in tree.values())
    return kind in LEAVES_BY_VALUE or isinstance(tree, np.generic)


LEAVES_BY_VALUE = frozenset({int, float, bool, complex, str, bytes, type(None)})
"""Types of leaves of an item that no calls see but by value."""
