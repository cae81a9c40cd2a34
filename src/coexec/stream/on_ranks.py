"""Streams on several ranks: items are dealt, each rank computes its own on its own devices, and all ranks get all results.

Before: stream/stream.py, stream/travelling.py.  After: stream/pipeline.py.  Plans nothing: each rank plans for its devices.

Who computes which item depends on its number and on the ranks' shares alone. After each item or a few, every rank tells
all others what became of its own, and all hand over the same results, failures and ends, in order.
"""

from __future__ import annotations

import builtins
import json
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from .. import errors
from ..errors import ArgumentError, CoexecError, ItemFailed, ProgramError, RanksDiverge
from ..graph.failure import failed_as
from ..plan.plan import Plan, named_for
from ..program import session
from ..program.array import Array
from ..runtime import Runtime
from .failures import FailurePolicy, StreamFailure
from .sources import started
from .travelling import packed, unpacked
from .trees import leaves

if TYPE_CHECKING:
    from .pipeline import Pipeline
    from .stream import Stream

WHAT = "the other ranks' items"
SHORT, LONG = 2e-3, 8e-3
"""Seconds for their items below which ranks tell each other of twice as many at a time, and above which of half as many."""
MOST = 16
"""Items of each rank of which ranks tell each other at a time, at most."""
FAILED = "TaskFailed["  # how the names of classes begin that are caught as the class in brackets


class HasState(ProgramError):
    """Items of a function depend on those before them."""


class Outcome(NamedTuple):
    """What became of an item, as its rank tells it."""

    how: str  # value, failed (the item), over (there is none), or broken (the stream)
    value: Any = None  # of a failure: its stage, the class of the error, and its text; of an end: the same, or None


def dealt(shares: Sequence[float]) -> Iterator[int]:
    """Yield which rank computes each item: the one that would be done with it first, if ranks are as fast as their shares."""
    done = [0] * len(shares)
    while True:
        rank = min(range(len(shares)), key=lambda rank: ((done[rank] + 1) / shares[rank], rank))
        done[rank] += 1
        yield rank


class OwnItems(Iterator[Any]):
    """The items of one rank, of an iterable that gives the same to all ranks."""

    def __init__(self, items: Iterable[Any], after: int | None, owners: Iterator[int], rank: int) -> None:
        self._iterator, self.first = started(items, after)
        self._index = self.first
        self._owners, self._rank = owners, rank
        self.over = False
        self.error: Exception | None = None

    def __next__(self) -> Any:
        while not self.over:
            found = self._next()
            if found is not None and next(self._owners) == self._rank:
                return found[0]
        raise StopIteration

    def _next(self) -> tuple[Any] | None:
        """Take the next item of any rank; what the iterable raises is told when everything before it is handed over."""
        try:
            item = next(self._iterator)
            if any(isinstance(leaf, Array) for leaf in leaves(item)):
                raise ArgumentError(
                    "an item has a coexec array, which all ranks hold together; with several ranks give NumPy arrays"
                )
        except StopIteration:
            self.over = True
            return None
        except Exception as error:  # noqa: BLE001 - told later
            error.add_note(f"raised by the iterable of a stream in the place of item {self._index}")
            self.over, self.error = True, error
            return None
        self._index += 1
        return (item,)

    def close(self) -> None:
        """Close a generator."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()


class RankStream(Iterator[Any]):
    """Gives the results of all items on every rank, one by one. `close`, or the end of a `with` block, ends it early."""

    dropped = 0

    def __init__(
        self,
        runtime: Runtime,
        local: Stream,
        own: OwnItems,
        owners: Iterator[int],
        policy: FailurePolicy,
        most: int = MOST,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Take items of `local`, this rank's own stream; ranks tell each other of `most` items each at a time."""
        self._runtime, self._local, self._own, self.policy = runtime, local, own, policy
        self._owners = enumerate(owners, own.first)
        self._out: deque[tuple[int, Outcome]] = deque()  # of all ranks, by number of the item
        self._each, self._most, self._clock = 1, most, clock
        self.position = own.first - 1
        self.closed = False

    @property
    def failures(self) -> list[StreamFailure]:
        """The items that have no result."""
        return self.policy.failures

    @property
    def in_flight(self) -> int:
        """How many items of this rank have begun and were not handed over."""
        return self._local.in_flight

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self.closed:
            raise StopIteration
        try:
            while True:
                if not self._out:
                    self._round()
                result = self._handed_over(*self._out.popleft())
                if result is not None:
                    return result[0]
        except BaseException:  # the end, a failure, or Ctrl-C at any moment
            self.close()
            raise

    def __aiter__(self) -> Any:
        raise ProgramError("with several ranks results come by a plain `for`: event loops of ranks are not in step")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream on this rank; all ranks end it after the same item. Idempotent."""
        if not self.closed:
            self.closed = True
            self._local.close()

    # All ranks together -----------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """Let all ranks tell what became of the next items, some for each of them, and how long they waited for their own."""
        place, size = self._runtime.place
        begun = self._clock()
        turns = list(islice(self._owners, size * self._each))
        mine = [(index, self._mine()) for index, owner in turns if owner == place]
        seconds = self._clock() - begun
        try:
            words = packed((seconds, _told(mine)))
        except ArgumentError as error:  # a result that cannot travel
            mine = [(index, Outcome("broken", error)) for index, _ in mine]
            words = packed((seconds, _told(mine)))
        told = [unpacked(words) for words in self._runtime.told(words, WHAT)]
        self._pace(max(seconds for seconds, _ in told))
        by_item: dict[int, Outcome] = {index: Outcome(*entry) for _, entries in told for index, entry in entries}
        by_item |= dict(mine)  # a rank's own errors and results are as they are
        order = [by_item[index] for index, _ in turns]
        ended = next((number for number, outcome in enumerate(order) if outcome.how == "over"), len(turns))
        beyond = next((i for i in range(ended, len(turns)) if order[i].how in ("value", "failed")), None)
        if beyond is not None:
            raise RanksDiverge(
                f"rank {turns[ended][1]} has no item {turns[ended][0]} and rank {turns[beyond][1]} has an item "
                f"{turns[beyond][0]}; give the same items on every rank"
            )
        self._out.extend((index, outcome) for (index, _), outcome in zip(turns, order, strict=True))

    def _pace(self, longest: float) -> None:
        """Let ranks tell of more items at a time if these are quick, and of fewer if somebody may wait for one: all alike."""
        if longest < SHORT:
            self._each = min(self._most, 2 * self._each)
        elif longest > LONG:
            self._each = max(1, self._each // 2)

    def _mine(self) -> Outcome:
        """Take the next result of this rank's own stream."""
        try:
            with session.within(self._runtime.alone()):
                value = next(self._local)
        except StopIteration:
            return Outcome("over", self._own.error)
        except Exception as error:  # noqa: BLE001 - every rank raises it
            return Outcome("broken", error)
        if isinstance(value, ItemFailed) and isinstance(value.__cause__, HasState):
            return Outcome("broken", ProgramError(str(value.__cause__)))  # of no item, but of the function
        return Outcome("failed", value) if isinstance(value, ItemFailed) else Outcome("value", value)

    def _handed_over(self, index: int, outcome: Outcome) -> tuple[Any] | None:
        """Return the result of an item, or what stands in its place; None if nothing does."""
        how, value = outcome
        if how in ("over", "broken"):
            raise StopIteration if value is None else _error(value)
        self.position = index
        if how == "value":
            self.policy.passed()
            return (value,)
        stage, error = (value.stage, value.__cause__ or value) if isinstance(value, ItemFailed) else _failure(value)
        stand_in = self.policy.failed(StreamFailure(index, stage, error))
        return None if stand_in is None else (stand_in,)


def stream_on_ranks(
    pipe: Pipeline,
    runtime: Runtime,
    items: Any,
    on_error: str,
    max_failures: float | None,
    after: int | None,
    **options: Any,
) -> RankStream:
    """Return the stream of all ranks over `items`, which every rank is given alike. `options` are those of `stream`."""
    if not isinstance(items, Iterable) or isinstance(items, AsyncIterable):
        raise ArgumentError(
            "with several ranks stream() takes a plain iterable, which gives the same items on each rank"
        )
    for name, usual in (("order", "input"), ("drop", None)):
        if options.get(name, usual) != usual:
            raise ArgumentError(f"{name}={options[name]!r} goes by what comes first, which differs between ranks")
    policy, (rank, _) = FailurePolicy(on_error, max_failures), runtime.place
    own = OwnItems(items, after, dealt(runtime.shares), rank)
    with session.within(runtime.alone()):
        local = pipe.stream(own, on_error="return", **options | {"progress": False})
    most = 1 if options.get("objective") == "latency" else MOST
    return RankStream(runtime, local, own, dealt(runtime.shares), policy, most)


def agreed(runtime: Runtime | None, plans: list[Plan]) -> list[Plan]:
    """Return the plans that all ranks show: those of the first rank. Each rank keeps to its own, for its devices."""
    if runtime is None:
        return plans
    told = runtime.told(json.dumps([plan.as_dict() for plan in plans]).encode(), "the plans of all ranks")
    size = runtime.place[1]
    found = [_on_first(Plan.from_dict(entry)) for entry in json.loads(told[0])]
    return [
        replace(plan, ranks=size, why=f"each of {size} ranks takes items in turn; of rank 0: {plan.why}")
        for plan in found
    ]


def _on_first(plan: Plan) -> Plan:
    return replace(named_for(plan, 0), children=tuple([_on_first(child) for child in plan.children]))


def check_stateless(state_line: str) -> None:
    """Raise if a function has a state, whose items one rank would have to compute one after the other."""
    if state_line:
        raise HasState(
            f"{state_line} writes a constant, so items depend on those before them, and ranks compute items side by side; "
            "use a cx.Runtime(join=False) on one rank"
        )


# Words -------------------------------------------------------------------------------------------------------------------


def _told(mine: Sequence[tuple[int, Outcome]]) -> list[tuple[int, tuple[str, Any]]]:
    """Return what a rank tells of its items."""
    found: list[tuple[int, tuple[str, Any]]] = []
    for index, (how, value) in mine:
        if how == "value" or value is None:
            found.append((index, (how, value)))
        elif isinstance(value, ItemFailed):
            found.append((index, (how, (value.stage, *_described(value.__cause__ or value)))))
        else:
            found.append((index, (how, ("", *_described(value)))))
    return found


def _described(error: BaseException) -> tuple[str, str]:
    name = type(error).__name__
    return (name.removeprefix(FAILED).rstrip("]") if name.startswith(FAILED) else name), str(error)


def _failure(told: tuple[str, str, str]) -> tuple[str, BaseException]:
    """Return the stage and the error of which another rank told."""
    stage, name, text = told
    kind = next((found for place in (builtins, errors) if isinstance(found := vars(place).get(name), type)), None)
    return stage, failed_as(kind if kind is not None and issubclass(kind, Exception) else CoexecError)(text)


def _error(value: Any) -> BaseException:
    return value if isinstance(value, BaseException) else _failure(value)[1]
