"""Run random programs on ranks that are threads: each rank runs all of it, and must see what NumPy computes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import coexec as cx
from coexec.cluster import gridding
from coexec.geometry import Box
from coexec.testing.teams import on_teams

from .mixes import MIXES
from .program import Program
from .running import Outcome, Side, WrongResult, finish, judged


@contextmanager
def two_axes() -> Iterator[None]:
    """Let ranks cut along two axes whatever calls can be cut so, though their arrays are small."""
    before = gridding.received

    def received(task: Any, parts: Sequence[Box], middle: int) -> float:
        """Say that rectangles receive less than rows."""
        return 1.0 if all(len({part.lo[axis] for part in parts}) > 1 for axis in task.axes[:2]) else 2.0

    gridding.received = received
    try:
        yield
    finally:
        gridding.received = before


def run_on_ranks(program: Program, ranks: int | None = None) -> Outcome:
    """Run a program of the mix "ranks" on as many ranks as it says, with real devices and messages through memory."""
    options: dict[str, Any] = {n: v for n, v in program.options.items() if n not in ("platform", "execute")}

    def one_rank() -> None:
        side = Side(program, *program.sources())
        with cx.Runtime("cpu:0", store="off", **options):
            side.run()
            finish(program)
            expected = side.expected_log if cx.rank() == 0 else []  # host tasks run once
            if side.log != expected:
                raise WrongResult(f"rank {cx.rank()}: host tasks noted {side.log}, not {expected}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            on_teams(ranks or program.options["platform"], one_rank)
        except Exception as error:
            return judged(error, MIXES[program.mix])
    return Outcome("right")
