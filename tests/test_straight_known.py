"""A call of a known shape leaves what the general way leaves: numbers, edges, records, handles, failures, counts and contents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.driver import Driver
from coexec.graph.task import Task
from coexec.program.kernel import Kernel
from tests.test_straight import Seen, described, instruction

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
PROGRAMS, STEPS = 12, 90
ROWS = 24
MACHINES: list[dict[str, Any]] = [
    {"platform": "workstation", "execute": True, "policy": "even"},
    {"platform": "workstation", "execute": True, "policy": "even", "horizon": 8},
    {"platform": "workstation", "execute": True, "policy": "even", "lookahead": "none"},
    {"devices": "null:3", "policy": "even"},
    {"devices": "null:1"},
]
"""Virtual clocks and null devices: the same program takes the same course each time. Where steps are planned and computed, too, it
depends on how long planning takes."""


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.update)
def blur(x: Any, y: Any, by: Any) -> None:
    y += by * (x[:-2] - 2 * x[1:-1] + x[2:])


@cx.kernel(split=0, x=cx.read, y=cx.write)
def double(x: Any, y: Any) -> None:
    y[...] = 2 * x


@cx.kernel(split=0, x=cx.read(cx.all), y=cx.update)
def gather(x: Any, y: Any) -> None:
    y += x.mean()


@cx.kernel(split=0, x=cx.read, total=cx.reduce("sum"))
def add_up(x: Any, total: Any) -> None:
    total += x.sum()


@cx.kernel(x=cx.read, y=cx.update)
def whole(x: Any, y: Any) -> None:
    y -= 0.5 * x


@cx.kernel(split=0, y=cx.update)
def refuse(y: Any, limit: Any) -> None:
    if limit < 0:
        raise ValueError("below zero")
    y += 1


def counted(driver: Driver) -> list[str]:
    """Return the names of the calls that go the straight way from now on."""
    names: list[str] = []
    assert driver._known is not None
    run = driver._known.run

    def count(kernel: Kernel, args: tuple[Any, ...], small: Any) -> Task | None:
        task = run(kernel, args, small)
        if task is not None:
            names.append(kernel.name)
        return task

    driver._known.run = count  # type: ignore[method-assign]
    return names


def loops(draw: random.Random, arrays: list[Any], total: Any) -> list[Callable[[], Any]]:
    """Return the calls of a step that a program repeats, on arrays that it chooses."""
    x, y, z = draw.sample(arrays, 3)
    cut = slice(2, draw.choice((9, ROWS - 2)))
    ways: list[Callable[[], Any]] = [
        lambda: blur(x, y, 0.25),
        lambda: blur(y, x, np.float32(0.125)),
        lambda: double(x, z),
        lambda: gather(z, y),
        lambda: whole(x, y),
        lambda: add_up(z, total),
        lambda: blur(x[cut], y[cut], 0.5),
        lambda: gather(x, x[cut]),
        lambda: refuse(z, 1),
    ]
    return [draw.choice(ways) for _ in range(draw.randrange(1, 5))]


def disturbances(draw: random.Random, arrays: list[Any], total: Any) -> list[Callable[[], Any]]:
    """Return what a program does between steps now and then."""
    number = draw.randrange(len(arrays))
    x = arrays[number]

    def renew() -> None:
        arrays[number] = cx.array(np.arange(ROWS * 4.0).reshape(ROWS, 4))

    return [
        lambda: np.asarray(x).tolist(),
        lambda: float(np.asarray(total)[()]),
        renew,
        lambda: refuse(x, -1),
        lambda: np.add(x, 1.0, out=x),
        lambda: x[3, 2],
        lambda: blur.using(priority=1)(x, arrays[0] if number else arrays[1], 0.5),
        lambda: double(x, y=arrays[0] if number else arrays[1]),
        lambda: x.__setitem__(0, 1.0),
        cx.flush,
        cx.wait,
    ]


def steps(draw: random.Random, arrays: list[Any], total: Any) -> Iterator[Callable[[], Any]]:
    """Yield what a random program does: steps that it repeats for a while, and something else in between."""
    done = 0
    while done < STEPS:
        step = loops(draw, arrays, total)
        for _ in range(draw.choice((1, 4, 12))):
            yield from step
            done += len(step)
        if draw.random() < 0.6:
            yield draw.choice(disturbances(draw, arrays, total))


def outcome(act: Callable[[], Any]) -> Any:
    """Return what an action leads to, as something that can be compared."""
    try:
        found = act()
    except Exception as error:
        return type(error).__name__, str(error)
    return found if isinstance(found, Task) else repr(found)


def became(seed: int, options: dict[str, Any], *, known: bool) -> tuple[list[Any], list[str]]:
    """Return what a random program becomes, and which of its calls went the straight way."""
    draw = random.Random(seed)
    found: list[Any] = []
    with cx.Runtime(**options, diagnostics="off", store="off", fuse=False, compile_bodies="off") as runtime:
        driver, seen = runtime._driver, Seen()
        driver.pump.observe(seen)
        names = counted(driver)
        if not known:
            driver._known = None
        arrays = [cx.array(np.arange(ROWS * 4.0).reshape(ROWS, 4) + n) for n in range(4)]
        total = cx.zeros(())
        found += [outcome(act) for act in steps(draw, arrays, total)]
        cx.flush()
        for task in [task for task in found if isinstance(task, Task)]:
            task.wait()
        shapes: dict[Any, int] = {}  # by the first call that had it
        found = [
            described(one) | {"line": one.line, "shape": shapes.setdefault(one.shape, at)}
            if isinstance(one, Task)
            else one
            for at, one in enumerate(found)
        ]
        found += [outcome(lambda array=array: np.asarray(array).tolist()) for array in arrays]  # type: ignore[misc]
        scheduler = driver.scheduler
        found.append((scheduler.link.graph.last, scheduler.lowering.emitter.last, scheduler.counts, scheduler.live()))
        arrays.clear()
        del total
        driver.unseen()
    return [*found, *map(instruction, seen.records)], names


@pytest.mark.parametrize("options", MACHINES, ids=lambda options: ", ".join(map(str, options.values())))
def test_random_programs_become_the_same_in_both_ways(options: dict[str, Any]) -> None:
    straight = 0
    for seed in range(PROGRAMS):
        found, names = became(seed, options, known=True)
        expected, none = became(seed, options, known=False)
        assert found == expected, f"seed {seed}"
        assert not none
        straight += len(names)
    assert straight > 10 * PROGRAMS  # else nothing was compared
