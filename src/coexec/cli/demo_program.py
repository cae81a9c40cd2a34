"""The program of `coexec demo`: unlike kernels on big arrays, some divided, some not, in plain NumPy.

Before: the public names.  After: demo.py.  Written as a user would; the same bodies run with and without coexec.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import coexec as cx

RATE, VOLATILITY, CONDUCTION = 0.02, 0.3, 0.2
STEPS = 16
OPTIONS, SIDE = 1_500_000, 1536  # at size 1


class Inputs(NamedTuple):
    """What the program starts from."""

    spot: Any
    strike: Any
    years: Any
    plate: Any


class Results(NamedTuple):
    """What the program computes."""

    calls: Any  # ranked prices
    puts: Any
    plate: Any  # after STEPS steps
    spectrum: Any
    value: Any  # of all calls and puts together


def inputs(size: float = 1.0) -> Inputs:
    """Return random options and a plate that is hot in the middle."""
    options, side = max(1000, int(OPTIONS * size)), max(64, int(SIDE * size**0.5))
    random = np.random.default_rng(7)
    plate = np.zeros((side, side))
    plate[side // 4 : side // 2, side // 4 : -side // 4] = 100.0
    spot, strike = random.uniform(50, 150, (2, options))
    return Inputs(spot, strike, random.uniform(0.1, 2.0, options), plate)


def normal_cdf(x: Any) -> Any:
    """Return the normal distribution function (Abramowitz and Stegun 26.2.17), with few temporary arrays."""
    z = np.abs(x)
    w = z * 0.2316419
    w += 1.0
    np.reciprocal(w, out=w)
    p = w * 1.330274429
    for c in (-1.821255978, 1.781477937, -0.356563782, 0.319381530):
        p += c
        p *= w
    z *= z
    z *= -0.5
    np.exp(z, out=z)
    p *= z
    p *= 0.3989422804014327
    return np.where(x > 0, 1 - p, p)


@cx.kernel(split=0, spot=cx.read, strike=cx.read, years=cx.read, call=cx.write, put=cx.write)
def price(spot: Any, strike: Any, years: Any, call: Any, put: Any, rate: float, volatility: float) -> None:
    """Price European options after Black and Scholes."""
    root = np.sqrt(years)
    root *= volatility
    d = spot / strike
    np.log(d, out=d)
    d += (rate + 0.5 * volatility * volatility) * years
    d /= root
    np.multiply(spot, normal_cdf(d), out=call)
    d -= root
    np.multiply(years, -rate, out=put)
    np.exp(put, out=put)
    put *= strike  # the strike, discounted
    call -= put * normal_cdf(d)
    put += call
    put -= spot


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update)
def heat(u: Any, out: Any, k: float) -> None:
    """Let heat flow for one step: a five-point stencil."""
    np.add(u[:-2, 1:-1], u[2:, 1:-1], out=out)
    out += u[1:-1, :-2]
    out += u[1:-1, 2:]
    out *= k / (1 - 4 * k)
    out += u[1:-1, 1:-1]
    out *= 1 - 4 * k


@cx.kernel(x=cx.read, ranked=cx.write)
def rank(x: Any, ranked: Any) -> None:
    """Sort: one indivisible library call."""
    ranked[...] = x
    ranked.sort()


@cx.kernel(u=cx.read(cx.all), power=cx.write)
def spectrum(u: Any, power: Any) -> None:
    """Transform every row and add up the power: indivisible, too."""
    power[...] = np.square(np.abs(np.fft.rfft(u, axis=1))).sum(axis=0)


@cx.kernel(split=0, over="call", call=cx.read, put=cx.read, value=cx.reduce("sum"))
def total(call: Any, put: Any, value: Any) -> None:
    """Add up all prices: a reduction."""
    value += call.sum() + put.sum()


price.opencl(
    """
    double s = spot(i), x = strike(i), t = years(i), root = volatility * sqrt(t);
    double d1 = (log(s / x) + (rate + 0.5 * volatility * volatility) * t) / root, d2 = d1 - root;
    double n[2];
    for (int side = 0; side < 2; side++) {
        double d = side ? d2 : d1, z = fabs(d), w = 1.0 / (1.0 + 0.2316419 * z);
        double p = w * (0.319381530 + w * (-0.356563782 + w * (1.781477937 + w * (-1.821255978 + w * 1.330274429))));
        p *= exp(-0.5 * z * z) * 0.3989422804014327;
        n[side] = d > 0 ? 1.0 - p : p;
    }
    double discounted = x * exp(-rate * t);
    call(i) = s * n[0] - discounted * n[1];
    put(i) = call(i) + discounted - s;
    """,
    numerics=cx.close(4096),  # a price is a small difference of large numbers
)
heat.opencl(
    """
    double around = u(i, j + 1) + u(i + 2, j + 1) + u(i + 1, j) + u(i + 1, j + 2);
    out(i, j) = (around * (k / (1 - 4 * k)) + u(i + 1, j + 1)) * (1 - 4 * k);
    """
)


def with_numpy(given: Inputs) -> Results:
    """Run the program in order, with NumPy alone."""
    call, put = np.empty_like(given.spot), np.empty_like(given.spot)
    price.function(given.spot, given.strike, given.years, call, put, RATE, VOLATILITY)
    calls, puts = np.empty_like(call), np.empty_like(put)
    rank.function(call, calls)
    rank.function(put, puts)
    value = np.zeros(())
    total.function(call, put, value)
    u, v = given.plate.copy(), given.plate.copy()
    for _ in range(STEPS):
        heat.function(u, v[1:-1, 1:-1], CONDUCTION)
        u, v = v, u
    power = np.empty(u.shape[1] // 2 + 1)
    spectrum.function(u, power)
    return Results(calls, puts, u, power, value)


def with_coexec(given: Inputs) -> Results:
    """Run the same program on coexec arrays: each call returns at once, reading a result waits for it."""
    call, put = cx.empty_like(given.spot), cx.empty_like(given.spot)
    price(given.spot, given.strike, given.years, call, put, RATE, VOLATILITY)
    calls, puts = cx.empty_like(call), cx.empty_like(put)
    rank(call, calls)
    rank(put, puts)
    value = cx.zeros(())
    total(call, put, value)
    u, v = cx.array(given.plate), cx.array(given.plate)
    for _ in range(STEPS):
        heat(u, v, CONDUCTION)
        u, v = v, u
    power = cx.empty(u.shape[1] // 2 + 1)
    spectrum(u, power)
    return Results(*(np.asarray(array) for array in (calls, puts, u, power, value)))
