"""Small arrays divided as large ones are: every call goes to all devices in equal parts, and blocks are tiny."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.opencl.probe import probe
from coexec.ops import extremes, map as map_, products, reduce
from coexec.program import session
from coexec.program.call import Options
from coexec.program.kernel import Kernel
from tests.devices import MIXED, TWO

DEVICES = ["cpu:0", TWO, *([MIXED] if probe().devices else [])]
"""One core, two, and a core beside an OpenCL device."""

TINY = (
    *((module, "SMALL", 6) for module in (reduce, extremes, products)),
    (reduce, "LARGEST", 12),
    (reduce, "FEWEST", 5),
    (reduce, "LONG", 3),
    (reduce, "SAVING", 2),
    (map_, "BLOCK", 7),
)


@contextmanager
def divided(devices: str, *, tiny: bool = True) -> Iterator[cx.Runtime]:
    """Run on these devices; each task that can be divided is, however small. With `tiny`, blocks are small too."""
    names = ",".join(name.partition("@")[0] for name in devices.split(","))

    def call(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        return session.current().submit(kernel, args, kwargs, Options(names, policy="even"))

    with pytest.MonkeyPatch.context() as patch, cx.Runtime(devices) as runtime:
        patch.setattr(Kernel, "__call__", call)
        for module, name, value in TINY if tiny else ():
            patch.setattr(module, name, value)
        yield runtime


def outcome(function: Any, *args: Any) -> Any:
    """Return what a function gives, as arrays, or the type of what it raises, without NumPy's warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            answer = function(*args)
        except (TypeError, ValueError, OverflowError) as error:
            return type(error)
        return [np.asarray(a) for a in (answer if isinstance(answer, tuple) else (answer,))]


def agree(function: Any, *args: Any, ulp: float = 0.0) -> None:
    """Assert that `function` does the same to coexec arrays as to NumPy's: types, shapes, and values within `ulp`."""
    ours = outcome(function, *[cx.array(a) if isinstance(a, np.ndarray) else a for a in args])
    theirs = outcome(function, *args)
    if isinstance(theirs, type):
        assert isinstance(ours, type) and issubclass(ours, (TypeError, ValueError, OverflowError)), (ours, theirs)
        return
    assert not isinstance(ours, type), (ours, theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        if ulp and mine.dtype.kind in "fc":
            np.testing.assert_allclose(mine, other, rtol=ulp * np.finfo(mine.dtype).eps)
        else:
            np.testing.assert_array_equal(mine, other)
