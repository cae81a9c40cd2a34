"""Divisions by models that are all wrong, and devices that fail on the way. Random programs are in tests/fuzz/."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.opencl.program import Launcher
from coexec.predict.work import Work
from tests.devices import MIXED, TWO

POLICIES = ("", "static", "dynamic", "auto", "even")

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


@pytest.mark.parametrize("policy", ["static", "dynamic", "auto"])
@pytest.mark.parametrize("devices", [TWO, MIXED])
def test_large_arrays_and_wrong_models(policy, devices) -> None:
    """Divisions as uneven as can be, and others in the next step: data moves to and fro, and is right in the end."""
    names = devices.replace("@1", "")

    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def smooth(x, y):
        y[...] = 0.5 * x + 1

    smooth.opencl("y(i) = 0.5 * x(i) + 1;")
    rng = np.random.default_rng(7)
    with cx.Runtime(devices) as runtime:
        expected = rng.standard_normal(50_000)
        x, y = cx.array(expected), cx.zeros(expected.shape)
        for step in range(24):
            for model in runtime.learned.models().values():
                for sample in model.samples()[:3]:
                    speed = 10.0 ** -(6 + 3 * math.cos(step * len(model.samples())))
                    model.learn(Work(sample.features, sample.kind, None), speed * sample.features[0], together=True)
            smooth.using(devices=names, policy=policy)(x, y)
            expected = 0.5 * expected + 1
            x, y = y, x
        np.testing.assert_array_equal(np.asarray(x), expected)


@cx.kernel(split=0, x=cx.read, y=cx.update)
def add(x, y):
    y += x


@cx.kernel(split=0, x=cx.read, y=cx.write)
def copy(x, y):
    y[...] = 2 * x


@cx.kernel(split=0, y=cx.write)
def fill(y, value):
    y[...] = value


for kernel, source in ((add, "y(i) += x(i);"), (copy, "y(i) = 2 * x(i);"), (fill, "y(i) = value;")):
    kernel.opencl(source)


@pytest.mark.parametrize("memory", ["own", "shared"])
@pytest.mark.parametrize("seed", range(10))
def test_programs_whose_device_fails_on_the_way(seed, memory, monkeypatch) -> None:
    """Whatever was queued behind the part that failed, and whatever comes while it is redone, sees the right values."""
    rng = random.Random(seed)
    launch, launches, last = Launcher.launch, itertools.count(1), rng.randrange(1, 25)

    def flaky(self, queue, task, step, waits):
        if next(launches) == last and step.together:
            raise RuntimeError("OUT_OF_RESOURCES")
        return launch(self, queue, task, step, waits)

    monkeypatch.setattr(Launcher, "launch", flaky)
    with cx.Runtime(MIXED, memory={"opencl:0": memory}):
        theirs = [np.arange(64) + i for i in range(3)]
        ours = [cx.array(values) for values in theirs]
        for _ in range(40):
            source, target = rng.sample(range(3), 2)
            options: dict[str, Any] = {
                "devices": MIXED.replace("@1", ""),
                "policy": rng.choice(["even", "even", *POLICIES[1:]]),
            }
            match rng.randrange(4):
                case 0:
                    add.using(**options)(ours[source], ours[target])
                    theirs[target] = theirs[target] + theirs[source]
                case 1:
                    copy.using(**options)(ours[source], ours[target])
                    theirs[target] = 2 * theirs[source]
                case 2:
                    fill.using(**options)(ours[target], 3)
                    theirs[target] = np.full(64, 3)
                case _ if rng.random() < 0.2:
                    np.testing.assert_array_equal(np.asarray(ours[target]), theirs[target])
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(np.asarray(mine), other)
