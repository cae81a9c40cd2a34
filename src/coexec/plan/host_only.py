"""Who can run a task, and what only the host can: coexec's own kernels without a device, and bodies that see themselves.

Before: plan/candidate.py, plan/conflicts.py, graph/overlaps.py.  After: plan/planner.py.  Knows no time.

A user's kernel that no device can run is refused, with the remedy: nobody else could add a variant to coexec's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import CannotCompute, PlanError
from ..geometry import Box
from ..graph.command import Chunk
from ..graph.overlaps import sees_itself
from ..graph.task import Task
from ..origin import is_ours
from ..program.body import does_nothing
from ..program.kernel import Kernel
from .candidate import Candidate, Candidates
from .split import blocks_of, deal, in_runs

WHY = "no device here can run it: on the host"
KEPT_OUT = "its arguments overlap, and what comes out then is what its body gives with NumPy"
OVERLAPPING = "its arguments overlap, and none of the devices computes with NumPy: on the host"

_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


class Who(NamedTuple):
    """Those who can run a task."""

    able: list[Candidate]
    blocked: list[Candidate]  # the same pairs once more, in cache-sized pieces
    only_cpu: bool
    host: str = ""  # why nobody but the host can
    kept_out: tuple[str, ...] = ()  # devices that could, if its arguments did not overlap


def who(candidates: Candidates, task: Task, *, outside: bool = False) -> Who:
    """Return those who can run a task, also `outside` of its placement; raise if there is nobody, not even the host."""
    kernel, options = task.kernel, task.options
    assert kernel is not None and options is not None
    try:
        able, blocked, only_cpu = candidates.of(kernel, None if outside else options.devices)
        if not only_cpu:
            able = candidates.able(task, able)
    except PlanError as error:
        # Of a type that the devices lack the program is told: another would do. Values that are only put somewhere need no rate.
        ours = kernel.internal if isinstance(error, CannotCompute) else is_own(kernel)
        if ours and options.loosely and not outside:  # a block's devices cannot, so those outside may
            return who(candidates, task, outside=True)
        if candidates.everything or not ours:
            raise
        return Who([], [], only_cpu=True, host=WHY)
    if not task.once and sees_itself(task):
        asked = able
        able, blocked = _with_numpy(able), _with_numpy(blocked)
        left = {c.name for c in able}
        kept_out = () if is_own(kernel) else tuple(dict.fromkeys([c.name for c in asked if c.name not in left]))
        if not able:
            _check_body(kernel)
            return Who([], [], only_cpu=True, host=OVERLAPPING, kept_out=kept_out)
        return Who(able, blocked, only_cpu, kept_out=kept_out)
    found: Who = _new(Who, (able, blocked, only_cpu, "", ()))  # made for every task
    return found


def is_own(kernel: Kernel) -> bool:
    """Tell whether a kernel is coexec's own: an operation, a reduction or an assignment."""
    function = kernel.function
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code is not None and is_ours(code.co_filename)


def _with_numpy(candidates: list[Candidate]) -> list[Candidate]:
    """Return those who call the Python body with NumPy arrays: others have an order of their own."""
    return [c for c in candidates if c.variant.kind == "python"]


def _check_body(kernel: Kernel) -> None:
    """Raise if a kernel is written for other devices alone."""
    if does_nothing(kernel.function):
        raise PlanError(
            f"kernel {kernel.name!r} was given arrays that overlap, and its Python body, which says what comes out then, "
            "does nothing; write the body, or pass a copy: x.copy()"
        )


def on_host(task: Task, box: Box) -> tuple[Chunk, ...]:
    """Return the chunks that the host computes: of a reduction its fixed blocks, as everywhere."""
    assert task.kernel is not None
    if not task.kernel.reduces:
        return (Chunk("host", box),)
    axis = next((a for a in task.kernel.split if box.hi[a] - box.lo[a] > 1), 0)
    if task.deal is not None:
        return in_runs([Chunk("host", b, i) for i, b in enumerate(task.deal.blocks, task.deal.first)], {"host"})
    return in_runs(deal(blocks_of(task, box, axis), axis, ["host"], (0, box.volume)), {"host"})
