"""The same program in plain NumPy: what `cx` and the kernels are on that side.

A kernel is its body on the whole arrays, with borders made by np.pad. Where programs have failures, arrays are `Marked`:
each element also says whether it may be read, must not be readable, or may be either.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from coexec.geometry import whole
from coexec.program.mapper import Fixed, Halo, Same
from coexec.program.user_mappers import Function

from .marked import GOOD, LOST, UNKNOWN, Marked, outcome

Plain = np.ndarray[Any, Any]


class Sound(np.ndarray[Any, Any]):
    """An array that may be assigned from itself: NumPy's own `a[:8] = a[:16:2]` reads what it wrote before."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, np.array(value) if isinstance(value, np.ndarray) else value)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.copyto:
            args = (args[0], np.array(args[1]), *args[2:])
        found = super().__array_function__(function, types, args, kwargs)
        return np.asarray(found).view(Sound) if isinstance(found, np.ndarray) else found

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array.view(Sound)


class PlainKernel:
    """A kernel on NumPy arrays."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def using(self, **options: Any) -> PlainKernel:
        """Return itself: NumPy has no devices."""
        del options
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kernel = self.kernel
        given = dict(zip(kernel.passed, args, strict=False)) | kwargs
        values = {name: _values(value) for name, value in given.items()}
        marked = [value for value in given.values() if isinstance(value, Marked)]
        bound, written, read = self._bind(given, values)
        state = outcome(read) if marked else GOOD
        if kernel.name.startswith("fail"):
            state = LOST
        result = None
        if state != LOST:
            if kernel.takes_chunk:
                bound["chunk"] = _chunk(kernel, values)
            result = kernel.function(**bound)
            self._combine(values, bound)
        for mark in written:
            mark[...] = state
        if result is None:
            return Handle(written)
        fresh = np.array(result)
        return Marked(fresh, np.full(fresh.shape, state, np.uint8)) if marked else fresh.view(Sound)

    def _bind(self, given: dict[str, Any], values: dict[str, Any]) -> tuple[dict[str, Any], list[Plain], list[Any]]:
        """Return the body's arguments, the marks of what it writes, and the marks of what it reads."""
        inside = _rim(self.kernel, values)
        self._check(values)
        bound, written, read = dict(values), [], []
        for name, _, access in self.kernel.array_params:
            if name not in given:
                continue
            seen = values[name]
            marks = given[name].marks if isinstance(given[name], Marked) else None
            if access.mode == "reduce":
                seen = np.full(seen.shape, access.operator.start(seen.dtype))
                if not access.operator.fresh and marks is not None:
                    read.append(marks.copy())
            elif isinstance(access.mapper, Halo):
                seen = _with_border(seen, access.mapper)
            elif isinstance(access.mapper, Fixed):
                seen = seen[access.mapper.slices]
            elif isinstance(access.mapper, Function):
                shape = _space(self.kernel, values)
                seen = seen[access.mapper.box(whole(shape), shape, seen.shape).slices((0,) * seen.ndim)]
            elif isinstance(access.mapper, Same) and inside:
                seen = seen[inside]
                marks = None if marks is None else marks[inside]
            bound[name] = seen
            if marks is not None:
                read += [marks.copy()] if access.reads else []
                written += [marks] if access.writes else []
        return bound, written, read

    def _combine(self, values: dict[str, Any], bound: dict[str, Any]) -> None:
        """Bring what was reduced into the arrays: bodies get private ones."""
        for name, _, access in self.kernel.array_params:
            if access.mode == "reduce":
                before, operator = values[name], access.operator
                before[...] = bound[name] if operator.fresh else operator.combine(before, bound[name])

    def _check(self, values: dict[str, Any]) -> None:
        """Raise where coexec would: NumPy would broadcast."""
        kernel = self.kernel
        space = _space(kernel, values)
        for name, _, access in kernel.array_params:
            if name in values and access.mode != "reduce" and kernel.split:
                access.mapper.check(name, values[name].shape, space)
        if kernel.split and max(kernel.split) >= len(space):
            raise ValueError(f"{kernel.name} is split along an axis that {space} has not")
        axes = kernel.__name__[-1]
        if axes.isdigit() and len(space) != int(axes):
            raise ValueError(f"the source of {kernel.name} is for {axes} axes")


class Handle:
    """What a call returns: in NumPy everything is over at once."""

    def __init__(self, written: list[Plain]) -> None:
        self._written = written

    def cancel(self) -> bool:
        """Leave open whether what was called happened: the other side may have been quick."""
        for mark in self._written:
            mark[...] = UNKNOWN
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """Return at once."""
        del timeout
        return True


def _values(value: Any) -> Any:
    return value.values if isinstance(value, Marked) else value


def _space(kernel: Any, values: dict[str, Any]) -> tuple[int, ...]:
    """Return the shape of the index space."""
    if isinstance(kernel.over, str):
        over = values[kernel.over]
        return (over,) if isinstance(over, int) else over.shape
    given = [(access.writes, values[name].shape) for name, _, access in kernel.array_params if name in values]
    return next((shape for writes, shape in given if writes), given[0][1])


def _rim(kernel: Any, values: dict[str, Any]) -> tuple[slice, ...]:
    """Return what of the index space is visited, as slices; () for all of it."""
    for name, _, access in kernel.array_params:
        mapper = access.mapper
        if isinstance(mapper, Halo) and mapper.border == "inside":
            widths = [mapper._width(axis) for axis in range(values[name].ndim)]
            return tuple(
                slice(low, max(low, n - high)) for (low, high), n in zip(widths, values[name].shape, strict=True)
            )
    return ()


def _with_border(values: Plain, mapper: Halo) -> Plain:
    if mapper.border in ("clip", "inside"):
        return values
    widths = [mapper._width(axis) for axis in range(values.ndim)]
    if isinstance(mapper.border, str):
        return np.pad(values, widths, mode=mapper.border)  # type: ignore[call-overload,no-any-return]
    return np.pad(values, widths, mode="constant", constant_values=mapper.border)


def _chunk(kernel: Any, values: dict[str, Any]) -> Any:
    shape = _space(kernel, values)
    everything = tuple(slice(0, n) for n in shape)
    return SimpleNamespace(lo=(0,) * len(shape), hi=shape, shape=shape, whole=True, at=lambda name: everything)


class PlainCoexec:
    """What programs find under the name `cx`, in NumPy."""

    def __init__(self, *, marked: bool) -> None:
        self.TaskFailed = self.TaskCancelled = ()  # nothing fails here
        self._marked = marked

    def _made(self, values: Plain) -> Any:
        return Marked(values, np.zeros(values.shape, np.uint8)) if self._marked else values.view(Sound)

    def array(self, data: Any, dtype: Any = None) -> Any:
        """Return a copy."""
        if isinstance(data, Marked):
            return data.astype(data.dtype if dtype is None else dtype)
        return self._made(np.array(data, dtype))

    def asarray(self, data: Any) -> Any:
        """Return a copy: what is borrowed is never written."""
        return self.array(data)

    def zeros(self, shape: Any, dtype: Any = float) -> Any:
        """Return zeros."""
        return self._made(np.zeros(shape, dtype))

    def ones(self, shape: Any, dtype: Any = float) -> Any:
        """Return ones."""
        return self._made(np.ones(shape, dtype))

    def full(self, shape: Any, value: Any, dtype: Any = None) -> Any:
        """Return one value everywhere."""
        return self._made(np.full(shape, value, dtype))

    def wait(self) -> None:
        """Return: everything is over."""

    def flush(self) -> None:
        """Return: everything is over."""
