"""A started backend that waits for its reports: what the tests of OpenCL and torch devices share."""

from __future__ import annotations

import itertools
import threading
from typing import Generic, Self, TypeVar

from coexec.backend.base import Backend, Ran
from coexec.graph.instruction import Instruction

B = TypeVar("B", bound=Backend)


class Driven(Generic[B]):
    """Runs instructions one after another, and numbers them."""

    def __init__(self, backend: B) -> None:
        self.backend = backend
        self.reports: list[Ran] = []
        self._told = threading.Condition()
        self._ids = itertools.count()
        backend.start(self._finished)

    def _finished(self, ran: Ran) -> None:
        with self._told:
            self.reports.append(ran)
            self._told.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.backend.stop()

    def id(self) -> int:
        return next(self._ids)

    def run(self, *instructions: Instruction, lane: int = 0, waits: tuple[Instruction, ...] = ()) -> list[Ran]:
        """Issue instructions and return their reports; raise the first error."""
        ids = {instruction.id for instruction in instructions}
        for instruction in instructions:
            self.backend.issue(instruction, lane, waits)
        with self._told:
            assert self._told.wait_for(lambda: len(self._of(ids)) == len(ids), timeout=60)
        found = self._of(ids)
        for ran in found:
            if ran.error is not None:
                raise ran.error
        return found

    def _of(self, ids: set[int]) -> list[Ran]:
        return [ran for ran in self.reports if ran.instruction.id in ids]
