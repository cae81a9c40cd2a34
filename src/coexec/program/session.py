"""The runtime as the program sees it: a protocol and the current one.

Before: nothing.  After: program/array.py, program/kernel.py.  Knows no stage; runtime.py fills it in.

A `with` block holds for the context that opened it: its thread, or its asyncio task. The main thread's blocks hold for
every thread that has none of its own. Where there is no block, the default runtime serves all threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import NestedCallError, Reported, RuntimeClosed

if TYPE_CHECKING:
    from .array import Array
    from .call import Options
    from .fuse import Operation
    from .kernel import Kernel
    from .storage import Storage


class Session(Protocol):
    """What arrays and kernels ask of a runtime."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be asked of it any more."""

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array, with its first contents if `data` is not None."""

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call and return its task, or its new arrays."""

    def fuse(self, operation: Operation) -> bool:
        """Hold an elementwise operation back, to be computed with those that use its result; False if not possible."""

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Return the Plan of a call, without making the call."""

    def begin_step(self, times: int = 0) -> Any:
        """Begin a step that the program names, which it says will come so many `times`; return what `end_step` needs."""

    def end_step(self, begun: Any, *, left: bool) -> tuple[bool, str]:
        """End a step; tell whether it was replayed, and else why not."""

    def read(self, array: Array) -> Any:
        """Wait for `array` alone and return its elements as a read-only ndarray."""

    def wait(self) -> None:
        """Wait for everything; raise what the program has not seen, as a group."""

    def flush(self) -> None:
        """Begin with everything so far, whatever is still to come."""

    def quiet(self) -> bool:
        """Tell whether nothing is under way, so that arrays may be written anew without waiting, and no other rank must do the same."""

    def dropped(self, storage_id: int) -> None:
        """Note that the last handle of an array is gone. Called by finalizers: only enqueues."""


class InKernel(threading.local):
    """Tells whether the present thread runs a body."""

    name: str = ""


in_kernel = InKernel()


class GivingWay(threading.local):
    """Who goes on while the present thread waits for a task: set by streams for the threads of their items."""

    until: Callable[[Any], None] | None = None  # returns once the task is over, or once this thread may wait itself


giving_way = GivingWay()


OURS = ("run-ahead", "first measurements", "memory", "stream")
"""Why threads wait without the program's asking for it."""


def give_way(task: Any, why: str) -> None:
    """Let others go on until a task is over for which the program waits, if somebody has asked the present thread to."""
    if giving_way.until is not None and why not in OURS and not task.finished:
        giving_way.until(task)


_answering: ContextVar[Reported | None] = ContextVar("coexec-answering", default=None)


@contextmanager
def answering(told: Reported) -> Iterator[None]:
    """Let `told` say whether the program knows of failures of the block's calls: whoever makes them tells of them."""
    token = _answering.set(told)
    try:
        yield
    finally:
        _answering.reset(token)


def answering_in(context: Context | None) -> Reported | None:
    """Return what says whether the program knows of failures of a call in some context, if somebody answers for it."""
    return None if context is None else context.get(_answering)


program: tuple[Session, ...] = ()  # the default runtime and the main thread's blocks; replaced, never changed
_blocks: ContextVar[tuple[Session, ...]] = ContextVar("coexec-blocks", default=())  # of the present thread or task
_change = threading.RLock()  # held while `program` is replaced; again by what a collection in between may call
_default: list[Callable[[], Session]] = []
_forked = False


def check_outside() -> None:
    """Raise if the present thread runs a body, or if this process is a forked child."""
    if in_kernel.name:
        raise NestedCallError(
            f"coexec was called from inside {in_kernel.name!r}; a body computes on the arrays it is given. "
            "Call the other kernel from the program instead"
        )
    if _forked:
        raise RuntimeClosed(
            "this process was forked from one that used coexec, and threads do not survive a fork; "
            "start workers with multiprocessing's 'spawn' method"
        )


def check_forked() -> None:
    """Raise if this process is a forked child."""
    if _forked:
        check_outside()


def current() -> Session:
    """Return the runtime that new calls belong to, starting the default one if none is open."""
    if in_kernel.name or _forked:
        check_outside()
    blocks = _blocks.get() or program
    if blocks and not blocks[-1].closed:
        return blocks[-1]
    return _outer()


def innermost() -> Session | None:
    """Return the runtime that new calls belong to, or None if none is open; starts none."""
    found = [runtime for runtime in (_blocks.get() or program) if not runtime.closed]
    return found[-1] if found else None


def in_front_of(runtime: Session) -> Session:
    """Return the current session if it passes calls on to `runtime`, and otherwise `runtime` itself."""
    now = (_blocks.get() or program or (runtime,))[-1]
    return now if getattr(now, "runtime", None) is runtime else runtime


def _outer() -> Session:
    """Return the innermost runtime that is not closed; of several threads that find none, one starts the default."""
    global program
    blocks = tuple([runtime for runtime in _blocks.get() if not runtime.closed])
    if blocks:
        return blocks[-1]
    with _change:
        program = tuple([runtime for runtime in program if not runtime.closed])
        if not program:
            started = _default[0]()
            program = (started, *program)
        return program[-1]


def push(runtime: Session) -> None:
    """Make `runtime` the current one of this thread, or of all that have no other if this is the main thread."""
    global program
    _blocks.set((*_blocks.get(), runtime))
    if threading.current_thread() is threading.main_thread():
        with _change:
            program = (*program, runtime)


def remove(runtime: Session) -> None:
    """Forget `runtime`, wherever it stands."""
    global program
    _blocks.set(tuple([block for block in _blocks.get() if block is not runtime]))
    with _change:
        program = tuple([block for block in program if block is not runtime])


@contextmanager
def within(runtime: Session) -> Iterator[None]:
    """Make `runtime` the current one of this thread or asyncio task alone, for the time of the block."""
    token = _blocks.set((*_blocks.get(), runtime))
    try:
        yield
    finally:
        _blocks.reset(token)


def set_default(factory: Callable[[], Session]) -> None:
    """Say how the default runtime is made."""
    _default[:] = [factory]


def mark_forked() -> None:
    """Refuse every use from now on: this is a forked child."""
    global _forked, program
    _forked, program = True, ()


def forked() -> bool:
    """Tell whether this process is a forked child."""
    return _forked
