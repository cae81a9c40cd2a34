"""What no device of a runtime can run: the host does it if it is coexec's own, and else the call is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coexec as cx
from tests.backend.opencl_parts import needs_opencl

pytestmark = needs_opencl


def test_what_no_device_can_run_the_host_does_if_it_is_coexecs_own() -> None:
    """Assignments, copies and sums are nobody's to add a variant to."""
    with cx.Runtime("opencl:0"):
        a = cx.array(np.arange(1000.0))
        b = a.copy()
        b[:3] = np.array([7.0, 8.0, 9.0])
        b[3] = 5.0
        one = cx.zeros(())
        one[...] = 1.5
        assert np.asarray(b).tolist() == [7.0, 8.0, 9.0, 5.0, *range(4, 1000)]
        assert (float(a.sum()), float(a.max()), float(one)) == (499500.0, 999.0, 1.5)
        assert float(np.vdot(r := cx.ones((258, 258)), r)) == 258**2
        with pytest.raises(cx.errors.PlanError, match="cpu:0"):
            _only_python(a)


def _shifted(a: Any) -> Any:
    a[1:] = a[:-1]
    return a


REPEATED: dict[str, Callable[[Any], Any]] = {
    "a sum along an axis": lambda a: a.sum(axis=0),
    "a roll": lambda a: np.roll(a, 1, axis=0),
    "a conversion": lambda a: a.astype(np.int32),
    "an assignment to itself": _shifted,
}


@pytest.mark.parametrize("operation", REPEATED.values(), ids=REPEATED)
def test_what_the_host_does_for_lack_of_a_device_may_repeat_itself(operation: Callable[[Any], Any]) -> None:
    """Steps that repeat themselves are replayed: what the planner counts then does not include the host."""
    plain = np.arange(64.0).reshape(16, 4)
    with cx.Runtime("opencl:0") as runtime:
        a = cx.array(plain)
        for _ in range(12):
            made, expected = operation(a), operation(plain)
        assert np.array_equal(made, expected)
        runtime.wait()
        assert runtime.loads.idle


@cx.kernel(x=cx.update)
def _only_python(x: Any) -> None:
    x += 1
