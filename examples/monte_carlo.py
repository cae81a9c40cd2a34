"""Estimate pi and the price of an Asian option from random numbers that do not depend on how the work is divided.

Run it with: python examples/monte_carlo.py [PATHS] [DATES] [--devices NAMES] [--picture FILE]

`chunk.rng(seed)` counts: the numbers of element i depend on the seed, the draw and i only, and reductions are added up in
fixed blocks. So one core, two unequal ones or a hundred give the same bits, and NumPy can make the same numbers.
"""

import numpy as np
from common import arguments, figure, timer

import coexec as cx

SPOT, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 100.0, 0.05, 0.3, 1.0


@cx.kernel(split=0, over="points", hits=cx.reduce("sum"), flops=50.0)
def dart(points, hits, seed, chunk):
    del points  # the index space
    random = chunk.rng(seed)
    hits += np.count_nonzero(random.random() ** 2 + random.random() ** 2 < 1.0)


@cx.kernel(split=0, payoff=cx.write, total=cx.reduce("sum"), flops=lambda payoff, dates: 100.0 * payoff.size * dates)
def asian(payoff, total, dates, seed, chunk):
    """Let each path's price wander from date to date; what is paid is its mean above the strike."""
    random, step, price, sums = chunk.rng(seed), YEARS / dates, SPOT, 0.0
    for _ in range(dates):
        price = price * np.exp(random.normal((RATE - 0.5 * VOLATILITY**2) * step, VOLATILITY * step**0.5))
        sums = sums + price
    payoff[...] = np.exp(-RATE * YEARS) * np.maximum(sums / dates - STRIKE, 0.0)
    total += payoff.sum()


def compute(hits, payoff, total, dates=16, seed=7):
    """Throw as many darts as there are paths, and price the option; returns at once."""
    dart(len(payoff), hits, seed)
    asian(payoff, total, dates, seed + 1)
    return hits, payoff, total


def start(paths):
    """Return the counter of hits, room for what each path pays, and the sum of that."""
    return np.zeros((), np.int64), np.zeros(paths), np.zeros(())


def uniform(seed, draw, size):
    """Return the numbers of a draw: the stream of NumPy's own Philox with the seed and the draw as key."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, draw], np.uint64))).random(size)


def normal(seed, draw, size):
    """Return normal numbers after Box and Muller: elements 2 j and 2 j + 1 share two uniform ones."""
    u = uniform(seed, draw, size + size % 2)
    radius, angle = np.sqrt(-2 * np.log1p(-u[::2])), 2 * np.pi * (u[1::2] - 0.5)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()[:size]


def reference(hits, payoff, total, dates=16, seed=7):
    """Return the same, computed with NumPy."""
    hits = hits + np.count_nonzero(uniform(seed, 1, payoff.size) ** 2 + uniform(seed, 2, payoff.size) ** 2 < 1.0)
    step, price, sums = YEARS / dates, SPOT, 0.0
    for date in range(1, dates + 1):
        shock = normal(seed + 1, date, payoff.size)
        price = price * np.exp((RATE - 0.5 * VOLATILITY**2) * step + VOLATILITY * step**0.5 * shock)
        sums = sums + price
    payoff = np.exp(-RATE * YEARS) * np.maximum(sums / dates - STRIKE, 0.0)
    return hits, payoff, total + payoff.sum()


def main():
    args = arguments(__doc__, paths=200_000, dates=16)
    given = start(args.paths)
    with cx.Runtime(devices=args.devices), timer() as took:
        divided = [np.asarray(array) for array in compute(*map(cx.array, given), args.dates)]  # waits
    with cx.Runtime(devices="cpu:0"):
        alone = [np.asarray(array) for array in compute(*map(cx.array, given), args.dates)]
    with timer() as plain:
        expected = reference(*given, args.dates)

    assert all(np.array_equal(*pair) for pair in zip(divided, alone, strict=True))  # the same bits
    assert all(np.allclose(*pair) for pair in zip(divided, expected, strict=True))
    hits, payoff, total = divided
    print(
        f"pi is about {4 * hits / args.paths:.4f}, the option costs {total / args.paths:.3f} +- "
        f"{payoff.std() / args.paths**0.5:.3f}: {took.seconds:.2f} s, NumPy {plain.seconds:.2f} s; one core alone gives the same bits"
    )
    if args.picture:
        paths = np.arange(10, args.paths)
        mean, error = np.cumsum(payoff)[paths - 1] / paths, payoff.std() / paths**0.5
        with figure(args.picture) as axes:
            axes.semilogx(paths, mean, label="mean of the first n paths")
            axes.fill_between(paths, mean - error, mean + error, alpha=0.3, label="standard error")
            axes.set(xlabel="paths", ylabel="price")
            axes.legend()


if __name__ == "__main__":
    main()
