"""Programs whose turns are alike: operations, the examples, the six programs of the benchmark `dag`, unlike calls in a turn.

Before: program.py, examples/, bench/dag/.  After: harness.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import coexec as cx

from ..apps.programs import load
from ..dag.harness import PROGRAMS
from ..dag.program import KernelCall
from .program import ArrayMaker, SizedProgram, Turn, from_numpy, read


def _matmul(side: int, given: ArrayMaker) -> Turn:
    a, b, c = (given(side, side) for _ in range(3))
    return lambda _: cx.matmul(a, b, c)


def _conv2d(images: int, given: ArrayMaker) -> Turn:
    x, w = given(images, 64, 56, 56), given(64, 64, 3, 3)
    return lambda _: cx.conv2d(x, w, padding=1)


def _chain(side: int, given: ArrayMaker) -> Turn:
    a, b, c = (given(side, side) for _ in range(3))

    def turn(number: int) -> None:
        del number
        c[...] = np.sqrt(a * b + 1) / 2 + a

    return turn


def _sum(side: int, given: ArrayMaker) -> Turn:
    a = given(side, side)
    return lambda _: a.sum()


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def _smooth(u: Any, out: Any) -> None:
    out[...] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


def _unlike(side: int, given: ArrayMaker) -> Turn:
    u, v, w = (given(side, side) for _ in range(3))

    def turn(number: int) -> Any:
        del number
        _smooth(u, v)
        total = v.sum()
        w[...] = np.sqrt(v * v + 1) / 2 + u
        return total

    return turn


def _wave(side: int, given: ArrayMaker) -> Turn:
    example: Any = load("wave_sim")
    arrays = given(side, side), given(side, side)
    return lambda turn: example.step(arrays[turn % 2], arrays[1 - turn % 2], 0.25)


def _nbody(bodies: int, given: ArrayMaker) -> Turn:
    example: Any = load("nbody")
    places = given(bodies, 3, dtype=float), given(bodies, 3, dtype=float)
    speed, mass = given(bodies, 3, dtype=float), given(bodies, dtype=float)

    def turn(number: int) -> Any:
        place, following = places[number % 2], places[1 - number % 2]
        example.move(place, mass, place, speed, following, 1e-3)

    return turn


def _kmeans(points: int, given: ArrayMaker) -> Turn:
    example: Any = load("kmeans")
    arrays = from_numpy(given, example.start(1000, 16))
    arrays[0], arrays[2] = given(points, 8, dtype=float), given(points, dtype=np.int32)
    return lambda _: example.compute(*arrays, steps=1)


def _cg(side: int, given: ArrayMaker) -> Turn:
    example: Any = load("cg")
    x, r, p, q = (given(side, side, dtype=float) for _ in range(4))
    rr, pq, new = (cx.zeros(()) for _ in range(3))
    norms = [rr, new]

    def turn(number: int) -> Any:
        before, after = norms[number % 2], norms[1 - number % 2]
        example.apply(p, q, pq)
        example.advance(p, q, pq, before, x, r, after)
        example.turn(r, p, after, before)

    return turn


def _black_scholes(options: int, given: ArrayMaker) -> Turn:
    example: Any = load("black_scholes")
    arrays = [given(options, dtype=float) for _ in range(5)]
    value = cx.zeros(())
    return lambda _: example.compute(*arrays, value)


def _image(side: int, given: ArrayMaker) -> Turn:
    example: Any = load("image")
    picture = given(side, side, dtype=float)
    return lambda _: example.compute(picture)


def _rsim(edge: int, given: ArrayMaker) -> Turn:
    example: Any = load("rsim")
    steps = 12
    arrays = from_numpy(given, example.start(edge, steps))
    return lambda _: example.compute(*arrays, steps)


def _dag(name: str, size: int, given: ArrayMaker) -> Turn:
    program = PROGRAMS[name].make(size)
    arrays = {known: given.like(array) for known, array in program.arrays.items()}
    steps, reads = program.steps, program.reads
    del program

    def turn(number: int) -> None:
        del number
        for step in steps:
            if isinstance(step, KernelCall):
                step.kernel(*step.bind(arrays))
            else:
                arrays[step.array][...] = step.value
        for result, index in reads:
            read(arrays[result][index])

    return turn


MADE: dict[str, tuple[Callable[..., Turn], tuple[int, ...], str]] = {
    "chain": (_chain, (8192, 1024), "{0} x {0}"),
    "wave_sim": (_wave, (1000, 8192), "{0} x {0}"),
    "matmul": (_matmul, (4096, 8192, 512), "{0} x {0}"),
    "unlike": (_unlike, (8192, 2048), "{0} x {0}"),
    "sum": (_sum, (8192, 1024), "{0} x {0}"),
    "cg": (_cg, (2048, 512), "{0} x {0}"),
    "conv2d": (_conv2d, (64, 8), "{0} images of 64 x 56 x 56"),
    "rsim": (_rsim, (12, 24), "{0} patches per edge"),
    "kmeans": (_kmeans, (1_000_000, 100_000), "{0:,} points"),
    "nbody": (_nbody, (20_000, 4000), "{0:,} bodies"),
    "black_scholes": (_black_scholes, (4_000_000, 400_000), "{0:,} options"),
    "image": (_image, (4000, 1000), "{0} x {0}"),
}
"""Programs, and their sizes: the first is the one of the quick set."""
DAG = {"VEC": 20_000_000, "B&S": 400_000, "IMG": 1600, "ML": 60_000, "HITS": 300_000, "DL": 2000}


def programs(*, quick: bool) -> Iterator[SizedProgram]:
    """Yield every program at one size or, unless quick, at all."""
    for name, (make, sizes, text) in MADE.items():
        for size in sizes[:1] if quick else sizes:
            yield SizedProgram(name, text.format(size), partial(make, size))
    for name, size in DAG.items():
        for times in (1,) if quick else (1, 10):
            yield SizedProgram(f"dag {name}", f"{size // times:,}", partial(_dag, name, size // times))
