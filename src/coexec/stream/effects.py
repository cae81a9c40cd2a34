"""What a function does beside computing: values and containers that it changes, what it prints, random numbers that it draws.

Before: ops/random.py.  After: stream/rehearsing.py, stream/pipeline.py.  Knows no item and no plan.

Planning runs a function more often than there are items. Random numbers are as before afterwards, and a function that is seen to
change anything else is not run more often than planning must. Only what a function reaches by names is looked at: its closure,
its module's globals, defaults, attributes of such objects, and the same of functions that it calls by name.
"""

from __future__ import annotations

import functools
import itertools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..ops.random import Generator, default_generator

MOST = 256  # values that are looked at
MOST_ENTRIES = 64  # of a container
MOST_BYTES = 1 << 14  # of an array that is compared
PLAIN = (int, float, complex, str, bytes, bool, type(None))
CONTAINERS = (list, dict, set, deque)


def reached(function: Any, constants: Mapping[str, Any]) -> list[Any]:
    """Return the values that a function reaches by names, as they are now."""
    found: list[Any] = []
    known: set[int] = set()
    left: deque[Any] = deque([function, *constants.values()])
    while left and len(found) < MOST:
        value = left.popleft()
        if isinstance(value, PLAIN):
            found.append(value)
        elif id(value) not in known:
            known.add(id(value))
            found.append(value)
            left.extend(_inside(value))
    return found


def _inside(value: Any) -> Iterator[Any]:
    """Yield what is looked at behind a value."""
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # nothing in it yet
                continue
        yield from value.__defaults__ or ()
        yield from (value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__)
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, dict):
        yield from itertools.islice(value.values(), MOST_ENTRIES)
    elif isinstance(value, list | tuple | deque):
        yield from itertools.islice(value, MOST_ENTRIES)
    elif not isinstance(value, type | ModuleType) and type(value).__module__.partition(".")[0] not in (
        "numpy",
        "coexec",
    ):
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            yield from itertools.islice(attributes.values(), MOST_ENTRIES)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def seen(function: Any, constants: Mapping[str, Any]) -> list[Any]:
    """Return what can be compared of what a function reaches: it differs if the function has changed something."""
    found: list[Any] = []
    for value in reached(function, constants):
        if isinstance(value, float | complex):
            found.append(repr(value))  # NaN is NaN
        elif isinstance(value, PLAIN):
            found.append(value)
        elif isinstance(value, CONTAINERS):
            found.append((id(value), len(value)))
        elif isinstance(value, np.ndarray) and value.nbytes <= MOST_BYTES:
            found.append(value.tobytes())
        else:
            found.append(repr(value) if isinstance(value, itertools.count) else id(value))
    return found


class Printed:
    """In the place of a stream that a program prints to: passes on, and counts."""

    def __init__(self, to: Any) -> None:
        self.times = 0
        self._to = to

    def write(self, text: Any) -> Any:
        """Write."""
        self.times += 1
        return self._to.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


@contextmanager
def noticed(function: Any, constants: Mapping[str, Any], found: list[bool]) -> Iterator[None]:
    """Append to `found` whether the block, which calls a function, changes what the function reaches, or prints."""
    before, outs = seen(function, constants), (sys.stdout, sys.stderr)
    proxies = tuple([Printed(out) for out in outs])
    sys.stdout, sys.stderr = proxies
    try:
        yield
    finally:
        sys.stdout = outs[0] if sys.stdout is proxies[0] else sys.stdout
        sys.stderr = outs[1] if sys.stderr is proxies[1] else sys.stderr
        found.append(any(proxy.times for proxy in proxies) or seen(function, constants) != before)


@contextmanager
def same_randomness(function: Any, constants: Mapping[str, Any]) -> Iterator[None]:
    """Leave random numbers as they were: those of Python, NumPy and torch, and of generators that a function reaches."""
    again = list(_generators(reached(function, constants)))
    try:
        yield
    finally:
        for restore in again:
            restore()


def _generators(values: list[Any]) -> Iterator[Callable[[], Any]]:
    """Yield what sets each of them back."""
    yield functools.partial(random.setstate, random.getstate())
    yield functools.partial(np.random.set_state, np.random.get_state())  # noqa: NPY002 - programs do use it
    ours = default_generator()
    yield functools.partial(setattr, ours, "_calls", ours._calls)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_rng_state"):
        yield functools.partial(torch.set_rng_state, torch.get_rng_state())
    for value in values:
        if isinstance(value, np.random.Generator):
            yield functools.partial(setattr, value.bit_generator, "state", value.bit_generator.state)
        elif isinstance(value, np.random.RandomState):
            yield functools.partial(value.set_state, value.get_state())
        elif isinstance(value, Generator):
            yield functools.partial(setattr, value, "_calls", value._calls)
        elif isinstance(value, random.Random):
            yield functools.partial(value.setstate, value.getstate())


__all__ = ["noticed", "same_randomness"]
