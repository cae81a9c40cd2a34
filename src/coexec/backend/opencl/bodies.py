"""Python bodies on OpenCL devices: their text is made when they are launched, and compared with NumPy before its first use.

Before: compile/generated.py, program.py.  After: program.py's Launcher, which runs the text.  Works on copies: whatever a
comparison finds, nothing of the program has changed.

A body that has no OpenCL C, or whose results are not NumPy's, is a VariantRefused with the reason: the executor turns the
variant off and lets NumPy run what was refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...compile.chains import work_items
from ...compile.generated import Fitted, Generated
from ...compile.refused import Untraceable
from ...compile.verify import compare
from ...errors import VariantRefused
from ...program.variant import Numerics, exact
from ..base import describe_failure
from ..launch import chunk_info, run_body
from ..tolerance import gap_of

if TYPE_CHECKING:
    from ...graph.instruction import Binding, Launch
    from ...graph.task import Task

Arrays = dict[str, np.ndarray[Any, Any]]


class Prepared(NamedTuple):
    """A text and what it is called with, beside the arrays."""

    fitted: Fitted
    params: tuple[str, ...]
    scalars: dict[str, Any]
    allowed: Numerics  # what the kernel declares: how far results may lie from NumPy's

    @property
    def verdict(self) -> Any:
        """What is compared with NumPy once."""
        return self.source, self.fitted.size_class, self.allowed

    @property
    def source(self) -> str:
        """The statements of a point."""
        return self.fitted.text.source

    @property
    def groups(self) -> tuple[Any, Any]:
        """The work-items of a chunk and of a group, where they are not one per point."""
        text = self.fitted.text
        if text.rows:
            return lambda shape: (1, -(-shape[-2] // text.width), *shape[-3::-1]), None
        return work_items(text.width)


class OpenClBodies:
    """The texts of all bodies that one device has run, and which of them were compared at which sizes."""

    def __init__(self) -> None:
        self._known: dict[int, Generated] = {}
        self._compared: set[Any] = set()

    def prepare(self, task: Task, step: Launch, shapes: Mapping[str, tuple[int, ...]]) -> Prepared:
        """Return the text of a task's body for what it sees here; raise VariantRefused if there is none."""
        kernel = task.kernel
        assert kernel is not None and task.body is not None
        texts = self._known.get(kernel.serial)
        if texts is None:
            writes = [p.name for p in kernel.array_params if p.access.writes and p.position >= 0]
            texts = self._known[kernel.serial] = Generated(writes, kernel.returns.names, free=kernel.numerics != exact)
        arrays = {b.name: np.broadcast_to(np.empty((), dtype_of(b)), shapes[b.name]) for b in step.bindings}
        scalars = {name: value for name, value in task.scalars.items() if name not in arrays}
        chunk = chunk_info(task, step.chunk.box) if kernel.takes_chunk else None
        try:
            fitted = texts.fit(task.body, arrays, scalars, chunk)
        except Untraceable as reason:
            raise VariantRefused(f"its body has no OpenCL C: {reason}") from None
        except Exception as error:  # a fault of the compiler: NumPy can do without it
            raise VariantRefused(f"its body has no OpenCL C: {describe_failure(error)}") from error
        numbers = fitted.numbers | {name: scalars[name] for name in fitted.text.named}
        return Prepared(fitted, (*arrays, *numbers), numbers, kernel.numerics)

    def due(self, prepared: Prepared) -> bool:
        """Tell whether a text is to be compared with NumPy before it runs."""
        return prepared.verdict not in self._compared

    def judge(self, task: Task, step: Launch, prepared: Prepared, seen: Arrays, got: Arrays) -> None:
        """Raise VariantRefused unless `got` is what NumPy makes of `seen`, as close as the text promises."""
        wanted = {name: array.copy() for name, array in seen.items()}
        for binding in step.bindings:
            wanted[binding.name].flags.writeable = binding.writes
        assert task.body is not None
        try:
            with np.errstate(all="ignore"):
                run_body(task, step, task.body, wanted, debug=False)
        except Exception as error:
            raise VariantRefused(f"its body raises: {describe_failure(error)}") from error
        for name, array in got.items():
            if found := _difference(name, wanted[name], array, prepared.fitted.text.numerics, prepared.allowed):
                raise VariantRefused(f"{found}, on {step.device}; it stays on NumPy")
        self._compared.add(prepared.verdict)


def _difference(
    name: str, wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any], numerics: Numerics, allowed: Numerics
) -> str:
    if numerics == exact:
        return compare(name, wanted, got)
    gap, limit = gap_of(wanted, got, None if allowed == exact else allowed.ulp)
    return f"{name} is not NumPy's: max difference {gap:.3g}" if gap > limit else ""


def dtype_of(binding: Binding) -> np.dtype[Any]:
    """Return the type of a parameter's elements."""
    dtype: np.dtype[Any] = binding.dtype if binding.allocation is None else binding.allocation.dtype
    return dtype
