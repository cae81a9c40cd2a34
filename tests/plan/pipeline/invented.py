"""Random small systems and workloads, with everything that makes planning hard."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

from coexec.plan.pipeline import DeviceClass, Hop, StreamKernel, StreamSystem, StreamValue, StreamWork

SIZES = ((3, 2), (1, 1), (2, 2), (1, 2), (2, 1, 1), (1, 1, 1), (4,), (1,), (2, 1))


def system(draw: random.Random, counts: tuple[int, ...] | None = None, *, budgets: bool = True) -> StreamSystem:
    """Return classes with odd links: some missing, some slow one way, some shared."""
    counts = counts or draw.choice(SIZES)
    names = ["f", "g", "h"][: len(counts)]
    one = budgets and len(counts) > 1 and draw.random() < 0.2  # the first two share silicon
    classes = []
    for i, (name, count) in enumerate(zip(names, counts, strict=True)):
        units = draw.choice([1, 2]) if one and i == 1 else 1
        idle = 10.0 * units if one and i < 2 else draw.choice([0.0, 5.0, 30.0])
        memory = draw.choice([inf, inf, 8e6, 16e6])
        watts = idle + draw.choice([0.0, 20.0, 50.0, 200.0])
        handover = draw.choice([0.0, 0.0, 0.5])
        classes.append(DeviceClass(name, count, watts, idle, memory, "one" if one and i < 2 else "", units, handover))
    hops = {}
    for a in ("host", *names):
        for b in ("host", *names):
            if a == b == "host" or (("host" not in (a, b)) and draw.random() < 0.3):
                continue
            hops[a, b] = Hop(
                draw.choice([0.0, 0.1, 0.5]), draw.choice([2e5, 1e6, 5e6, inf]), draw.choice([inf, inf, 1e6])
            )
    return StreamSystem(tuple(classes), hops)


def kernel(draw: random.Random, name: str, machine: StreamSystem) -> StreamKernel:
    """Return a kernel whose speed-ups may be above linear or below one, and that some classes cannot run."""
    seconds: dict[str, list[float]] = {}
    for c in machine.classes:
        if draw.random() < 0.15:
            continue
        one = float(draw.choice([draw.randint(1, 9), draw.uniform(0.5, 9.0)]))
        power = draw.choice([0.5, 0.9, 1.0, 1.2, -0.2])
        known = draw.choice([1, c.count, c.count])
        seconds[c.name] = [one / n**power for n in range(1, known + 1)]
    if not seconds:
        seconds[machine.classes[0].name] = [1.0]
    heavy = draw.choice([0.0, 0.0, 1e6, 4e6])
    return StreamKernel(name, seconds, draw.random() < 0.7, heavy, draw.choice([0.0, 1e6]))


def size(draw: random.Random) -> float:
    return draw.choice([0.0, 1e5, 1e6, 2e6, draw.uniform(0.0, 3e6)])


def chain(draw: random.Random, machine: StreamSystem, most: int = 4) -> StreamWork:
    """Return kernels one after the other."""
    kernels = [kernel(draw, f"k{i}", machine) for i in range(draw.randint(1, most))]
    return StreamWork.chain(kernels, [size(draw) for _ in range(len(kernels) + 1)])


def uneven(draw: random.Random, machine: StreamSystem, most: int = 4) -> StreamWork:
    """Return kernels one after the other that draw unlike watts, some less than their devices while these wait."""
    made = chain(draw, machine, most)
    drawn = [
        {c.name: draw.choice([1.0, 35.0, 150.0, 400.0]) for c in machine.classes if draw.random() < 0.6}
        for _ in made.kernels
    ]
    return StreamWork(tuple(replace(k, watts=w) for k, w in zip(made.kernels, drawn, strict=True)), made.values)


def graph(draw: random.Random, machine: StreamSystem, most: int = 4) -> StreamWork:
    """Return kernels with branches and values that skip some of them."""
    kernels = [kernel(draw, f"k{i}", machine) for i in range(draw.randint(2, most))]
    names = [k.name for k in kernels]
    values = [StreamValue(size(draw), None, tuple(draw.sample(names, draw.randint(1, len(names)))))]
    for i, name in enumerate(names):
        later = names[i + 1 :]
        readers = tuple(draw.sample(later, draw.randint(0, min(2, len(later)))))
        values.append(StreamValue(size(draw), name, readers, result=not readers or draw.random() < 0.2))
    return StreamWork(tuple(kernels), tuple(values))
