"""Compiled bodies: the plain formula through NumPy and through `coexec.compile`, on one core, on two, and on OpenCL.

Before: compile/.  After: cli/.  On cores, bodies are measured alone, without a runtime around them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np

from ...compile import Compiled, compile_body
from ...errors import BackendError
from ...machine.cores import last_cache_bytes
from ...program.variant import Numerics, close, exact
from ..apps.harness import APPS
from ..measure import Data, Others, Progress, in_turns, machine, named
from .apps import app_case, how_equal
from .by_numba import loops
from .by_opencl import Run, opencl
from .peers import PEERS, by_peer

SMALL = 40_000  # elements of the long vectors when it must be quick
CACHES = 5  # last caches that a long vector fills otherwise: the half of it that each of two threads writes fills two
MOST = 1 << 27  # elements, whatever the cache: eight of the wider vectors are 8 GB
FEW = 1 << 24  # elements of what is bound by computing: NumPy's temporaries are twenty times as large
ROUNDS, QUICK = (5, 15), (1, 2)  # runs of each way, least and most
SECONDS = 4.0  # per case
BLOCK = 1 << 17  # elements of a block of rows: what the body makes of them stays in a core's own cache
Arrays = dict[str, Any]


class BodyCase(NamedTuple):
    """A body, its arguments for a number of elements, what it writes, and the arrays that it goes through once."""

    body: Callable[..., Any]
    make: Callable[[int, np.random.Generator], Arrays]
    writes: tuple[str, ...]
    streams: tuple[str, ...]  # an array that is read and written counts twice
    rows: tuple[str, ...]  # arrays that are cut by rows for two threads; what has two rows more keeps a halo
    numerics: Numerics = exact
    itemsize: int = 8  # bytes of an element
    triad: str = "triad"  # the case that tells the speed of memory by the same kind of stores


def _triad(x: Any, y: Any, out: Any, s: float) -> None:
    out[...] = x + s * y


def _in_place(x: Any, out: Any, s: float) -> None:
    out[...] = x + s * out  # the line is read before it is written: nothing goes past the caches


def _wave(u: Any, out: Any, speed: float) -> None:
    out[...] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) * speed - out + u[1:-1, 1:-1] * (2 - 4 * speed)


def _heat(u: Any, out: Any, k: float) -> None:
    out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])


_TERMS = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)


def _below(x: Any) -> Any:
    z = np.abs(x)
    w = 1 / (1 + 0.2316419 * z)
    series = w * (_TERMS[0] + w * (_TERMS[1] + w * (_TERMS[2] + w * (_TERMS[3] + w * _TERMS[4]))))
    p = series * np.exp(-0.5 * z * z) * 0.3989422804014327
    return np.where(x > 0, 1 - p, p)


def _black_scholes(spot: Any, strike: Any, years: Any, call: Any, put: Any, rate: float, volatility: float) -> None:
    root = volatility * np.sqrt(years)
    d = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / root
    discounted = strike * np.exp(-rate * years)
    call[...] = spot * _below(d) - discounted * _below(d - root)
    put[...] = call - spot + discounted


def _chain(x: Any, y: Any, out: Any) -> None:
    out[...] = np.sqrt(x * y + 1) / 2 + x


def _nbody(stars: Any, mass: Any, mine: Any, pull: Any) -> None:
    dx, dy, dz = (b[None, :] - a[:, None] for a, b in zip(mine.T, stars.T, strict=True))
    w = mass / (dx**2 + dy**2 + dz**2 + 0.0025) ** 1.5
    pull[...] = np.stack([(w * d).sum(axis=1) for d in (dx, dy, dz)], axis=1)


def _assign(x: Any, centre: Any, label: Any) -> None:
    label[...] = ((x[:, None, :] - centre[None]) ** 2).sum(axis=2).argmin(axis=1)


def _softmax(x: Any, out: Any) -> None:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    out[...] = e / e.sum(axis=1, keepdims=True)


def _masked(x: Any, y: Any, out: Any, limit: float) -> None:
    out[...] = np.where(x > limit, out + 0.5 * (y - x), out * 0.9)


def _vectors(*names: str, dtype: str = "f8", low: float = 0.0, high: float = 1.0) -> Callable[..., Arrays]:
    return lambda n, rng: {name: rng.uniform(low, high, n).astype(dtype) for name in names}


def _grid(dtype: str) -> Callable[[int, np.random.Generator], Arrays]:
    def make(n: int, rng: np.random.Generator) -> Arrays:
        side = int(n**0.5)
        return {"u": rng.random((side + 2, side + 2)).astype(dtype), "out": rng.random((side, side)).astype(dtype)}

    return make


def _stars(n: int, rng: np.random.Generator) -> Arrays:
    count = max(64, int(min(n, FEW) ** 0.5) // 2)
    places = rng.normal(0, 0.25, (count, 3))
    return {"stars": places, "mass": np.full(count, 1 / count), "mine": places.copy(), "pull": np.zeros((count, 3))}


def _points(n: int, rng: np.random.Generator) -> Arrays:
    rows = min(n, FEW) // 8
    return {"x": rng.normal(size=(rows, 8)), "centre": rng.normal(size=(20, 8)), "label": np.zeros(rows, np.intp)}


def _table(n: int, rng: np.random.Generator) -> Arrays:
    return {"x": rng.normal(size=(max(2, n // 1000), 1000)), "out": np.zeros((max(2, n // 1000), 1000))}


def _with(make: Callable[[int, np.random.Generator], Arrays], **numbers: float) -> Callable[..., Arrays]:
    return lambda n, rng: make(n, rng) | numbers


def _options(n: int, rng: np.random.Generator) -> Arrays:
    prices = _vectors("spot", "strike", low=50, high=150)(n // 4, rng) | _vectors("years", low=0.1, high=2)(n // 4, rng)
    return prices | {"call": np.zeros(n // 4), "put": np.zeros(n // 4), "rate": 0.02, "volatility": 0.3}


_PAIR = ("x", "y", "out")
_MARKET = ("spot", "strike", "years", "call", "put")
CASES: dict[str, BodyCase] = {
    "triad": BodyCase(_triad, _with(_vectors(*_PAIR), s=3.0), ("out",), _PAIR, _PAIR),
    "triad_in_place": BodyCase(
        _in_place,
        _with(_vectors("x", "out"), s=0.5),
        ("out",),
        ("x", "out", "out"),
        ("x", "out"),
        triad="triad_in_place",
    ),
    "wave": BodyCase(
        _wave, _with(_grid("f4"), speed=0.25), ("out",), ("u", "out", "out"), ("u", "out"), exact, 4, "triad_in_place"
    ),
    "heat": BodyCase(_heat, _with(_grid("f8"), k=0.2), ("out",), ("u", "out"), ("u", "out")),
    "black_scholes": BodyCase(_black_scholes, _options, ("call", "put"), _MARKET, _MARKET),
    "chain": BodyCase(_chain, _vectors(*_PAIR), ("out",), _PAIR, _PAIR),
    "nbody": BodyCase(_nbody, _stars, ("pull",), ("mine", "pull"), ("mine", "pull")),
    "nbody_close": BodyCase(_nbody, _stars, ("pull",), ("mine", "pull"), ("mine", "pull"), close(1024)),
    "kmeans_assign": BodyCase(_assign, _points, ("label",), ("x", "label"), ("x", "label")),
    "softmax": BodyCase(_softmax, _table, ("out",), ("x", "out"), ("x", "out")),
    "masked": BodyCase(
        _masked,
        _with(_vectors(*_PAIR, dtype="f4"), limit=0.5),
        ("out",),
        (*_PAIR, "out"),
        _PAIR,
        exact,
        4,
        "triad_in_place",
    ),
}


def run(quick: bool, progress: Progress, only: Collection[str] = ()) -> Data:
    """Measure plain NumPy bodies, compiled by themselves, against NumPy, its peers and the speed of memory.

    `only` names cases and applications, if not all are wanted; the triads that they are compared with are measured too.
    """
    wanted = named("body or application", [*CASES, *APPS], only)
    chosen = [name for name in CASES if name in wanted]
    chosen = [name for name in CASES if name in chosen or any(CASES[case].triad == name for case in chosen)]
    others = Others()
    off: dict[str, str] = {}  # what a peer does not compute, and why
    cases: list[Data] = []
    with opencl() as device, ThreadPoolExecutor(2) as threads:
        for name in chosen:
            progress(name)
            cases += _measured(name, CASES[name], device, threads, off, quick=quick)
    rates = {(found["name"], found["devices"]): found.get("gb_per_s", 0.0) for found in cases}
    for name in [name for name in APPS if name in wanted]:
        progress(name)
        cases.append(app_case(name, QUICK if quick else ROUNDS, 0.0 if quick else SECONDS, quick=quick))
    for found in cases:
        case = CASES.get(found["name"], CASES["triad"])
        triad = rates.get((case.triad, found["devices"]), 0.0)
        part = found.get("gb_per_s", 0.0) / triad if triad else 0.0
        found |= {"triad_gb_per_s": triad, "of_triad": part}
    return {
        "machine": machine(),
        "last_cache_bytes": last_cache_bytes(),
        "other_processes_cores": others.cores(),
        "cases": cases,
        "off": off,
    }


def elements(case: BodyCase, cache: int) -> int:
    """Return how many elements the long vectors of a case have, several last caches of so many bytes."""
    return min(MOST, CACHES * cache // case.itemsize)


def _measured(
    name: str, case: BodyCase, device: Run | None, threads: ThreadPoolExecutor, off: dict[str, str], *, quick: bool
) -> list[Data]:
    """Return the figures of one case, on one core, on two, and on the OpenCL device if there is one."""
    arguments = case.make(SMALL if quick else elements(case, last_cache_bytes()), np.random.default_rng(0))
    form = compile_body(case.body, arguments, writes=case.writes, numerics=case.numerics)
    if not isinstance(form, Compiled):
        return [{"name": name, "devices": "core:1", "refused": form.reason}]
    wanted, got = (
        {key: value.copy() if key in case.writes else value for key, value in arguments.items()} for _ in range(2)
    )
    case.body(**wanted)
    missed = form(*got.values())
    found = missed or _bits(case, wanted, got)
    beside = _beside(name, case, arguments, wanted, off)
    on_device = None if device is None else device(case.body, arguments, case.writes, case.numerics)
    halves = _halves(case, arguments)
    blocks = _blocks(case, arguments)
    ways: dict[str, Callable[[], float]] = {
        "numpy": lambda: _timed(lambda: case.body(**arguments)),
        "blocked": lambda: _timed(lambda: [case.body(**block) for block in blocks]),
        "core:1": lambda: _timed(lambda: _run(form, arguments)),
        "core:2": lambda: _timed(
            lambda: _together(threads, [partial(_run, form, part) for part in halves]), perf_counter
        ),
    }
    if on_device is not None and not on_device.refused:
        ways["opencl:0"] = on_device.seconds
    ways |= beside
    with np.errstate(all="ignore"):
        times = {
            way: min(t) for way, t in in_turns(ways, QUICK if quick else ROUNDS, 0.0 if quick else SECONDS).items()
        }
    moved = sum(arguments[key].nbytes for key in case.streams)
    refused = [] if on_device is None or not on_device.refused else [on_device.refused]
    return [
        {
            "name": name,
            "devices": way,
            "numpy_ms": times["numpy"] * 1e3,
            "blocked_ms": times["blocked"] * 1e3,
            **{f"{peer.split()[0]}_ms": times[peer] * 1e3 for peer in beside if peer.endswith(way)},
            "compiled_ms": times[way] * 1e3,
            "gb_per_s": moved / times[way] / 1e9,
            "bits": _bits(case, wanted, on_device.results) if on_device and way == "opencl:0" else found,
            "compile_ms": form.seconds * 1e3,
        }
        for way in ("core:1", "core:2", *(["opencl:0"] if "opencl:0" in ways else []))
    ] + [{"name": name, "devices": "opencl:0", "refused": why} for why in refused]


def _beside(
    name: str, case: BodyCase, arguments: Arrays, wanted: Arrays, off: dict[str, str]
) -> dict[str, Callable[[], float]]:
    """Return how long the peers that are installed take for a case, by "peer devices"; all but one thread's by the clock."""
    ways: dict[str, Callable[[], float]] = {}
    for way, clock in (("core:1", thread_time), ("core:2", perf_counter)):
        by_numba = loops(name, parallel=way == "core:2")
        if by_numba is not None:
            by_numba(**arguments | {key: arguments[key].copy() for key in case.writes})  # compiles
            ways[f"numba {way}"] = partial(_timed, partial(by_numba, **arguments), clock)
    fresh = arguments | {key: arguments[key].copy() for key in case.writes}
    for peer in PEERS:
        try:
            work = by_peer(peer, name, case.body, fresh, case.writes)
            if work is None:
                continue
            for key, result in zip(case.writes, work(), strict=True):
                np.testing.assert_allclose(np.asarray(result), wanted[key], rtol=1e-4, atol=1e-4)
        except Exception as error:  # noqa: BLE001 - whatever another library cannot do
            off[f"{peer} {name}"] = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"
        else:
            ways[f"{peer} core:2"] = partial(_timed, work, perf_counter)
    return ways


def _bits(case: BodyCase, wanted: Arrays, got: Arrays) -> str:
    return how_equal([wanted[key] for key in case.writes], [got[key] for key in case.writes])


def _timed(work: Callable[[], object], clock: Callable[[], float] = thread_time) -> float:
    """Return the seconds of some work: processor time of this thread, which other programs change little, or another clock's."""
    start = clock()
    work()
    return clock() - start


def _run(form: Compiled, arguments: Arrays) -> None:
    if missed := form(*arguments.values()):
        raise BackendError(f"the compiled form of {form.name} does not take its own arguments: {missed}")


def _halves(case: BodyCase, arguments: Arrays) -> list[Arrays]:
    """Return the arguments of two threads: half of the rows each."""
    rows = len(arguments[case.writes[0]])
    return _cut(case, arguments, [0, rows // 2, rows])


def _blocks(case: BodyCase, arguments: Arrays) -> list[Arrays]:
    """Return the arguments of one block of rows after the other, as one would write it by hand for NumPy."""
    written = arguments[case.writes[0]]
    each = max(1, BLOCK * len(written) // written.size)
    return _cut(case, arguments, [*range(0, len(written), each), len(written)])


def _cut(case: BodyCase, arguments: Arrays, cuts: list[int]) -> list[Arrays]:
    """Return the arguments of each run of rows, with a halo where an array has one."""
    rows = len(arguments[case.writes[0]])
    parts = []
    for low, high in pairwise(cuts):
        cut = {name: arguments[name][low : high + len(arguments[name]) - rows] for name in case.rows}
        parts.append(arguments | cut)
    return parts


def _together(threads: ThreadPoolExecutor, works: list[Callable[[], None]]) -> None:
    """Do works at the same time, each on a thread that stays, as a runtime's do."""
    for done in [threads.submit(work) for work in works]:
        done.result()
