"""`cx.breakpoint(rank=1)`: the debugger on one rank, while the others wait for it without taking it for lost.

Before: cluster/here.py.  After: the package's own namespace.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pdb import Pdb

from .here import check_root, rank as rank_here, ranks

TERMINAL = "/dev/tty"


def breakpoint(rank: int = 0) -> None:
    """Start pdb on one rank; on the others do nothing. Who needs something of that rank waits for it."""
    check_root(rank, ranks())
    if rank != rank_here():
        return
    source, target = sys.stdin, sys.stdout
    if rank and not (source is not None and source.isatty()):
        with suppress(OSError):  # launchers give other ranks than 0 no input
            source, target = open(TERMINAL, encoding="utf-8"), open(TERMINAL, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    debugger = Pdb(stdin=source, stdout=target)
    debugger.prompt = f"(Pdb, rank {rank}) " if ranks() > 1 else "(Pdb) "
    debugger.set_trace(sys._getframe(1))
