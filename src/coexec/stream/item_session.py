"""The session in which a function computes one item: its calls are numbered, placed on their stages, and looked at.

Before: in_front.py.  After: stream/item.py.  Knows no order of items.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from time import perf_counter
from typing import Any, NamedTuple

from ..errors import PlanError, ProgramError
from ..graph.call import describe
from ..graph.task import raise_unseen
from ..in_front import InFront
from ..origin import program_line
from ..program import session
from ..program.array import Array
from ..program.call import DEFAULT, Options, as_placed, in_force, placed_now
from ..program.fuse import Operation
from ..program.kernel import Kernel
from ..program.placement import Placement
from ..program.storage import Storage
from ..runtime import Runtime


class StagePlace(NamedTuple):
    """Where the calls of one stage go."""

    label: str
    placement: Placement  # with replicas, if each device takes every n-th item; otherwise they share each item
    turns: tuple[Options, ...]  # of the calls of an item, by its turn
    fuses: bool = True  # its devices compute chains of operations as one kernel; else they do certain operations only
    copies: bool = False  # its devices have memories of their own: data comes and leaves over links

    @classmethod
    def of(cls, label: str, placement: Placement, *, fuses: bool = True, copies: bool = False) -> StagePlace:
        """Return where the calls of a stage go, with what all items have in common worked out once."""
        turns = [as_placed(placement, turn)._replace(loosely=True) for turn in range(placement.replicas)]
        return cls(label, placement, tuple(turns), fuses, copies)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of the stage."""
        return self.placement.devices


class Route(NamedTuple):
    """The stages of a function's calls, in the order in which it makes them."""

    names: tuple[str, ...] = ()  # the kernel of each call
    stages: tuple[int, ...] = ()  # the stage of each call
    places: tuple[StagePlace, ...] = ()

    def find(self, number: int, name: str, last: int) -> tuple[int, int]:
        """Return the position that a call stands at and its stage; (-1, stage of the last one) if it is not foreseen.

        Functions may branch: a call that is not where it was stands for the next one of its name.
        """
        names = self.names
        if number < len(names) and names[number] == name:
            return number, self.stages[number]
        for at in range(number + 1, len(names)):
            if names[at] == name:
                return at, self.stages[at]
        return -1, last


class CallSeen(NamedTuple):
    """One call of a function, as it was made."""

    kernel: Kernel
    arrays: tuple[Array, ...]  # in the order of the kernel's parameters, with those it returned
    scalars: Mapping[str, Any]
    options: Options
    line: str  # "file:number" of the program


class Watched(NamedTuple):
    """What is looked at while a function runs."""

    outer: frozenset[int]  # storages of constants, by id: whoever writes them has a state
    states: frozenset[int] = frozenset()  # those that may be written: items are then computed one after the other
    log: list[CallSeen] | None = None  # where calls are noted
    made: list[tuple[Storage, bool]] | None = None  # where new arrays are noted, and whether they came with values


SEEN = DEFAULT._replace(loosely=True)
"""Options of a function's calls: no other than usual, but calls on small arrays do not pass the session by."""


@contextmanager
def inside(item: ItemSession) -> Iterator[None]:
    """Let every call of the block pass through the session of an item, those on small arrays as well."""
    token = placed_now.set(SEEN)
    try:
        with session.within(item):
            yield
    finally:
        placed_now.reset(token)


class ItemSession(InFront):
    """Places the calls of one item."""

    def __init__(self, runtime: Runtime, index: int, route: Route, watched: Watched, own: Sequence[Storage]) -> None:
        """Begin the item number `index`; `own` are its arrays."""
        super().__init__(runtime)
        self.index = index
        self.bytes = 0  # of the arrays that were made
        self.wrote_item = False  # its own arrays have changed, so that it cannot be computed again
        self.stage = 0  # of the last call
        self._route, self._watched = route, watched
        self._next = 0
        self._given = frozenset([storage.id for storage in own])
        self._own = set(self._given)

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array with the runtime, as the item's own."""
        super().adopt(storage, data, borrowed=borrowed)
        self._own.add(storage.id)
        self.bytes += storage.box.volume * storage.dtype.itemsize
        if self._watched.made is not None:
            self._watched.made.append((storage, data is not None))

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call on the devices of its stage; where these cannot run it, anywhere."""
        self._check_writes(kernel, args, kwargs)
        place = None if kernel.host or options.devices is not None else self._place(kernel.name)
        token = placed_now.set(place) if place is not None else None
        try:
            result = self.runtime.submit(kernel, args, kwargs, in_force(options))
        except PlanError:
            if place is None:
                raise
            result = self.runtime.submit(kernel, args, kwargs, options)
        finally:
            if token is not None:
                placed_now.reset(token)
        if kernel.returns.names:
            for array in result if isinstance(result, tuple) else (result,):
                self._own.add(array._storage.id)
                self.bytes += array.nbytes
        if self._watched.log is not None:
            self._note(self._watched.log, kernel, args, kwargs, options, result)
        return result

    def record(
        self,
        kernel: Kernel,
        arrays: list[Array],
        scalars: dict[str, Any],
        options: Options,
        returned: tuple[Array, ...],
    ) -> None:
        """Record a call whose arguments are bound, and whose new arrays are there, on the devices of its stage."""
        place, driver, begin = self._place(kernel.name), self.runtime._driver, perf_counter()
        for where in (place or options, options):
            task = describe(kernel, [*arrays, *returned], scalars, where, self.runtime)
            task.submitted = begin
            try:
                with driver.lock:
                    driver.pump.catch_up()
                    driver._homes.leave(task.arrays)
                    driver.pump.call(task, begin)
                break
            except PlanError:  # these cannot run it: anywhere
                if where is options:
                    raise
        driver.keep_pace(task)

    def fuse(self, operation: Operation) -> bool:
        """Hold an operation back, to be computed with others of its stage; not while calls are looked at one by one."""
        if self._watched.log is not None:
            return False
        before = self._next, self.stage
        place = self._place(operation.kernel.name)
        if place is not None and not self._route.places[self.stage].fuses:
            self._next, self.stage = before
            return False
        token = placed_now.set(place) if place is not None else None
        try:
            held = self.runtime.fuse(operation)
        finally:
            if token is not None:
                placed_now.reset(token)
        if not held:  # it comes again, as a call
            self._next, self.stage = before
        return held

    def wait(self) -> None:
        """Wait for everything; raise what went wrong with this item, and leave other items' failures to them."""
        driver = self.runtime._driver
        driver.wait()
        told = session.answering_in(copy_context())
        raise_unseen(driver.executor.unseen(told))

    def _place(self, name: str) -> Options | None:
        """Return the options of the next call, which is of that kernel: where it goes. None: anywhere."""
        if not self._route.places:
            return None
        at, self.stage = self._route.find(self._next, name, self.stage)
        if at >= 0:
            self._next = at + 1
        turns = self._route.places[self.stage].turns
        return turns[self.index % len(turns)]

    def _check_writes(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look at what a call writes: arrays of the item, or others, which are then a state."""
        for param in kernel.array_params:
            if param.position < 0 or not param.access.writes:
                continue
            array = args[param.position] if param.position < len(args) else kwargs.get(param.name)
            if not isinstance(array, Array):
                continue
            if array._storage.id in self._given:
                self.wrote_item = True
            elif array._storage.id not in self._own and array._storage.id not in self._watched.states:
                raise self._stateful(kernel, array)

    def _stateful(self, kernel: Kernel, array: Array) -> Exception:
        file, line = program_line(sys._getframe(3))
        kind = "a constant" if array._storage.id in self._watched.outer else "an array from outside"
        return ProgramError(
            f"{file}:{line}: kernel {kernel.name!r} writes {kind} of shape {array.shape} while item {self.index} is computed, "
            "and did not for the sample; a function with a state is to write it for every item, or not at all"
        )

    def _note(
        self,
        log: list[CallSeen],
        kernel: Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Options,
        result: Any,
    ) -> None:
        arrays, scalars = kernel.bind(args, kwargs)
        returned: tuple[Array, ...] = ()
        if kernel.returns.names:
            returned = result if isinstance(result, tuple) else (result,)
        file, line = program_line(sys._getframe(2))
        log.append(CallSeen(kernel, (*arrays, *returned), scalars, options, f"{file}:{line}"))
