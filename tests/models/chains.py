"""Small platforms and chains, and every mapping of them: the oracle of the searches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np

from coexec.models.engines import Accounts, Amounts, EngineDesign, LoopSizes
from coexec.models.fabric import HERE, Accelerator, Fabric, LinkWay, Members
from coexec.models.loops import CONV, Loops, WorkLayer, Workload
from coexec.models.mapping import Mapping, SetStage
from coexec.models.sharding import shardings


def channels_first(loops: LoopSizes, accounts: Accounts) -> Amounts:
    """Cycles of a design that does four output channels at once."""
    return loops.batch * np.ceil(loops.cout / 4) * loops.cin * loops.rows * loops.columns * loops.kh * loops.kw


def rows_first(loops: LoopSizes, accounts: Accounts) -> Amounts:
    """Cycles of a design that does three rows at once."""
    return loops.batch * np.ceil(loops.rows / 3) * loops.cout * loops.cin * loops.columns * loops.kh * loops.kw


DESIGNS = (EngineDesign("channels", channels_first, ""), EngineDesign("rows", rows_first, ""))


def small_fabric(
    groups: tuple[int, ...] = (2, 1), near: float = 1e-9, far: float = 4e-9, memory: int | None = None, latency: float = 0.0,
    watts: tuple[float, ...] = (10.0, 20.0, 30.0),
) -> Fabric:  # fmt: skip
    """Return groups of accelerators: `near` seconds per byte within one, `far` between two and to the host."""
    owner = [g for g, count in enumerate(groups) for _ in range(count)]
    accelerators = tuple(
        Accelerator(f"a{i}", DESIGNS, 1e6 * (1 + g), memory, watts[g], 1.0 + g) for i, g in enumerate(owner)
    )

    def way(i: int, j: int) -> LinkWay:
        return HERE if i == j else LinkWay(near if owner[i] == owner[j] else far, latency)

    count = range(len(owner))
    return Fabric("small", accelerators, tuple(tuple(way(i, j) for j in count) for i in count),
                  tuple(LinkWay(far, latency) for _ in count))  # fmt: skip


def small_chain(seed: int, count: int = 3, *, shortcut: bool = False) -> Workload:
    """Return a chain of small layers of random sizes; with a shortcut, the last one reads the first one too."""
    random = np.random.default_rng(seed)
    channels = [int(c) for c in random.integers(2, 9, count + 1)]
    side, layers = int(random.integers(4, 9)), []
    for i in range(count):
        after: tuple[int, ...] = (i - 1,) if i else ()
        if shortcut and i == count - 1 and count > 2:
            after = (0, i - 1)
        taps = int(random.choice([1, 2]))
        layers.append(WorkLayer(f"l{i}", CONV, Loops(1, channels[i + 1], channels[i], side, 1, taps, 1), after))
    return Workload(f"chain{seed}", tuple(layers))


def partitions(fabric: Fabric, most: int) -> Iterator[tuple[Members, ...]]:
    """Yield every sequence of disjoint sets."""

    def extend(left: Members, found: tuple[Members, ...]) -> Iterator[tuple[Members, ...]]:
        if found:
            yield found
        if len(found) < most:
            for members in product(*(range(n + 1) for n in left)):
                if any(members):
                    yield from extend(tuple(a - b for a, b in zip(left, members, strict=True)), (*found, members))

    yield from extend(fabric.all, ())


def every_chain_mapping(workload: Workload, fabric: Fabric, *, rotate: bool = True) -> Iterator[Mapping]:
    """Yield every mapping: sets, designs, cuts, shardings."""
    count = len(workload.layers)
    for sets in partitions(fabric, count):
        for inner in combinations(range(1, count), len(sets) - 1):
            cuts = (0, *inner, count)
            for designs in product(*(fabric.designs(members) for members in sets)):
                spans = zip(sets, cuts, cuts[1:], strict=False)
                ways = [
                    product(*(shardings(workload.layers[i], sum(m), rotate=rotate) for i in range(a, b)))
                    for m, a, b in spans
                ]
                for chosen in product(*ways):
                    yield tuple(map(SetStage, sets, designs, cuts, chosen))
