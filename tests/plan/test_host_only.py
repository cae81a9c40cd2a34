"""What no device of a runtime can run: the host does it if it is coexec's own, and else the call is refused."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import PerformanceWarning
from tests.backend.opencl_parts import needs_opencl
from tests.devices import MIXED

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
        assert runtime._driver.loads.idle


@cx.kernel(x=cx.update)
def _only_python(x: Any) -> None:
    x += 1


@cx.kernel(split=0, x=cx.read, y=cx.update)
def _scaled(a: Any, x: Any, y: Any) -> None:
    y += a * x


_scaled.opencl("y(i) += a * x(i);")


@pytest.mark.parametrize("devices", ["opencl:0", MIXED])
def test_arguments_that_overlap_name_the_devices_that_they_keep_out(tmp_path: Path, devices: str) -> None:
    with cx.Runtime(devices, trace=tmp_path / "run.json"):
        y, z = cx.array(np.arange(1000.0)), cx.array(np.arange(1000.0))
        assert "overlap" not in _scaled.plan(2.0, z, y).left_out.get("opencl:0", "")
        plan = _scaled.plan(2.0, y, y)
        with pytest.warns(PerformanceWarning, match=r"'_scaled' .* overlap, so opencl:0 does nothing of it.*copy"):
            _scaled(2.0, y, y)
        assert "overlap" in plan.left_out["opencl:0"] and "opencl:0 does nothing" in plan.explain()
        assert plan.why.endswith("left out: opencl:0 (arguments overlap)")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # said once
            _scaled(2.0, y, y)
        assert np.asarray(y)[1] == 9.0
    rows = json.loads((tmp_path / "run.json").read_text())
    whys = [row["why"] for row in rows if row["row"] == "task" and row["name"] == "_scaled"]
    assert len(whys) == 2 and all("left out: opencl:0 (arguments overlap)" in why for why in whys)
