"""`coexec bench`: run benchmarks by name and print what they return.

Before: bench/.  After: app.py.  Knows the table of benchmarks, nothing of what they measure.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bench import BRIEF, IN_PARTS, LONG, ON_RANKS
from ..errors import CoexecError, ConfigError, PerformanceWarning, unknown_name
from ..files import write_text
from .output import FAILURE, check_files, console, emit, fields, say, table

if TYPE_CHECKING:
    from rich.table import Table

WIDEST = 14  # columns of a table; --json has them all
Data = dict[str, Any]
Benchmark = Callable[..., Data]  # (quick, progress), and ranks= where there are several


def show(
    name: str,
    *,
    json: bool,
    quick: bool,
    full: bool = False,
    plot: Path | None = None,
    ranks: int | None = None,
    only: str = "",
    known: Mapping[str, str] | None = None,
) -> None:
    """Run one benchmark or all, or list them. With all, one that fails does not stop the others."""
    drawn = _picture(name) if plot is not None else None
    _check(name, ranks, only)
    check_files(("--plot", plot, (".svg",)))
    if known is None:
        from ..bench import BENCHMARKS

        known = BENCHMARKS
    if name == "list":
        _list(known, json=json)
        return
    if name != "all" and name not in known:
        raise unknown_name("benchmark", name, [*known, "all", "list"])
    results: dict[str, Data] = {}
    failed = False
    for chosen in known if name == "all" else [name]:
        try:
            brief = quick or (chosen in BRIEF and not full)
            results[chosen] = _run(chosen, known, quick=brief, full=full, ranks=ranks, only=only)
        except CoexecError as error:
            if name != "all":
                raise
            failed = True
            say(f"coexec: {chosen} failed: {error}")
            results[chosen] = {"error": str(error)}
    if plot is not None and drawn is not None:
        write_text(plot, drawn(results[name]), "the picture")
        say(f"{name}: a picture is in {plot}")
    if json:
        emit(results if name == "all" else results[name])
    else:
        for chosen, result in results.items():
            for part in tables(chosen, result):
                console().print(part)
    if failed:
        raise SystemExit(FAILURE)


def _check(name: str, ranks: int | None, only: str) -> None:
    if only and name not in IN_PARTS:
        raise ConfigError(f"bench {name} has no parts to choose from; --only goes with {', '.join(IN_PARTS)}")
    if ranks is not None and name not in ON_RANKS:
        raise ConfigError(f"bench {name} runs on no ranks; --ranks goes with {', '.join(ON_RANKS)}")


def _picture(name: str) -> Callable[[Data], str]:
    """Return what draws the result of a benchmark."""
    from ..bench import PICTURES

    if name not in PICTURES:
        raise ConfigError(f"bench {name} has no picture; --plot goes with {', '.join(PICTURES)}")
    module, _, attribute = PICTURES[name].partition(":")
    found: Callable[[Data], str] = getattr(import_module(module), attribute)
    return found


def load(name: str, known: Mapping[str, str]) -> Benchmark:
    """Return the function of a benchmark."""
    module, _, attribute = known[name].partition(":")
    found: Benchmark = getattr(import_module(module), attribute)
    return found


def _run(name: str, known: Mapping[str, str], *, quick: bool, full: bool, ranks: int | None, only: str = "") -> Data:
    from rich.text import Text

    screen = console(stderr=True)
    with screen.status(Text(f"{name} ...")) as status, warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)  # benchmarks do on purpose what programs should not

        def progress(text: str) -> None:
            status.update(Text(f"{name}: {text}"))
            if not screen.is_terminal:
                say(f"{name}: {text}")

        more: Data = ({} if ranks is None else {"ranks": ranks}) | ({"full": True} if full and name in LONG else {})
        more |= {"only": only} if only else {}
        return load(name, known)(quick, progress, **more)


def _list(known: Mapping[str, str], *, json: bool) -> None:
    about = {name: (load(name, known).__doc__ or "").strip().partition("\n")[0] for name in known}
    if json:
        emit(about)
    else:
        console().print(table("Benchmarks", ["name", "what it measures"], about.items(), numbers="lw"))


def tables(title: str, data: Mapping[str, Any]) -> Iterator[Table]:
    """Yield a benchmark's result as tables: plain values first, then each list of cases and each group."""
    plain = {key: _text(value) for key, value in data.items() if not _nested(value)}
    if plain:
        yield fields(title, plain)
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from tables(f"{title}: {key}", value)
        elif _nested(value):
            columns = _columns(value)
            rows = [[_text(row.get(column, "")) for column in columns] for row in value]
            yield table(f"{title}: {key}", columns, rows, numbers="l" + "w" * (len(columns) - 1))


def _columns(rows: list[Mapping[str, Any]]) -> list[str]:
    """Return the columns to show: all, or without those that hold groups if no terminal is wide enough for them."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if len(columns) > WIDEST:
        columns = [c for c in columns if not any(isinstance(row.get(c), Mapping | list) for row in rows)][:WIDEST]
    return columns


def _nested(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)
    )


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    return str(value)
