"""`coexec calibrate`: measure devices and links, with a progress bar; list or forget what was measured.

Before: calibrate/, predict/store.py.  After: app.py.  Measures nothing itself.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..config import parse
from ..errors import ConfigError
from ..observe.pictures.svg import bytes_text, count_text, seconds_text
from .output import INTERRUPTED, console, emit, fields, say, spoken_warnings, table

if TYPE_CHECKING:
    from ..calibrate import Calibration
    from ..calibrate.measuring import Progress
    from ..predict.store import Store

REFRESH = 0.1
"""Seconds between two looks of the bar."""


def show(*, devices: str | None, seconds: float, ops: str | None, json: bool, listing: bool, clear: bool) -> None:
    """Measure, and print how well predictions fit; or list or forget what is in the store."""
    if listing and clear:
        raise ConfigError("--list and --clear exclude each other; give one of them")
    with spoken_warnings():
        if listing or clear:
            _kept(forget=clear, json=json)
            return
        report = _measure(devices, seconds, ops)
    if json:
        emit(report.as_dict())
    else:
        _print(report)
    if report.interrupted:
        say("coexec: interrupted; what was measured until then is kept")
        raise SystemExit(INTERRUPTED)


def names(ops: str | None) -> list[str] | None:
    """Return the operations in a comma-separated list, or None for all; raise if one is unknown."""
    from ..calibrate.designs import designs

    if ops is None:
        return None
    chosen = [name.strip() for name in ops.split(",") if name.strip()]
    if not chosen:
        raise ConfigError("--ops names no operation; leave it away to measure all")
    designs(chosen)
    return chosen


def _measure(devices: str | None, seconds: float, ops: str | None) -> Calibration:
    from ..calibrate import calibrate

    chosen = names(ops)
    with _bar() as progress:
        return calibrate(devices, seconds=seconds, ops=chosen, progress=progress)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Show a bar on stderr, if that is a terminal."""
    from rich.progress import BarColumn, Progress as Bar, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(40),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    screen = console(stderr=True)
    # Drawn between measurements only: a thread that draws would take the interpreter lock from what is measured.
    with Bar(*columns, console=screen, transient=True, auto_refresh=False, disable=not screen.is_terminal) as bar:
        task = bar.add_task("opening the devices", total=1.0)
        drawn = 0.0

        def progress(fraction: float, text: str) -> None:
            nonlocal drawn
            now = time.perf_counter()
            bar.update(task, completed=fraction, description=text, refresh=now - drawn > REFRESH)
            drawn = now if now - drawn > REFRESH else drawn

        yield progress


# What is printed ----------------------------------------------------------------------------------------------------------


def _print(report: Calibration) -> None:
    screen = console()
    screen.print(
        table(
            "Kernels, with the errors of predicting each shape from the others",
            ["kernel", "types", "variant", "devices", "shapes", "runs", "median error", "rmse"],
            [
                (
                    m.kernel,
                    ", ".join(m.types),
                    m.variant,
                    ", ".join(m.devices),
                    m.shapes,
                    m.measurements,
                    "" if m.median_error is None else f"{m.median_error:.1%}",
                    "" if m.rmse_seconds is None else seconds_text(m.rmse_seconds),
                )
                for m in report.models
            ],
            numbers="llllrrrr",
        )
    )
    if report.links:
        ways = [
            (f"{link.source} to {link.target}", seconds_text(link.latency_seconds), _per_second(link.bytes_per_second))
            for link in report.links
        ]
        screen.print(table("Links", ["way", "latency", "bandwidth"], ways, numbers="lrr"))
    if report.rates:
        peaks = [
            (rate.device, f"{rate.flops_per_second / 1e9:.3g} Gflop/s", _per_second(rate.bytes_per_second))
            for rate in report.rates
        ]
        screen.print(table("Highest rates", ["device", "float32 product", "memory"], peaks, numbers="lrr"))
    if report.left_out:
        screen.print(table("Not measured", ["what", "why"], sorted(report.left_out.items()), numbers="lw"))
    where = "kept nowhere: COEXEC_STORE is off" if report.store is None else f"kept in {report.store}"
    say(f"{count_text(report.calls, 'call')} in {report.seconds:.1f} s, {where}")


def _per_second(rate: float) -> str:
    return f"{bytes_text(rate)}/s"


# What is in the store -------------------------------------------------------------------------------------------------------


def _kept(*, forget: bool, json: bool) -> None:
    """Print what is in the store, and forget it if that was asked."""
    from ..predict.store import Store, default_path

    store = Store(default_path(parse(os.environ).store))
    data = contents(store)
    if forget:
        store.clear()
        data["cleared"] = True
    if json:
        emit(data)
        return
    if forget:
        say(f"forgot {count_text(len(data['models']), 'model')} in {data['store']}")
        return
    screen = console()
    screen.print(fields("Measurements", {"file": data["store"] or "none: COEXEC_STORE is off"}))
    rows = [(m["kernel"], m["variant"], m["speed"], m["shapes"], m["newest"]) for m in data["models"]]
    columns = ["kernel", "variant", "on", "shapes", "newest"]
    screen.print(table("", columns, rows, numbers="lllrl") if rows else "nothing yet; `coexec calibrate` measures")


def contents(store: Store) -> dict[str, Any]:
    """Return what is in the store, JSON-ready."""
    from ..calibrate.calibration import parts_of

    models = []
    for info in store.models():
        if info.model.count(" | ") < 5:
            continue
        kernel, variant, speed = parts_of(info.model)
        newest = dt.datetime.fromtimestamp(info.updated, dt.UTC).astimezone().isoformat(" ", "minutes")
        models.append({"kernel": kernel, "variant": variant, "speed": speed, "shapes": info.shapes, "newest": newest})
    return {
        "store": None if store.path is None else str(store.path),
        "models": models,
        "links": [
            {"source": names[0], "target": names[1], "latency_seconds": pair[0], "bytes_per_second": pair[1]}
            for names, pair in store.links().items()
        ],
        "rates": [
            {"speed": names[0], "software": names[1], "flops_per_second": pair[0], "bytes_per_second": pair[1]}
            for names, pair in store.rates().items()
        ],
    }
