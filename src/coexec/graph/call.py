"""From a kernel call to a task: what it touches, by value what it takes, over which index space.

Before: program/.  After: graph/task_graph.py, runtime.py.  Knows no device; the task is not part of the graph yet.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any

from ..errors import ArgumentError, CoexecError, ProgramError, RuntimeClosed
from ..origin import PASSED, program_frame
from ..program.access import read
from ..program.array import Array, Storage
from ..program.call import Options
from ..program.kernel import ArrayParam, Kernel
from ..program.mapper import all as map_all
from ..program.mapping import Function, not_monotonic
from .task import Owner, Task

WHOLE = ArrayParam("", -1, read(map_all))


def describe(
    kernel: Kernel,
    arrays: list[Array],
    scalars: dict[str, Any],
    options: Options,
    owner: Owner,
) -> Task:
    """Return the task of one call, checked. Its calling line is that of the caller's caller's caller."""
    task = Task(0, kernel.name, kernel, owner)
    task.space, task.box, task.key = kernel.space(arrays, scalars)
    if not kernel.simple:
        task.visited = task.box
    task.accesses = kernel.array_params
    if scalars:
        task.scalars = scalars
        extra = [(name, value) for name, value in scalars.items() if type(value) is Array]
        if extra:  # a 0-d array passed as a scalar is a read dependency and stays on its device
            task.accesses = (*task.accesses, *(ArrayParam(name, -1, WHOLE.access) for name, _ in extra))
            arrays = [*arrays, *(value for _, value in extra)]
    task.arrays = arrays
    for array in arrays:
        if array._storage.session is not owner:
            raise foreign(kernel, array)
    count = len(arrays)
    if count < 3:
        task.once = count < 2 or arrays[0]._storage is not arrays[1]._storage
    else:
        task.once = len({array._storage for array in arrays}) == count
    if kernel.takes_chunk or not kernel.simple:  # bodies and OpenCL sources may ask where their chunk lies in an array
        task.shapes = [array.shape for array in arrays]
    if owner.checks:
        _check_mappers(task)
    task.options = options
    task.body = kernel.body()
    task.context = copy_context()
    frame = sys._getframe(3)
    if kernel.internal or frame.f_code.co_filename.startswith(PASSED):
        frame = program_frame(frame)
    task.call, task.line = frame.f_code.co_filename, frame.f_lineno
    return task


def _check_mappers(task: Task) -> None:
    """Raise if a range mapper of the user's is not monotonic, as far as samples show."""
    for param, array in zip(task.accesses, task.arrays, strict=True):
        mapper = param.access.mapper
        if isinstance(mapper, Function) and (wrong := not_monotonic(mapper, task.box, task.space, array.shape)):
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
