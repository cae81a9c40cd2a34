"""Random programs against sequential NumPy, divided in every way: policies, declared costs, and models that are all wrong."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import coexec as cx
from coexec.backend.opencl.program import Launcher
from coexec.predict.work import Work
from tests.devices import MIXED, TWO
from tests.twin import Twin

POLICIES = ("", "static", "dynamic", "auto", "even")
STEPS = ("new", "drop", "axpy", "axpy", "scale", "shifted", "stencil", "reduce", "assign", "heavy", "heavy", "rows")
LOOKS = ("look", "look_at_sum", "host_task", "wait")
SPEEDS = (1e-9, 1e-6, 1e-3, 1.0)  # seconds per byte that a model is made to believe

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


def heavy_body(x, y, power):
    y += x * power


def triangle(rows: Any) -> Any:
    return rows + 1.0


HEAVY = {
    ndim: cx.kernel(
        split=0,
        x=cx.read,
        y=cx.update,
        name="heavy",
        flops=lambda y, power: 2.0 * y.size * (power + 1),
        features={"rows": lambda y: y.shape[0]},
        weight=triangle if ndim == 1 else None,
    )(heavy_body).opencl(f"y({index}) += x({index}) * power;")
    for ndim, index in ((1, "i"), (2, "i, j"))
}


@cx.kernel(split=(1, 0), y=cx.update, flops=3)
def either_axis(y):
    y *= 3
    y %= 1009


class Divided(Twin):
    """A program whose calls are divided by a drawn policy, and whose models are told nonsense now and then."""

    def __init__(self, runtime: cx.Runtime, devices: tuple[str | None, ...], choice: int) -> None:
        super().__init__(devices=devices, overlap=False)
        self._runtime = runtime
        self._choice = choice

    def call(self, kernel: Any, device: str | None, *args: Any) -> Any:
        self._choice = self._choice * 1103515245 + 12345 & 0x7FFFFFFF
        policy = POLICIES[(self._choice >> 8) % len(POLICIES)]
        if (self._choice >> 16) % 3 == 0:
            self.poison(self._choice >> 4)
        return kernel.using(devices=device, policy=policy)(*args)

    def poison(self, choice: int) -> None:
        """Let every model believe in some absurd speed."""
        for number, model in enumerate(self._runtime.learned.models().values()):
            speed = SPEEDS[(choice >> number % 16) % len(SPEEDS)]
            for sample in model.samples()[:4]:
                work = Work(sample.features, sample.kind, None)
                for together in (False, True):
                    model.learn(work, speed * sample.features[0], together=together)

    def heavy(self, a: int, b: int, c: int) -> None:
        if (both := self.pair(a, b, c)) is not None:
            x, y = both
            self.call(HEAVY[self._mine(y).ndim], self.device(c), self._mine(x), self._mine(y), c % 4)
            self.wrote(y, False, lambda: self._other(y) + c % 4 * self._other(x))

    def rows(self, a: int, b: int, c: int) -> None:
        y = self.pick(1, b)
        device = self.device(c)
        cpu = device is None or "opencl" in device
        self.call(either_axis, None if cpu else device, self._mine(y))
        self.wrote(y, False, lambda: self._other(y) * 3 % 1009)


def programs() -> st.SearchStrategy[tuple[list[tuple[str, int, int, int]], int]]:
    number = st.integers(0, 10**4)
    steps = st.lists(st.tuples(st.sampled_from(STEPS + LOOKS), number, number, number), min_size=1, max_size=30)
    return st.tuples(steps, st.integers(0, 2**31 - 1))


def check(runtime: cx.Runtime, devices: tuple[str | None, ...], examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(programs())
    def random_program(drawn):
        program, choice = drawn
        Divided(runtime, devices, choice).run(program)

    random_program()


@pytest.mark.parametrize("policy", ["static", "dynamic", "auto", "even"])
def test_programs_on_two_cores(policy, monkeypatch) -> None:
    monkeypatch.setenv("COEXEC_POLICY", policy)
    with cx.Runtime(TWO) as runtime:
        check(runtime, (None, TWO, TWO), 25)


@pytest.mark.parametrize("memory", ["own", "shared"])
def test_programs_on_a_core_and_an_opencl_device(memory) -> None:
    both = MIXED.replace("@1", "")
    with cx.Runtime(MIXED, memory={"opencl:0": memory}) as runtime:
        check(runtime, (None, both, both, "cpu:0", "opencl:0"), 50)


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

    def flaky(self, queue, instruction, waits):
        if next(launches) == last and instruction.together:
            raise RuntimeError("OUT_OF_RESOURCES")
        return launch(self, queue, instruction, waits)

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
