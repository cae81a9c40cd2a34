"""A progress bar for streams, on a terminal only.

Before: nothing.  After: stream/pipeline.py.  Writes to standard error, through rich; nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sized
from typing import Any


class ProgressBar:
    """Counts items on a terminal. `shown`: None = where standard error is one."""

    def __init__(self, shown: bool | None, items: Any, name: str) -> None:
        self._bar: Any = None
        if shown is False or (shown is None and not sys.stderr.isatty()):
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(name, total=len(items) if isinstance(items, Sized) else None)
        self._bar.start()

    def step(self) -> None:
        """Count one item."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
