"""Programs whose turns are not alike: values that are read, calls now and then, branches, views that shrink, arrays that grow.

Before: program.py, exact.py.  After: harness.py.  Deterministic: what is random comes from a seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import numpy as np

import coexec as cx

from .exact import _smooth as smooth
from .program import ArrayMaker, SizedProgram, Turn, read


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def _sweep(u: Any, out: Any) -> None:
    out[...] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


def _reads(side: int, given: ArrayMaker) -> Turn:
    arrays = given(side, side), given(side, side)

    def turn(number: int) -> None:
        smooth(arrays[number % 2], arrays[1 - number % 2])
        read(arrays[1 - number % 2].sum())

    return turn


def _tenth(side: int, given: ArrayMaker) -> Turn:
    arrays = given(side, side), given(side, side)
    shown = given(side, side)

    def turn(number: int) -> None:
        smooth(arrays[number % 2], arrays[1 - number % 2])
        if number % 10 == 9:
            shown[...] = np.sqrt(arrays[1 - number % 2] * 2)

    return turn


def _red_black(side: int, given: ArrayMaker) -> Turn:
    red, black = given(side, side), given(side, side)

    def turn(number: int) -> None:
        del number
        smooth(red, black)
        red[::2, :] = black[::2, :]
        smooth(black, red)
        black[1::2, :] = red[1::2, :]

    return turn


def _v_cycle(side: int, given: ArrayMaker) -> Turn:
    sides = [side >> level for level in range(4)]
    fields = [(given(n, n), given(n, n)) for n in sides]

    def turn(number: int) -> None:
        del number
        for level in (0, 1, 2, 3, 2, 1, 0):
            u, v = fields[level]
            for _ in range(3):
                _sweep(u, v)
                u, v = v, u

    return turn


def _branch(side: int, given: ArrayMaker) -> Turn:
    a, b = given(side, side), given(side, side)
    coin = Random(3)

    def turn(number: int) -> None:
        del number
        if coin.random() < 0.7:
            smooth(a, b)
        else:
            smooth(b, a)
            b[...] = np.sqrt(a * 2) + b

    return turn


def _inner(side: int, given: ArrayMaker) -> Turn:
    a, b = given(side, side), given(side, side)
    coin = Random(5)

    def turn(number: int) -> None:
        del number
        u, v = a, b
        for _ in range(coin.randint(1, 6)):
            smooth(u, v)
            u, v = v, u
        b[...] = a * 0.5 + b

    return turn


@cx.kernel(split=0, column=cx.read(cx.axis(1)), row=cx.read(cx.all), rest=cx.update, flops=lambda rest: 2.0 * rest.size)
def _eliminate(column: Any, row: Any, rest: Any) -> None:
    rest -= column @ row


def _lu(side: int, given: ArrayMaker) -> Turn:
    a = given(side, side)
    block = side // 64

    def turn(number: int) -> None:
        at = number % 60 * block + block
        _eliminate(a[at:, at - 1 : at], a[at - 1 : at, at:], a[at:, at:])

    return turn


def _growing(side: int, given: ArrayMaker) -> Turn:
    history = given(256, side, dtype=float)

    def turn(number: int) -> None:
        rows = number % 200 + 8
        history[rows] = history[:rows].sum(axis=0) * 0.5

    return turn


def _two_threads(side: int, given: ArrayMaker) -> Turn:
    fields = [(given(side, side), given(side, side)) for _ in range(2)]

    def turn(number: int) -> None:
        del number

        def steps(u: Any, v: Any) -> None:
            smooth(u, v)
            v[...] = np.sqrt(u * 2) + v

        threads = [threading.Thread(target=steps, args=fields[which]) for which in range(2)]
        for thread in threads:  # one after the other, so that it is the same each time
            thread.start()
            thread.join()

    return turn


CHANGING: dict[str, Callable[..., Turn]] = {
    "reads": _reads,
    "every tenth": _tenth,
    "red-black": _red_black,
    "v-cycle": _v_cycle,
    "branch": _branch,
    "inner loop": _inner,
    "lu": _lu,
    "growing": _growing,
    "two threads": _two_threads,
}


def programs(*, quick: bool) -> Iterator[SizedProgram]:
    """Yield every program at one size or, unless quick, at two."""
    for name, make in CHANGING.items():
        for side in (4096,) if quick else (4096, 1024):
            yield SizedProgram(name, f"{side} x {side}", partial(make, side), exact=False)
