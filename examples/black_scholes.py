"""Price options after Black and Scholes, and find the dearest: divided tasks, a reduction, an indivisible task.

Run it with: python examples/black_scholes.py [OPTIONS]
"""

import sys

import numpy as np

import coexec as cx


def normal_cdf(x):
    z = np.abs(x)
    w = 1 / (1 + 0.2316419 * z)
    p = w * (0.319381530 + w * (-0.356563782 + w * (1.781477937 + w * (-1.821255978 + w * 1.330274429))))
    p *= np.exp(-0.5 * z * z) * 0.3989422804014327
    return np.where(x > 0, 1 - p, p)


@cx.kernel(split=0, spot=cx.read, strike=cx.read, years=cx.read, call=cx.write, put=cx.write)
def price(spot, strike, years, call, put, rate, volatility):
    root = volatility * np.sqrt(years)
    d = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / root
    discounted = strike * np.exp(-rate * years)
    call[...] = spot * normal_cdf(d) - discounted * normal_cdf(d - root)
    put[...] = call - spot + discounted


@cx.kernel(split=0, over="call", call=cx.read, put=cx.read, value=cx.reduce("sum"))
def total(call, put, value):
    value += call.sum() + put.sum()


@cx.kernel(x=cx.read, returns=cx.like("x"))
def ranked(x):  # a library call that cannot be divided; two of them run side by side
    return np.sort(x)


def main(options=200_000):
    random = np.random.default_rng(1)
    spot, strike = random.uniform(50, 150, (2, options))
    years = random.uniform(0.1, 2.0, options)

    call, put, value = cx.empty(options), cx.empty(options), cx.zeros(())
    price(cx.asarray(spot), cx.asarray(strike), cx.asarray(years), call, put, 0.02, 0.3)
    total(call, put, value)
    calls, puts = ranked(call), ranked(put)

    expected_call, expected_put = np.empty(options), np.empty(options)
    price.function(spot, strike, years, expected_call, expected_put, 0.02, 0.3)
    assert np.array_equal(np.asarray(call), expected_call)
    assert np.array_equal(np.asarray(calls), np.sort(expected_call))
    assert np.array_equal(np.asarray(puts), np.sort(expected_put))
    assert np.isclose(float(value), expected_call.sum() + expected_put.sum())  # sums in another order
    print(f"{options:,} options are worth {float(value):,.0f}; the dearest call costs {np.asarray(calls)[-1]:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
