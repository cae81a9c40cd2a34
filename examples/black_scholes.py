"""Price options after Black and Scholes and add up what they are worth: one long formula, divided, and a reduction.

Run it with: python examples/black_scholes.py [OPTIONS] [--devices NAMES] [--picture FILE]
"""

from math import erf
from pathlib import Path

import numpy as np
from common import arguments, figure, timer

import coexec as cx

TERMS = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)  # after Abramowitz and Stegun, 26.2.17


def normal_cdf(x):
    """Return how much of the normal distribution lies below x, to 1e-7."""
    w = 1 / (1 + 0.2316419 * np.abs(x))
    powers = w * (TERMS[0] + w * (TERMS[1] + w * (TERMS[2] + w * (TERMS[3] + w * TERMS[4]))))
    tail = powers * np.exp(-0.5 * x * x) * 0.3989422804014327
    return np.where(x > 0, 1 - tail, tail)


@cx.kernel(split=0, spot=cx.read, strike=cx.read, years=cx.read, call=cx.write, put=cx.write, flops=120.0)
def price(spot, strike, years, call, put, rate, volatility):
    root = volatility * np.sqrt(years)
    d = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / root
    discounted = strike * np.exp(-rate * years)
    call[...] = spot * normal_cdf(d) - discounted * normal_cdf(d - root)
    put[...] = call + (discounted - spot)  # a call and a put differ by what is certain


@cx.kernel(split=0, over="call", call=cx.read, put=cx.read, value=cx.reduce("sum"), flops=2.0)
def total(call, put, value):
    value += call.sum() + put.sum()


total.opencl(
    Path(__file__).with_name("black_scholes.cl").read_text(encoding="utf-8"),
    global_size=lambda _: (64,),
    local_size=(64,),
    numerics=cx.close(1e4),
)


def compute(spot, strike, years, call, put, value, rate=0.02, volatility=0.3):
    """Price calls and puts, and add up their value; returns at once."""
    price(spot, strike, years, call, put, rate, volatility)
    total(call, put, value)
    return call, put, value


def start(options):
    """Return random options, and room for the prices and their sum."""
    random = np.random.default_rng(1)
    spot, strike = random.uniform(50, 150, (2, options))
    years = random.uniform(0.1, 2.0, options)
    return spot, strike, years, np.zeros(options), np.zeros(options), np.zeros(())


def reference(spot, strike, years, call, put, value, rate=0.02, volatility=0.3):
    """Return the same, computed with NumPy: the body is plain NumPy, so it can be called as it is."""
    call, put = np.empty_like(call), np.empty_like(put)
    price.function(spot, strike, years, call, put, rate, volatility)
    return call, put, value + call.sum() + put.sum()


def main():
    args = arguments(__doc__, options=1_000_000)
    given = start(args.options)
    with cx.Runtime(devices=args.devices), timer() as took:
        call, put, value = map(np.asarray, compute(*map(cx.array, given)))  # waits
    with timer() as plain:
        expected = reference(*given)

    assert all(np.allclose(*pair, atol=1e-9) for pair in zip((call, put, value), expected, strict=True))
    assert abs(normal_cdf(0.7) - (1 + erf(0.7 / 2**0.5)) / 2) < 1e-7
    print(
        f"{args.options:,} calls and as many puts are worth {value:,.0f}: {took.seconds:.2f} s, "
        f"NumPy {plain.seconds:.2f} s, off by {np.abs(call - expected[0]).max():.0e}"
    )
    if args.picture:
        spot, strike, *_ = given
        some = slice(3000)
        with figure(args.picture) as axes:
            for name, paid in (("calls", call), ("puts", put)):
                axes.plot((spot / strike)[some], (paid / strike)[some], ".", markersize=2, label=name)
            axes.set(xlabel="spot / strike", ylabel="price / strike")
            axes.legend(markerscale=4)


if __name__ == "__main__":
    main()
