"""From a kernel call to a task: what it touches, by value what it takes, over which index space.

Before: program/.  After: graph/task_graph.py, driver.py.  Knows no device; the task is not part of the graph yet.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import Context, copy_context
from typing import Any

from ..errors import ArgumentError, CoexecError, ProgramError, RuntimeClosed
from ..origin import PASSED_FILES, program_frame
from ..program.access import read
from ..program.array import Array
from ..program.call import Options
from ..program.fuse import Line
from ..program.kernel import ArrayParam, Kernel
from ..program.mapper import all as map_all
from ..program.storage import Storage
from ..program.user_mappers import Function, not_monotonic
from .shape import remember_call, same_call
from .task import Owner, Task

WHOLE = ArrayParam("", -1, read(map_all))


def describe(
    kernel: Kernel,
    arrays: list[Array],
    scalars: dict[str, Any],
    options: Options,
    owner: Owner,
    chain: tuple[Context, Line] | None = None,
) -> Task:
    """Return the task of one call, checked. Its calling line is that of the caller's caller's caller, or that of a `chain`."""
    task = Task(0, kernel.name, kernel, owner)
    task.options = options
    if scalars:
        task.scalars = scalars
    same = same_call(kernel, arrays, owner)
    for value in scalars.values():
        if type(value) is Array:
            same = None
    if same is None:
        extra = [(name, value) for name, value in scalars.items() if type(value) is Array]
        _describe_arrays(task, kernel, arrays, scalars, extra, owner)
    else:
        task.extents, task.domain, task.key, task.once = same.extents, same.domain, same.key, same.once
        task.accesses, task.arrays, task.same = kernel.array_params, arrays, same
        if same.shapes:
            task.shapes = same.shapes
    if not kernel.simple:
        task.space = task.domain
    if owner.checks:
        _check_mappers(task)
    task.body = kernel.function if kernel.captures_nothing else kernel.body()
    if chain is not None:
        task.context, (task.call, task.line) = chain
        return task
    task.context = copy_context()
    frame = sys._getframe(3)
    file = frame.f_code.co_filename
    while PASSED_FILES[file] and (back := frame.f_back) is not None:
        frame, file = back, back.f_code.co_filename  # as origin.program_frame, whose calls cost more than they do
    task.call, task.line = file, frame.f_lineno
    return task


def _describe_arrays(
    task: Task,
    kernel: Kernel,
    arrays: list[Array],
    scalars: dict[str, Any],
    extra: Sequence[tuple[str, Array]],
    owner: Owner,
) -> None:
    """Say what a task touches, checked; `extra` are arrays among its scalars."""
    task.extents, task.domain, task.key = kernel.space(arrays, scalars)
    accesses = kernel.array_params
    if extra:  # a 0-d array passed as a scalar is a read dependency and stays on its device
        accesses = (*accesses, *(ArrayParam(name, -1, WHOLE.access) for name, _ in extra))
        arrays = [*arrays, *(value for _, value in extra)]
    task.accesses, task.arrays = accesses, arrays
    for array in arrays:
        if array._storage.session is not owner:
            raise foreign(kernel, array)
    task.once = len({array._storage for array in arrays}) == len(arrays)
    if kernel.takes_chunk or not kernel.simple:  # bodies and OpenCL sources may ask where their chunk lies in an array
        task.shapes = [array.shape for array in arrays]
    if not extra:
        task.same = remember_call(kernel, task)


def _check_mappers(task: Task) -> None:
    """Raise if a range mapper of the user's is not monotonic, as far as samples show."""
    for param, array in zip(task.accesses, task.arrays, strict=True):
        mapper = param.access.mapper
        if isinstance(mapper, Function) and (wrong := not_monotonic(mapper, task.domain, task.extents, array.shape)):
            raise ArgumentError(f"kernel {task.name!r}: range mapper {mapper!r} of {param.name!r} is wrong: {wrong}")


def describe_read(array: Array, owner: Owner, *, located: bool = False) -> Task:
    """Return the task of a host read; if `located`, it knows the program's line that reads."""
    task = Task(0, "read", None, owner)
    task.accesses, task.arrays, task.once = (WHOLE,), (array,), True
    if located:
        frame = program_frame(sys._getframe(1))
        task.call, task.line = frame.f_code.co_filename, frame.f_lineno
    return task


def make_returned(kernel: Kernel, arrays: Sequence[Array], scalars: dict[str, Any], owner: Any) -> tuple[Array, ...]:
    """Make the new arrays of the functional form."""
    named = {param.name: array for param, array in zip(kernel.array_params, arrays, strict=False)} | scalars
    made = []
    for shape, dtype in kernel.returns.describe(named):
        storage = Storage(owner, shape, dtype)
        owner.adopt(storage, None, borrowed=False)
        made.append(Array(storage, storage.box, None))
    return tuple(made)


def foreign(kernel: Kernel, array: Array) -> CoexecError:
    """Return the error of a call with an array of another runtime."""
    if array._storage.session.closed:
        return RuntimeClosed(
            f"kernel {kernel.name!r} was given {array!r}, whose runtime is closed; copy it: cx.array(x)"
        )
    return ProgramError(
        f"kernel {kernel.name!r} was given {array!r}, which belongs to another runtime; "
        "make it inside this one, or pass cx.array(np.asarray(x))"
    )


def without_arrays(task: Task) -> Task:
    """Return a task that says the same of shapes, mappers and types, and holds no array of the program."""
    made = Task(0, task.name, task.kernel, None)
    made.extents, made.domain, made.key = task.extents, task.domain, task.key
    made.options, made.accesses, made.once = task.options, task.accesses, task.once
    if task.grain is not None:
        made.grain = task.grain
    made.scalars = {name: value for name, value in task.scalars.items() if type(value) is not Array}
    made.arrays = [
        Array(Storage(None, array._storage.shape, array.dtype), array._box, array._cut) for array in task.arrays
    ]
    made.map_parts()
    return made
