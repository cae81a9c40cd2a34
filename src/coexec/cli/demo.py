"""`coexec demo`: one program with NumPy and with coexec, side by side, and what coexec did with the time.

Before: demo_program.py, observe/.  After: app.py.  Says what it measured, medians of turns taken one after another.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigError
from ..machine.cores import available_cores, cpu_model
from ..observe.pictures.svg import count_text, seconds_text
from .output import FAILURE, check_files, console, emit, fail, say, table

if TYPE_CHECKING:
    from ..observe.trace import Trace
    from .demo_program import Inputs, Results

Data = dict[str, Any]
FEWEST, MOST = 3, 25
"""Turns that are measured, however little or much time there is."""
WARM_UP = 3
"""Turns before them: memory is touched first, and coexec tries each kernel on each kind of device."""
FILES = ("demo-trace.json", "demo.perfetto.json", "demo.svg")
READ_IN_PLACE = ("spot", "strike", "years")
"""Inputs that coexec borrows; the plate is copied in every turn, as NumPy copies it."""
NOISE = 0.15
"""Cores that other programs may use before the figures need a warning."""
TOLERANCE = 1e-9
"""Sums are added up in another order, and other devices round differently."""


def show(*, json: bool, seconds: float, size: float, out: Path, devices: str | None) -> None:
    """Run the demo, print what came out, and write the files."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {out}: {error.strerror or error}; name another place") from error
    check_files(*[("--out", out / name, ()) for name in FILES])
    found = measure(seconds, size, devices, out)
    if json:
        emit(found)
    else:
        _print(found)
    if not found["equal"]:
        fail("coexec's results differ from NumPy's; please report it with the output of coexec doctor --json", FAILURE)


def measure(seconds: float, size: float, devices: str | None, out: Path) -> Data:
    """Take turns until the time is up; return every figure and the files that were written."""
    import coexec as cx

    from .demo_program import inputs, with_coexec, with_numpy

    given = inputs(size)
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder, "all.json")
        with cx.Runtime(devices, trace=recording) as runtime:
            borrowed = given._replace(**{name: cx.asarray(getattr(given, name)) for name in READ_IN_PLACE})
            ways: dict[str, Callable[[], Results]] = {
                "numpy_1": lambda: _limited(with_numpy, given),
                "numpy_all": lambda: with_numpy(given),
                "coexec": lambda: with_coexec(borrowed),
            }
            times, difference, others = _take_turns(ways, seconds)
            platform = runtime.platform
        from ..observe.trace import Trace

        whole = Trace.load(recording)
    middle = times["coexec"].index(sorted(times["coexec"])[len(times["coexec"]) // 2])
    part = turn(whole, WARM_UP + middle)
    written = _write(part, out)
    result = _figures(times, difference, part)
    return {
        "cores": len(available_cores()),
        "processor": cpu_model(),
        "others_cores": round(others, 2),
        "devices": [device.name for device in platform.devices],
        "used": sorted({row["device"] for row in part.work if row["kind"] == "kernel"}),
        "options": int(given.spot.size),
        "plate": list(given.plate.shape),
        **result,
        "files": written,
    }


def _limited(program: Callable[[Inputs], Results], given: Inputs) -> Results:
    """Run with one library thread."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return program(given)


def _take_turns(ways: dict[str, Callable[[], Results]], seconds: float) -> tuple[dict[str, list[float]], float, float]:
    """Time each way in turn, so that all meet the same machine, and leave no turn out.

    Return the times, the largest difference, and how many cores other programs kept busy meanwhile.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    difference = 0.0
    expected: Results | None = None
    start, until = time.perf_counter(), float("inf")
    before = start, 0.0
    with _progress() as advance:
        for number in range(WARM_UP + MOST):
            for name in rotated(list(ways), number):
                begin = time.perf_counter()
                results = ways[name]()
                times[name].append(time.perf_counter() - begin)
                expected = expected or results
                difference = max(difference, compare(expected, results))
            measured = number + 1 - WARM_UP
            if not measured:
                until = time.perf_counter() + seconds  # the time counts from here
                before = time.perf_counter(), _used_by_others()
            turns = WARM_UP + min(MOST, max(FEWEST, seconds * (number + 1) / (time.perf_counter() - start)))
            advance((number + 1) / turns)
            if measured >= FEWEST and time.perf_counter() >= until:
                break
    others = (_used_by_others() - before[1]) / (time.perf_counter() - before[0])
    return {name: taken[WARM_UP:] for name, taken in times.items()}, difference, max(0.0, others)


def _used_by_others() -> float:
    """Return the processor seconds that all other programs of this machine have used."""
    import psutil  # type: ignore[import-untyped]

    machine, mine = psutil.cpu_times(), os.times()
    return float(machine.user + machine.nice + machine.system) - mine.user - mine.system


def rotated(names: list[str], number: int) -> list[str]:
    """Return the names beginning with another one each time: who comes after whom must not decide."""
    at = number % len(names)
    return names[at:] + names[:at]


def compare(expected: Results, found: Results) -> float:
    """Return the largest difference, relative to the largest element of each array; 0 = equal bit for bit."""
    worst = 0.0
    for a, b in zip(expected, found, strict=True):
        if not np.array_equal(a, b):
            worst = max(worst, float(np.max(np.abs(a - b)) / np.max(np.abs(a))))
    return worst


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    """Show a bar on stderr; yield what moves it (0 to 1)."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    text = TextColumn("NumPy and coexec take turns")
    if not screen.is_terminal:
        say("NumPy and coexec take turns ...")
    with Progress(text, BarColumn(), TimeElapsedColumn(), console=screen, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda done: progress.update(task, completed=done)


def turn(trace: Trace, number: int) -> Trace:
    """Return one turn of the program as a trace of its own; each turn begins with the task `price`."""
    from ..observe.cut import cut

    starts = [task["submitted"] for task in trace.tasks if task["name"] == "price"]
    stop = starts[number + 1] if number + 1 < len(starts) else trace.duration
    ends = [
        task["submitted"]
        for task in trace.tasks
        if task["name"] == "read" and starts[number] <= task["submitted"] < stop
    ]
    return cut(trace, starts[number], max(ends, default=stop) + 1e-9)


def _figures(times: dict[str, list[float]], difference: float, part: Trace) -> Data:
    from ..observe.report import summary

    report = summary(part)
    middle = {name: median(taken) for name, taken in times.items()}
    divided = sum(len(command["chunks"]) > 1 for command in part.commands)
    calls = sum(bool(command["chunks"]) for command in part.commands)
    return {
        "turns": len(times["coexec"]),
        "seconds": {name: {"median": middle[name], "all": taken} for name, taken in times.items()},
        "gain_over_one_thread": middle["numpy_1"] / middle["coexec"],
        "gain_over_all_threads": middle["numpy_all"] / middle["coexec"],
        "difference": difference,
        "equal": difference <= TOLERANCE,
        "tasks": calls,
        "divided": divided,
        "parallelism": report["parallelism"],
        "busy": {name: device["utilisation"] for name, device in report["devices"].items() if device["kernels"]},
        "overlap": report["overlap"],
    }


def _write(part: Trace, out: Path) -> list[str]:
    from ..observe.cut import save
    from ..observe.pictures.gantt import gantt_svg
    from ..observe.pictures.perfetto import write_perfetto

    trace, perfetto, picture = (out / name for name in FILES)
    save(part, trace)
    write_perfetto(part, perfetto)
    gantt_svg(part, picture)
    return [str(trace), str(perfetto), str(picture)]


# What is printed --------------------------------------------------------------------------------------------------------


def _print(found: Data) -> None:
    screen = console()

    def line(text: str = "") -> None:
        screen.print(text, soft_wrap=True)

    side = found["plate"][0]
    line(f"{found['processor']}, {count_text(found['cores'], 'core')}; coexec uses {', '.join(found['used'])}")
    line(
        f"The program prices {found['options']:,} options, ranks and sums the prices, lets heat spread on a "
        f"{side} x {side} plate and takes its spectrum:"
    )
    line(f"{count_text(found['tasks'], 'task')}, {found['divided']} of them divided over the devices.")
    screen.print(table("", ["", "median", "fastest", "slowest", "gain"], _rows(found), numbers="lrrrr"))
    for text in verdict(found):
        line(text)
    line()
    trace, perfetto, picture = found["files"]
    line(f"One turn, recorded:  {picture}   open it in a browser")
    line(f"                     {perfetto}   open it at ui.perfetto.dev")
    line(f"                     {trace}   coexec trace {trace}")


def _rows(found: Data) -> list[tuple[str, ...]]:
    labels = {
        "numpy_1": "NumPy, 1 thread",
        "numpy_all": "NumPy, all its threads",
        "coexec": f"coexec, {_devices(found)}",
    }
    slowest = found["seconds"]["numpy_1"]["median"]
    rows = []
    for name, label in labels.items():
        taken = found["seconds"][name]
        cells = [seconds_text(s) for s in (taken["median"], min(taken["all"]), max(taken["all"]))]
        rows.append((label, *cells, f"{slowest / taken['median']:.2f}x"))
    return rows


def _devices(found: Data) -> str:
    """Return how many devices were used; all cores together are no further device."""
    single = [name for name in found["used"] if name != "cpu:all"]
    return count_text(len(single) or found["cores"], "device")


def verdict(found: Data) -> Iterator[str]:
    """Yield what the figures mean, a sentence per line."""
    one, every = found["gain_over_one_thread"], found["gain_over_all_threads"]
    yield (
        f"coexec is {one:.2f} times as fast as NumPy with one thread and {every:.2f} times as fast as NumPy with all "
        f"its threads (medians of {found['turns']} turns, taken one after another)."
    )
    cores = found["cores"]
    if all(name.startswith("cpu:") for name in found["used"]):
        with_numpy = (
            f"With NumPy's own bodies {count_text(cores, 'core')} could be at most {cores:.2f} times as fast as one"
        )
        yield (
            f"{with_numpy}; coexec is faster because it compiles bodies, and so goes through memory once."
            if one > cores
            else f"{with_numpy}; this is {one / cores:.0%} of it."
        )
    yield (
        "NumPy's own threads serve linear algebra only, and this program has none; "
        "a program that is one large matmul gains nothing here."
    )
    if found["difference"] == 0:
        yield "The results are equal, bit for bit."
    elif found["equal"]:
        yield f"The results are equal up to rounding: the largest relative difference is {found['difference']:.0e}."
    if found["others_cores"] > NOISE:
        yield (
            f"Other programs kept {found['others_cores']:.1f} of {count_text(cores, 'core')} busy meanwhile, which takes "
            "more from coexec than from one thread: run it again on a quiet machine."
        )
