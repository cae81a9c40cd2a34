"""Parts of a layer for accelerators of unlike speed: sizes that let all finish together.

Before: models/sharding.py, models/fabric.py.  After: models/plan_tree.py.  Bisection on the finish time, as for any division.

A design's seconds are monotone in the size of a part, so the largest part that an accelerator finishes within a time is
well defined, and the least time in which all parts together cover the dimension is found by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .engines import Accounts, nest
from .fabric import Fabric, Members
from .loops import WorkLayer
from .sharded import even_sizes
from .sharding import COUT, Sharding, volumes

HALVINGS = 60
"""Steps of a bisection: beyond, doubles do not tell times apart."""

Sizes = tuple[tuple[int, ...], ...]


def fair_sizes(fabric: Fabric, layer: WorkLayer, sharding: Sharding, members: Members, design: str) -> Sizes:
    """Return the sizes of a layer's parts: equal ones, or fair ones where one dimension is cut among unlike accelerators."""
    even = even_sizes(layer, sharding)
    cut = [dim for dim, parts in enumerate(sharding.factors) if parts > 1]
    if len(cut) != 1 or sharding.rotation is not None or sum(n > 0 for n in members) < 2:
        return even
    dim, total = cut[0], sum(even[cut[0]])
    unit = total // layer.groups if dim == COUT and layer.groups > 1 else 1
    counts = balanced(
        total // unit, [_seconds(fabric, layer, sharding, dim, i, design, unit) for i in fabric.indices(members)]
    )
    return tuple(tuple(n * unit for n in counts) if d == dim else sizes for d, sizes in enumerate(even))


def _seconds(
    fabric: Fabric, layer: WorkLayer, sharding: Sharding, dim: int, accelerator: int, design: str, unit: int
) -> Callable[[int], float]:
    """Return how long an accelerator takes for a part of so many units of a dimension."""
    mine = fabric.accelerators[accelerator]
    engine = next(d for d in mine.designs if d.name == design)
    sizes = list(volumes(layer, sharding).nest)
    accounts = Accounts(layer.stride, layer.groups, layer.kind)

    def seconds(count: int) -> float:
        sizes[dim] = count * unit
        return float(engine.seconds(nest(*sizes), accounts, mine.clock)) * layer.steps if count else 0.0

    return seconds


def balanced(total: int, seconds: Sequence[Callable[[int], float]]) -> tuple[int, ...]:
    """Return how many of `total` rows each takes, so that the last is over as early as possible."""
    low, high = 0.0, min(one(total) for one in seconds)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if sum(_within(one, total, middle) for one in seconds) >= total:
            high = middle
        else:
            low = middle
    counts = [_within(one, total, high) for one in seconds]
    while sum(counts) > total:  # rounding let some take more than there is: from the one that gains most by less
        latest = max(range(len(counts)), key=lambda i: (seconds[i](counts[i]), counts[i]))
        counts[latest] -= 1
    return tuple(counts)


def _within(seconds: Callable[[int], float], total: int, limit: float) -> int:
    """Return the most rows that take no longer than a time."""
    low, high = 0, total
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if seconds(middle) <= limit else (low, middle - 1)
    return low


def slowest(fabric: Fabric, layer: WorkLayer, sharding: Sharding, members: Members, design: str, sizes: Sizes) -> float:
    """Return the seconds until the last accelerator has computed its part of one cut dimension."""
    cut = [dim for dim, parts in enumerate(sharding.factors) if parts > 1]
    dim = cut[0]
    unit = 1
    return float(np.max([
        _seconds(fabric, layer, sharding, dim, i, design, unit)(size)
        for i, size in zip(fabric.indices(members), sizes[dim], strict=True)
    ]))  # fmt: skip
