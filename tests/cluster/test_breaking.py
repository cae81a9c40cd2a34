"""`cx.breakpoint(rank=1)`: a debugger on one rank, while the others go on until they need something of it."""

from __future__ import annotations

import io
import sys

import pytest

import coexec as cx
from coexec.errors import ArgumentError
from tests.test_joined import on


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def test_the_debugger_starts_on_the_rank_that_is_named_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stdin", Terminal("p secret\np cx.rank()\nc\n"))
    monkeypatch.setattr(sys, "stdout", said)

    def program(runtime: cx.Runtime) -> float:
        secret = 41
        cx.breakpoint(rank=1)
        return float(cx.sum(cx.full(1000, secret)))

    assert on(3, program) == [41_000.0] * 3
    lines = [line for line in said.getvalue().splitlines() if line.startswith("(Pdb, rank 1) ")]
    assert [line.removeprefix("(Pdb, rank 1) ") for line in lines[:2]] == ["41", "1"]


def test_a_rank_that_is_none_is_refused_on_all_of_them() -> None:
    def program(runtime: cx.Runtime) -> None:
        with pytest.raises(ArgumentError, match="root=2"):
            cx.breakpoint(rank=2)

    on(2, program)
