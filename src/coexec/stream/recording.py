"""What a function does with an item: its calls, what flows between them, and how long it keeps the program itself busy.

Before: stream/item.py.  After: stream/estimates.py.  Runs the function once; predicts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ArgumentError, ProgramError, Reported
from ..plan.pipeline import StreamValue
from ..plan.pipeline.point import Shape
from ..program import session
from ..program.array import Array
from ..program.storage import Storage
from ..runtime import Runtime
from .item import Function, driver_of
from .item_session import CallSeen, ItemSession, Route, Watched, inside
from .trees import copied, result_arrays, storages


@dataclass
class RecordedItem:
    """The calls of one item. Holds their arrays, so it is not kept for long."""

    calls: list[CallSeen]
    values: list[StreamValue]  # between calls, named by `names`
    names: list[str]  # of the calls, each once
    weights: list[float]  # bytes of constants that each call reads
    stateful: list[bool]  # whether each call writes a constant
    reads: int = 0  # how often the function waits for a value
    host: float = 0.0  # seconds that the function keeps the program busy, waits left out
    drags: Mapping[Shape, float] = field(default_factory=dict)  # of pipelines that were tried for items like it
    effects: bool = False  # the function was seen to do more than compute, so it is run no more often than it must be
    result: Any = field(default=None, repr=False)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of the calls, as a route names them."""
        return tuple([call.kernel.name for call in self.calls])

    @property
    def state_line(self) -> str:
        """The line that first writes a constant; "" if none does."""
        return next((call.line for call, writes in zip(self.calls, self.stateful, strict=True) if writes), "")


def busy_clock(runtime: Runtime) -> Callable[[], float]:
    """Return what tells how long the program's thread is busy: its processor time, or the virtual time of a simulation."""
    driver = driver_of(runtime)
    return time.thread_time if driver.parts.simulation is None else driver.recorder.clock


class CountedReads:
    """Counts the waits of a function, and how long they take."""

    def __init__(self, runtime: Runtime) -> None:
        self.count, self.seconds = 0, 0.0  # seconds for which the program is busy meanwhile
        self.waited = 0.0  # seconds by the clock on the wall
        self._driver, self._clock = driver_of(runtime), busy_clock(runtime)

    def until(self, task: Any) -> None:
        """Wait for a task in the place of the function."""
        self.count += 1
        begin, start = self._clock(), time.perf_counter()
        self._driver.wait_because(task, "stream")
        self.seconds += self._clock() - begin
        self.waited += time.perf_counter() - start


def record(
    runtime: Runtime, function: Function, constants: Mapping[str, Any], sample: Any, route: Route | None = None
) -> RecordedItem:
    """Run a function on a sample and return what it did. A function that writes constants runs on copies of them."""
    with session.within(runtime):
        try:
            return _record(runtime, function, constants, copied(sample), route or Route(), stateful=False)
        except _Writes:
            copies = {name: copied(value) for name, value in constants.items()}
            return _record(runtime, function, copies, copied(sample), route or Route(), stateful=True)


class _Writes(Exception):
    """A function writes a constant."""


class _Watching(ItemSession):
    """Tells a function that writes its constants from one that writes anything else outside."""

    def _stateful(self, kernel: Any, array: Array) -> Exception:
        told = super()._stateful(kernel, array)
        if array._storage.id in self._watched.outer:
            return _Writes()
        text = str(told).partition(" while item")[0]
        return ProgramError(f"{text}; pass it to cx.Pipeline as a constant, so that items are computed in order")


def _record(
    runtime: Runtime, function: Function, constants: Mapping[str, Any], sample: Any, route: Route, *, stateful: bool
) -> RecordedItem:
    given = list(storages(sample))
    outer = frozenset([storage.id for storage in storages(list(constants.values()))])
    log: list[CallSeen] = []
    made: list[tuple[Storage, bool]] = []
    watched = Watched(outer, outer if stateful else frozenset(), log, made)
    watching = _Watching(runtime, 0, route, watched, given)
    reads = CountedReads(runtime)
    clock = busy_clock(runtime)
    told = Reported()
    told.yes = True  # whoever computes the sample for its result is told what goes wrong with it
    begin = clock()
    before, session.giving_way.until = session.giving_way.until, reads.until
    try:
        with inside(watching), session.answering(told):
            result = function(sample, **constants)
    finally:
        session.giving_way.until = before
    host = max(0.0, clock() - begin - reads.seconds)
    if not log:
        raise ArgumentError(_nothing(getattr(function, "__name__", "the function"), bool(given)))
    found = flow(log, given, made, result)
    found.reads, found.host, found.result = reads.count, host, result
    return found


def _nothing(name: str, arrays: bool) -> str:
    """Return why a function has nothing to place, with the remedy."""
    told = f"{name} calls no kernel, operation or ufunc on coexec arrays, so there is nothing to place"
    if not arrays:
        return f"{told}: its item has no NumPy array. Other values are passed as they are; make arrays of them in the source"
    return (
        f"{told}; does it use its item? SciPy's matrices and other libraries read arrays and compute by themselves: "
        "take cx.csr(matrix), and coexec's operations"
    )


def flow(
    log: Sequence[CallSeen],
    given: Sequence[Storage],
    made: Sequence[tuple[Storage, bool]],
    result: Any,
) -> RecordedItem:
    """Return what flows between calls: who wrote last what a call reads, and which of it are constants."""
    names = [f"{number}.{call.kernel.name}" for number, call in enumerate(log)]
    source: dict[int, str | None] = {storage.id: None for storage in given}
    source |= {storage.id: None for storage, valued in made if valued}
    local = set(source) | {storage.id for storage, _ in made}
    values: dict[tuple[int, str | None], StreamValue] = {}
    weights, stateful = [0.0] * len(log), [False] * len(log)

    def read(id: int, nbytes: float, reader: str | None) -> None:
        if id not in source:
            return  # nobody has written it, so nothing moves
        known = values.get((id, source[id]), StreamValue(0.0, source[id]))
        readers = known.readers if reader is None or reader in known.readers else (*known.readers, reader)
        values[id, source[id]] = StreamValue(
            max(known.bytes, nbytes), known.source, readers, result=known.result or reader is None
        )

    for number, call in enumerate(log):
        on_host = call.kernel.host
        for param, array in zip(call.kernel.array_params, call.arrays, strict=False):
            id = array._storage.id
            if param.position < 0:
                local.add(id)
            mine = id in local
            if not mine and param.access.writes:
                stateful[number] = True
            if param.access.reads:
                if mine:
                    read(id, float(array.nbytes), None if on_host else names[number])
                else:
                    weights[number] += float(array.nbytes)
        for param, array in zip(call.kernel.array_params, call.arrays, strict=False):
            if param.access.writes and array._storage.id in local:
                source[array._storage.id] = None if on_host else names[number]
    for array in result_arrays(result):
        read(array._storage.id, float(array.nbytes), None)
    return RecordedItem(list(log), list(values.values()), names, weights, stateful)
