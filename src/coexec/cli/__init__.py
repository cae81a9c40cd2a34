"""The command line: `coexec devices`, `demo`, `run`, `trace`, `calibrate`, `plan`, `bench` and `doctor`.

Before: everything.  After: nothing.  The one place that prints, and the only one that imports typer and rich.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (default: the process's) name, and leave with its exit code."""
    try:
        from .app import run

        run(arguments)
    except KeyboardInterrupt:  # while modules are loaded; once a command runs, it answers itself
        from .output import INTERRUPTED, fail

        fail("interrupted", INTERRUPTED)


__all__ = ["main"]
