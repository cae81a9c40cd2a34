"""The command line: `coexec devices`, `demo`, `run`, `trace`, `calibrate`, `plan`, `bench` and `doctor`.

Before: everything.  After: nothing.  The one place that prints, and the only one that imports typer and rich.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (default: the process's) name, and leave with its exit code."""
    from .app import run

    run(arguments)


__all__ = ["main"]
