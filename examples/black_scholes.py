"""Price options after Black and Scholes and add up what they are worth: one long formula, divided, and a reduction.

Run it with: python examples/black_scholes.py [OPTIONS] [--devices NAMES] [--picture FILE]
"""

import argparse
import time

import numpy as np
import picture

import coexec as cx

TERMS = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)  # after Abramowitz and Stegun, 26.2.17


def normal_cdf(x):
    """Return how much of the normal distribution lies below x."""
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


# One work-group adds up a block: its items a run of options each, the first what the others have found.
total.opencl(
    """
__kernel void total(
    __global const double *call_data, const long call_start, const long call_stride0,
    __global const double *put_data, const long put_start, const long put_stride0,
    __global double *value_data, const long value_start, const long n0)
{
    __local double found[64];
    const long item = get_local_id(0), items = get_local_size(0), each = (n0 + items - 1) / items;
    double mine = 0.0;
    for (long i = item * each; i < min(n0, (item + 1) * each); i++) mine += call(i) + put(i);
    found[item] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int other = 0; item == 0 && other < items; other++) value() += found[other];
}
""",
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


def run(*arrays):
    """Return the prices of calls and puts and their sum, computed with coexec."""
    return tuple(map(np.asarray, compute(*map(cx.array, arrays))))  # waits


def reference(spot, strike, years, *_, rate=0.02, volatility=0.3):
    """Return the same, computed with NumPy."""

    def below(x):
        z = np.abs(x)
        w = 1 / (1 + 0.2316419 * z)
        p = np.polyval((*reversed(TERMS), 0.0), w) * np.exp(-0.5 * z * z) * 0.3989422804014327
        return np.where(x > 0, 1 - p, p)

    root = volatility * np.sqrt(years)
    d = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / root
    discounted = strike * np.exp(-rate * years)
    call = spot * below(d) - discounted * below(d - root)
    put = call - spot + discounted
    return call, put, call.sum() + put.sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("options", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--devices", help="as in cpu:0,opencl:0@1; all cores unless said")
    parser.add_argument("--picture", default="black_scholes.svg", metavar="FILE")
    args = parser.parse_args()

    given = start(args.options)
    with cx.Runtime(devices=args.devices):
        begin = time.perf_counter()
        call, put, value = run(*given)
        took = time.perf_counter() - begin
    begin = time.perf_counter()
    expected = reference(*given)
    plain = time.perf_counter() - begin

    assert all(np.allclose(mine, other, atol=1e-9) for mine, other in zip((call, put, value), expected, strict=True))
    print(
        f"{args.options:,} calls and as many puts are worth {value:,.0f}: {took:.2f} s, NumPy {plain:.2f} s, "
        f"off by {np.abs(call - expected[0]).max():.0e}"
    )
    spot, strike, *_ = given
    series = [
        picture.Series(name, (spot / strike)[:3000], (paid / strike)[:3000], points=True)
        for name, paid in (("calls", call), ("puts", put))
    ]
    picture.plot(args.picture, "Some of the options", series, "spot / strike", "price / strike")


if __name__ == "__main__":
    main()
