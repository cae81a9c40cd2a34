"""Estimate pi and the price of an Asian option from random numbers that do not depend on how the work is divided.

Run it with: python examples/monte_carlo.py [PATHS] [DATES] [--devices NAMES] [--picture FILE]

`chunk.rng(seed)` counts: the numbers of element i depend on the seed, the draw and i only, and reductions are added up in
fixed blocks. So one core, two unequal ones or a hundred give the same bits, and NumPy can make the same numbers.
"""

import argparse
import time

import numpy as np
import picture

import coexec as cx

SPOT, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 100.0, 0.05, 0.3, 1.0


@cx.kernel(split=0, over="points", hits=cx.reduce("sum"), flops=50.0)
def dart(points, hits, seed, chunk):
    del points  # the index space
    random = chunk.rng(seed)
    x, y = random.random(), random.random()
    x *= x
    y *= y
    x += y
    hits += np.count_nonzero(x < 1.0)


@cx.kernel(split=0, payoff=cx.write, total=cx.reduce("sum"), flops=lambda payoff, dates: 100.0 * payoff.size * dates)
def asian(payoff, total, dates, seed, chunk):
    """Let each path's price wander from date to date; what is paid is its mean above the strike."""
    random, step = chunk.rng(seed), YEARS / dates
    drift, spread = (RATE - 0.5 * VOLATILITY**2) * step, VOLATILITY * step**0.5
    price, sums, shock = np.full(payoff.shape, SPOT), np.zeros(payoff.shape), np.empty(payoff.shape)
    for _ in range(dates):
        random.normal(drift, spread, out=shock)
        price *= np.exp(shock, out=shock)
        sums += price
    sums /= dates
    sums -= STRIKE
    np.maximum(sums, 0.0, out=payoff)
    payoff *= np.exp(-RATE * YEARS)
    total += payoff.sum()


def compute(hits, payoff, total, dates=16, seed=7):
    """Throw as many darts as there are paths, and price the option; returns at once."""
    dart(len(payoff), hits, seed)
    asian(payoff, total, dates, seed + 1)
    return hits, payoff, total


def start(paths):
    """Return the counter of hits, room for what each path pays, and the sum of that."""
    return np.zeros((), np.int64), np.zeros(paths), np.zeros(())


def run(*arrays, dates=16):
    """Return the hits, what each path pays, and the sum of that, computed with coexec."""
    return tuple(map(np.asarray, compute(*map(cx.array, arrays), dates)))  # waits


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="?", type=int, default=200_000)
    parser.add_argument("dates", nargs="?", type=int, default=16, help="prices that the mean is taken of")
    parser.add_argument("--devices", help="as in cpu:0,opencl:0@1; all cores unless said")
    parser.add_argument("--picture", default="monte_carlo.svg", metavar="FILE")
    args = parser.parse_args()

    given = start(args.paths)
    with cx.Runtime(devices=args.devices):
        begin = time.perf_counter()
        hits, payoff, total = run(*given, dates=args.dates)
        took = time.perf_counter() - begin
    with cx.Runtime(devices="cpu:0"):
        alone = run(*given, dates=args.dates)
    begin = time.perf_counter()
    expected = reference(*given, dates=args.dates)
    plain = time.perf_counter() - begin

    divided = hits, payoff, total
    assert all(np.array_equal(mine, other) for mine, other in zip(divided, alone, strict=True))  # the same bits
    assert all(np.allclose(mine, other) for mine, other in zip(divided, expected, strict=True))
    print(
        f"pi is about {4 * hits / args.paths:.4f}, the option costs {total / args.paths:.3f} +- "
        f"{payoff.std() / args.paths**0.5:.3f}: {took:.2f} s, NumPy {plain:.2f} s; one core alone gives the same bits"
    )
    paths = np.unique(np.geomspace(10, args.paths, 300).astype(int))
    mean, error = np.cumsum(payoff)[paths - 1] / paths, payoff.std() / paths**0.5
    series = [picture.Series("mean of the first n paths", paths, mean)]
    series += [picture.Series("", paths, mean + sign * error, size=0.8, colour="#9aa0a6") for sign in (1, -1)]
    picture.plot(args.picture, "An Asian option's price", series, "paths", "price", log="x")


if __name__ == "__main__":
    main()
