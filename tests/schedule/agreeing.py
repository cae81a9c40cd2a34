"""A random program on several ranks, and what those must agree on: numbers of calls, deals, where chains end, what a step is.

Before: coexec.ranked.  After: test_what_ranks_agree_on.py, which also runs this file as a program of its own.
"""

from __future__ import annotations

import gc
import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import coexec as cx
from coexec.driver import Driver
from coexec.graph.command import Deal
from coexec.program.ufunc import FUSED_FROM
from coexec.ranked import Ranks
from coexec.schedule.events import GROWING, HELD, PLANNED, Dropped, Settle
from tests.clusters import cluster

RANKS, STEPS = 3, 40
ROWS = FUSED_FROM // 8  # elements of an array: operators on smaller ones are no chains

Perturb = Callable[[random.Random, Ranks], None]


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.write)
def smooth(x: Any, y: Any) -> None:
    y[...] = 0.5 * x[1:-1]


@cx.kernel(split=0, x=cx.update)
def grow(x: Any) -> None:
    x += 1


@cx.kernel(split=0, x=cx.read, total=cx.reduce("sum"))
def add_up(x: Any, total: Any) -> None:
    total += x.sum()


class Knot:
    """Holds itself, so that only the collector frees it and what it holds."""

    def __init__(self, held: Any) -> None:
        self.me, self.held = self, held


def _dealt(deal: Deal | None) -> Any:
    """Return what of a deal others must know: what is computed, sent and received.

    Which temporaries of a chain are computed is a rank's own business, as is when an array is dropped: nobody can read those that
    only the collector frees. So what becomes stale is left out.
    """
    return deal and (deal.box, deal.blocks, deal.first, deal.slots, deal.pushes, deal.awaits)


class Watched:
    """What the layers of one rank that ranks must agree on were given, in order."""

    def __init__(self, member: Driver) -> None:
        self.stream: list[Any] = []
        link = member.scheduler.link
        on = link.on

        def noted(item: Any) -> None:
            on(item)
            if not isinstance(item, Dropped):  # when an array is dropped is its rank's own business
                task = item.task
                self.stream.append((type(item).__name__, task.id, task.name, task.round, _dealt(task.deal)))

        link.on = noted  # type: ignore[method-assign]


def program(choices: random.Random, between: Callable[[], None]) -> Iterator[Any]:
    """Run some calls, operators, element values, reads, waits and named steps; yield what is seen of them."""
    arrays = [cx.array(np.arange(float(ROWS)) + n) for n in range(4)]
    held: list[Any] = []
    for _ in range(STEPS):
        between()
        a, b = choices.sample(arrays, 2)
        match choices.randrange(9):
            case 0 | 1:
                smooth(a, b)
            case 2:
                grow(a)
            case 3:  # a chain, of which a temporary may be in a knot
                half = a * 0.5
                between()
                arrays[choices.randrange(4)] = half + b
                Knot(half)
                del half
                between()
            case 4:  # an element, which nobody may want any more
                Knot(a[choices.randrange(ROWS)])
                held.append(b[0])
                a[choices.randrange(ROWS)] = 3.0
            case 5:
                yield np.asarray(a).tolist()
            case 6:
                cx.wait()
            case 7:
                with cx.record():
                    for _ in range(3):
                        smooth(a, b)
                        between()
                        grow(b)
            case _:
                total = cx.zeros(())
                add_up(a, total)
                yield float(total)
    yield [float(value) for value in held]


@contextmanager
def watched(platform: cx.Platform) -> Iterator[tuple[Ranks, list[Watched]]]:
    """Open all ranks, and watch them."""
    with cx.Runtime(platform=platform, ranks=RANKS, execute=True) as runtime:
        ranks = runtime._way
        assert isinstance(ranks, Ranks)
        yield ranks, [Watched(member) for member in ranks.members]


def streams(seed: int, perturb: Perturb | None = None) -> tuple[list[list[Any]], list[Any]]:
    """Return what each rank was given, and what the program saw, with something that happens at any time."""
    choices, chance = random.Random(seed), random.Random(seed + 1)
    with watched(cluster(RANKS)) as (ranks, found):

        def between() -> None:
            if perturb is not None and chance.random() < 0.5:
                perturb(chance, ranks)

        seen = list(program(choices, between))
        return [
            list(watch.stream) for watch in found
        ], seen  # what is alive at the end is brought to the first rank then


# What may happen at any time, and on some ranks only ------------------------------------------------------------------


def collect_garbage(chance: random.Random, ranks: Ranks) -> None:
    """Let the collector run, here and there."""
    del ranks
    gc.collect(chance.randrange(3))


def fire_timers(chance: random.Random, ranks: Ranks) -> None:
    """Let a rank be sent what timers send."""
    member = chance.choice(ranks.members)
    with member.lock:
        if chance.random() < 0.5:
            member.pump.let_go(last=chance.random() < 0.5)
        else:
            member.pump.send(Settle(chance.choice((PLANNED, GROWING, HELD))))


def let_devices_work(chance: random.Random, ranks: Ranks) -> None:
    """Let time pass, so that nothing is pending any more on some ranks, and everything is on others."""
    for member in chance.sample(ranks.members, chance.randrange(1, RANKS + 1)):
        simulation = member.parts.simulation
        assert simulation is not None
        simulation.spend(chance.choice((1e-6, 1e-3, 1.0)))
        simulation.keep_up()


def another_rank_first(chance: random.Random, ranks: Ranks) -> None:
    """Let ranks come in another order from now on: whoever comes first computes what all are dealt."""
    order = list(enumerate(ranks.members))
    chance.shuffle(order)

    def in_order(act: Any) -> list[Any]:
        found = {rank: act(rank, member) for rank, member in order}
        return [found[rank] for rank in range(RANKS)]

    ranks._all = in_order  # type: ignore[method-assign]


PERTURBATIONS: dict[str, Perturb] = {
    "garbage": collect_garbage,
    "timers": fire_timers,
    "pending": let_devices_work,
    "order": another_rank_first,
}


def everything(chance: random.Random, ranks: Ranks) -> None:
    """Let anything of that happen."""
    PERTURBATIONS[chance.choice(list(PERTURBATIONS))](chance, ranks)


def digest(seeds: range) -> str:
    """Return a word for all streams of these programs."""
    told = hashlib.blake2b(digest_size=8)
    for seed in seeds:
        told.update(repr(streams(seed)).encode())
    return told.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(digest(range(2)))
