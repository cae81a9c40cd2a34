"""The process around the runtimes: its end, and its forked children.

Before: program/session.py.  After: runtime.py.  Knows runtimes only as things that can be closed.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
import weakref
from pathlib import Path
from typing import Protocol

from . import notebook
from .execute import signals
from .program import session


class Closable(notebook.Running, Protocol):
    """A runtime, as its process sees it."""

    def close(self) -> None:
        """Finish and end every thread."""

    def forked(self) -> None:
        """Refuse every use: this process is a forked child."""


_open: weakref.WeakSet[Closable] = weakref.WeakSet()
_registered: list[bool] = []
_exit_code: list[int] = []  # what the process ends with, if not with what the program asked for
_ending: list[bool] = []  # the program is over
_traces: set[str] = set()  # files that runtimes of this process were told to write by the environment


def opened(runtime: Closable) -> None:
    """Remember a runtime, so that the end of the process finds it."""
    _open.add(runtime)
    notebook.attend(lambda: _open)
    if not _registered:
        _registered.append(True)
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=signals.before_fork,
                after_in_parent=lambda: signals.after_fork(in_child=False),
                after_in_child=_forked,
            )


def _forked() -> None:
    """Refuse every use of coexec in a forked child."""
    session.mark_forked()
    signals.after_fork(in_child=True)
    for runtime in list(_open):
        runtime.forked()


def free_trace_name(path: str) -> str:
    """Return `path`, numbered if an earlier runtime of this process streams or streamed its trace there."""
    file, number, name = Path(path), 1, path
    while name in _traces:
        number += 1
        name = str(file.with_name(f"{file.stem}.{number}{file.suffix}"))
    _traces.add(name)
    return name


def ending() -> bool:
    """Tell whether the program is over, so that nobody reads an array any more."""
    return bool(_ending)


def closed(runtime: Closable) -> None:
    """Forget a runtime."""
    _open.discard(runtime)


def _at_exit() -> None:
    """Finish what is in flight, end all threads, and say which failures nobody saw. Signals cancel what has not begun."""
    if session.forked() or not _registered:
        return
    _registered.clear()
    _ending.append(True)
    unseen: list[BaseException] = []
    interrupted = issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt)
    for runtime in list(_open):
        if interrupted:
            runtime.cancel_pending(signals.WHY)
        try:
            runtime.close()
        except (KeyboardInterrupt, SystemExit):
            interrupted = True
        unseen += runtime.unseen()
    if unseen:
        _report(unseen)
    _exit_code.extend(128 + number for number in signals.arrived)


def _report(unseen: list[BaseException]) -> None:
    """Print failures, and remember them for the exit code."""
    sys.stderr.write(f"coexec: {len(unseen)} task(s) failed and the program never looked at the results:\n")
    for error in unseen:
        traceback.print_exception(error)
    _exit_code.append(1)


def _end_otherwise() -> None:
    """Give the process another exit code, which an exit handler can only do by ending it itself.

    Registered when coexec is imported, so that it runs after the handlers that the program registered later.
    """
    if _exit_code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_code[-1])


atexit.register(_end_otherwise)
