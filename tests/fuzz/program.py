"""A random program: steps of Python source, in loops or one after the other, that NumPy and coexec both can run."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Step:
    """One statement, or a block: a loop, or `text` around a body."""

    kind: str  # what it tries, e.g. "in place"
    text: str = ""
    body: tuple[Step, ...] = ()
    turns: int = 0  # of a loop
    at: int = -1  # the one turn of the loop around it in which it runs

    def source(self) -> str:
        """Return it as Python."""
        head = f"for turn in range({self.turns}):" if self.turns else self.text
        if self.body:
            return f"{head}\n" + _inside("\n".join(step.source() for step in self.body))
        return f"if turn == {self.at}:\n{_inside(head)}" if self.at >= 0 else head

    def kinds(self) -> set[str]:
        """Return what it and its body try."""
        return {self.kind}.union(*[step.kinds() for step in self.body])


def _inside(text: str) -> str:
    return textwrap.indent(text, "    ")


@dataclass(frozen=True)
class Program:
    """What one seed stands for: a runtime's options, and the steps of each thread."""

    mix: str
    seed: int
    options: dict[str, Any]
    threads: tuple[tuple[Step, ...], ...]
    marked: bool = False  # tasks may fail, so elements may be lost
    rough: bool = False  # floats are rounded on the way

    def sources(self) -> list[str]:
        """Return each thread's Python."""
        return ["\n".join(step.source() for step in steps) for steps in self.threads]

    def kinds(self) -> list[str]:
        """Return what its steps try, beside making and looking at arrays."""
        found = set().union(*[step.kinds() for steps in self.threads for step in steps])
        return sorted(found - {"new", "look", "tame"})

    def with_thread(self, number: int, steps: tuple[Step, ...]) -> Program:
        """Return the program with other steps in one thread."""
        threads = list(self.threads)
        threads[number] = steps
        return replace(self, threads=tuple(threads))
