"""The applications give what NumPy gives, wherever and however their tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import coexec as cx
from coexec.backend.opencl.probe import probe
from coexec.plan.plan import Plan, save_plans
from coexec.program import session
from coexec.program.call import Options
from coexec.program.kernel import Kernel
from tests.devices import MIXED, TWO
from tests.examples.programs import APPLICATIONS, Application

pytestmark = pytest.mark.usefixtures("bodies_everywhere")

OPENCL = bool(probe().devices)
every = pytest.mark.parametrize("app", APPLICATIONS, ids=lambda app: app.name)


@contextmanager
def through(devices: str, policy: str) -> Iterator[list[tuple[Kernel, tuple[Any, ...]]]]:
    """Divide every call over these devices, however small, and note which calls there are."""
    calls: list[tuple[Kernel, tuple[Any, ...]]] = []
    names = ",".join(name.partition("@")[0] for name in devices.split(","))

    def call(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
        calls.append((kernel, args))
        return session.current().submit(kernel, args, kwargs, Options(names, policy=policy))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "__call__", call)
        yield calls


def lopsided(plan: Plan) -> Plan:
    """Return a plan for two devices with its cut where no planner would put it: one gets a seventh."""
    first, *_, second = plan.parts
    axis = plan.axis or 0
    cut = first.lo[axis] + max(1, (second.hi[axis] - first.lo[axis]) // 7)
    first = replace(first, hi=(*first.hi[:axis], cut, *first.hi[axis + 1 :]))
    second = replace(second, lo=(*second.lo[:axis], cut, *second.lo[axis + 1 :]))
    return replace(plan, parts=(first, second))


def uneven_plans(app: Application, devices: str) -> list[Plan]:
    """Return a lopsided plan for each kind of call that the application makes and that can be divided."""
    plans: dict[tuple[str, str], Plan] = {}
    with through(devices, "even") as calls:
        app.computed(devices=devices)
    names = ",".join(name.partition("@")[0] for name in devices.split(","))
    with cx.Runtime(devices=devices):
        for kernel, args in calls:
            fresh = [cx.empty(a.shape, a.dtype) if isinstance(a, cx.Array) else a for a in args]
            plan = kernel.using(devices=names, policy="even").plan(*fresh)
            if len(plan.parts) > 1:
                plans[plan.name, plan.shapes] = lopsided(plan)
    return list(plans.values())


@every
@pytest.mark.parametrize("devices", ["cpu:0", TWO])
def test_cores_give_what_numpy_gives(app: Application, devices: str) -> None:
    assert app.differing(app.computed(devices=devices), app.expected()) == []


if OPENCL:  # where no driver works there is nothing to compare

    @every
    def test_opencl_gives_what_numpy_gives(app: Application) -> None:
        found = app.computed(devices="opencl:0" if app.everywhere else MIXED)
        assert app.differing(found, app.expected()) == []

    @every
    def test_a_device_with_memory_of_its_own_gives_what_numpy_gives(app: Application) -> None:
        with through(MIXED, "even") if app.everywhere else through("cpu:0", ""):
            found = app.computed(devices=MIXED, memory={"opencl:0": "own"})
        assert app.differing(found, app.expected()) == []


@every
@pytest.mark.parametrize("devices", [TWO, *([MIXED] if OPENCL else [])])
def test_uneven_plans_give_what_numpy_gives(app: Application, devices: str, tmp_path: Path) -> None:
    plans = uneven_plans(app, devices)
    save_plans(plans, tmp_path / "plans.json")
    unlike = "opencl" in devices and not app.everywhere
    assert bool(plans) == ("," in devices and app.name != "cholesky" and not unlike)
    found = app.computed(devices=devices, plan=str(tmp_path / "plans.json"))
    assert app.differing(found, app.expected()) == []
