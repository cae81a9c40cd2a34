"""Failures as the user sees them: the original error, its type kept, with task, device, chunk and both lines.

Before: graph/task.py.  After: schedule/lower.py, execute/executor.py.  Knows no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Reported, TaskCancelled, TaskFailed
from ..origin import last_program_line
from ..program.session import answering_in
from .instruction import Launch
from .task import Task

if TYPE_CHECKING:
    from ..backend.base import Ran

_kinds: dict[type[BaseException], type[TaskFailed]] = {}


def failed_as(kind: type[BaseException]) -> type[TaskFailed]:
    """Return a TaskFailed that `except kind` also catches, where Python allows such a class."""
    known = _kinds.get(kind)
    if known is None:
        known = _kinds[kind] = _make_kind(kind)
    return known


def _make_kind(kind: type[BaseException]) -> type[TaskFailed]:
    if not issubclass(kind, Exception):
        return TaskFailed
    try:
        made = type(f"TaskFailed[{kind.__name__}]", (TaskFailed, kind), {"__init__": _init, "__str__": _text})
        made("probe")
    except TypeError:
        return TaskFailed
    made.__module__ = TaskFailed.__module__
    return made


def _init(self: BaseException, *args: object) -> None:
    self.args = args


def _text(self: BaseException) -> str:
    return str(self.args[0]) if self.args else ""


def _like(error: BaseException, text: str) -> TaskFailed:
    """Return a failure that is caught as `error` is, and has what that tells: sizes, codes, whatever its class has."""
    failed = failed_as(type(error))(text)
    vars(failed).update(vars(error))
    failed.__cause__ = error
    return failed


def task_failed(ran: Ran) -> BaseException:
    """Return the error that reading this instruction's results raises."""
    instruction, step, error = ran.instruction, ran.instruction.step, ran.error
    assert error is not None
    if isinstance(error, TaskFailed | TaskCancelled):
        return error  # cancelled because of an earlier failure: keep the first one
    task = instruction.task
    chunk = str(step.chunk.box) if isinstance(step, Launch) else ""
    name = task.name if task is not None else step.kind
    where = last_program_line(error.__traceback__)
    text = (
        f"T{task.id if task is not None else '?'} {name} failed on {ran.device}"
        f"{', chunk ' + chunk if chunk else ''}: {type(error).__name__}: {error}"
        f"{' (in the body at ' + where + ')' if where else ''}"
        f"{f'; called at {task.call}:{task.line}' if task is not None and task.call else ''}"
    )
    failed = _like(error, text)
    failed.task, failed.device, failed.chunk = name, ran.device, chunk
    failed.round = task.round if task is not None else 0
    failed.told = _told(task)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        failed.told.yes = True  # the program gets those directly
    return failed


def not_lowered(task: Task, error: Exception) -> TaskFailed:
    """Return the error of a task for which no memory, or no way to bring its data, was found."""
    called = f"; called at {task.call}:{task.line}" if task.call else ""
    failed = _like(error, f"T{task.id} {task.name} cannot run: {error}{called}")
    failed.task, failed.told, failed.round = task.name, _told(task), task.round
    return failed


def _told(task: Task | None) -> Reported:
    """Return what all failures of a call share."""
    if task is None:
        return Reported()
    if task.told is None:
        task.told = answering_in(task.context) or Reported()
    return task.told


def cancelled(task: Task | None, reason: str) -> TaskCancelled:
    """Return the error of a task that was cancelled before it began."""
    name = f"T{task.id} {task.name}" if task is not None else "an instruction"
    return TaskCancelled(f"{name} was cancelled before it began: {reason}")
