"""Random programs in which kernels fail: what they would have written is poisoned, element by element, until overwritten."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from coexec.geometry import Box
from coexec.graph.task import Task
from coexec.testing.model_memory import at_random, run_all
from tests.lower.programs import Step, Twin, alike, mix, programs, slices

KINDS = ("mix", "update", "mix", "update", "host task", "read", "horizon", "epoch")


class Doomed(ValueError):
    """What a failing body raises."""


class FailingTwin(Twin):
    """Runs each step on the builder; on plain arrays, keeps for each element whether it is poisoned."""

    def __init__(self, program: dict[str, Any], steps: tuple[int, ...]) -> None:
        super().__init__(program)
        self.steps = steps
        self.poison = [np.zeros(self.shape, bool) for _ in self.plain]
        self.failing: set[int] = set()  # instructions whose bodies raise
        self.raising: list[int] = []  # host reads that must raise

    def step(self, step: Step) -> None:
        kind, n = step
        a, b = n[0] % len(self.arrays), n[1] % len(self.arrays)
        cut = slices(n, self.shape, self.steps)
        if kind == "horizon":
            self.g.horizon(failed=self.failed())
        elif kind == "epoch":
            self.g.epoch(failed=self.failed())
        elif kind == "read":
            self._read(a, cut)
        elif kind == "host task":
            task = self.g.host_task("touch", updates=self.arrays[a][cut], body=self._body(fails=False, old=True))
            self._apply(task, a, cut, [], None, old=True, fails=False)
        else:
            self._kernel(n, a, b, cut, old=kind == "update")

    def failed(self) -> set[int]:
        """Return every instruction that fails: by itself, or because it needs one that does."""
        found: set[int] = set()
        for instruction in self.g.emitted:
            if instruction.id in self.failing or found.intersection(instruction.needs):
                found.add(instruction.id)
        return found

    def _body(self, *, fails: bool, old: bool) -> Any:
        def body(*arrays: Any) -> None:
            if fails:
                arrays[-1][...] = -7.0
                raise Doomed
            mix(arrays[-1], arrays[:-1], old=old)

        return body

    def _kernel(self, n: tuple[int, ...], a: int, b: int, cut: tuple[slice, ...], *, old: bool) -> None:
        shape = self.plain[a][cut].shape
        sources = [(b, alike(n, shape, self.shape, self.steps))][: n[2] % 2]
        fails = n[3] % 4 == 0
        where: dict[str, Any] = self._where(n, shape) if all(i != a for i, _ in sources) else {"on": self._device(n)}
        task = self.g.call(
            "update" if old else "mix",
            reads=[self.arrays[i][c] for i, c in sources],
            writes=() if old else self.arrays[a][cut],
            updates=self.arrays[a][cut] if old else (),
            body=self._body(fails=fails, old=old),
            **where,
        )
        self._apply(task, a, cut, sources, where.get("chunks"), old=old, fails=fails)

    def _apply(
        self,
        task: Task,
        a: int,
        cut: tuple[slice, ...],
        sources: list[tuple[int, tuple[slice, ...]]],
        chunks: list[tuple[str, Box]] | None,
        *,
        old: bool,
        fails: bool,
    ) -> None:
        out, bad = self.plain[a][cut], self.poison[a][cut]
        parts: list[Any] = [box.slices((0,) * out.ndim) for _, box in chunks] if chunks else [(...,)]
        before = [(self.plain[i][c].copy(), self.poison[i][c].copy()) for i, c in sources]
        kernels = self.g.kernels(task)
        for part, kernel in zip(parts, kernels, strict=True):
            poisoned = any(p[part].any() for _, p in before) or (old and bool(bad[part].any()))
            if fails and not poisoned:
                self.failing.add(kernel.id)
            if fails or poisoned:
                bad[part] = True
            else:
                mix(out[part], [values[part] for values, _ in before], old=old)
                bad[part] = False

    def _read(self, a: int, cut: tuple[slice, ...]) -> None:
        task = self.g.read(self.arrays[a][cut])
        if self.poison[a][cut].any():
            self.raising.append(task.id)
        else:
            self.expected[task.id] = self.plain[a][cut].copy()

    def finish(self) -> None:
        """Read everything, row by row and every other row, so that poison and health show side by side."""
        for a in range(len(self.arrays)):
            for row in range(self.shape[0]):
                self._read(a, (slice(row, row + 1),))
            for first in range(2):
                self._read(a, (slice(first, None, 2),))


def run(program: dict[str, Any], steps: tuple[int, ...], seed: int) -> FailingTwin:
    twin = FailingTwin(program, steps)
    for kind, numbers in program["steps"]:
        twin.step((KINDS[numbers[13] % len(KINDS)] if kind not in KINDS else kind, numbers))
    twin.finish()
    failed = run_all(twin.g.emitted, at_random(seed))
    assert {id for id, error in failed.items() if not isinstance(error, Doomed)} == set()
    assert set(failed) == twin.failed()
    return twin


@settings(max_examples=200)
@given(programs(), st.integers(0, 2**16))
def test_a_read_of_boxes_raises_exactly_if_an_element_is_poisoned(program: dict[str, Any], seed: int) -> None:
    twin = run(program, (1,), seed)
    assert {task for task in twin.raising if task in twin.g.delivered} == set()
    twin.check()  # what is not poisoned was delivered, and is right


@settings(max_examples=200)
@given(programs(), st.integers(0, 2**16))
def test_what_lies_between_poisoned_elements_of_a_strided_view_is_healthy(program: dict[str, Any], seed: int) -> None:
    """Wherever such an array is moved, and whatever it grows into."""
    twin = run(program, (1, 2, -1, 3), seed)
    assert {task for task in twin.raising if task in twin.g.delivered} == set()
    twin.check()
