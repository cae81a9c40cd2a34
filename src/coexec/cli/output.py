"""How every command speaks: tables on stdout, or JSON and nothing else; errors as one sentence on stderr.

Before: errors.py.  After: each command.  Knows no command.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

from ..errors import CoexecError, CoexecWarning, ConfigError, UnknownName

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FAILURE, USAGE = 1, 2
"""Exit codes: the work failed; the command was called wrongly."""
PLAIN_WIDTH = 120
"""Columns where there is no terminal to ask."""

P = ParamSpec("P")

_tracebacks: list[bool] = []


def show_tracebacks() -> None:
    """Let errors end with their traceback, for the rest of the process."""
    _tracebacks.append(True)


def fail(text: str, code: int = FAILURE) -> NoReturn:
    """Print one sentence on stderr and end with `code`."""
    say(f"coexec: {text}")
    raise SystemExit(code)


def say(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)


def friendly(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command: what the user can act on becomes one sentence, with exit code 2 if the call was wrong."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except CoexecError as error:
            if _tracebacks or os.environ.get("COEXEC_DEBUG", "") not in ("", "0"):
                raise
            fail(str(error), USAGE if isinstance(error, ConfigError | UnknownName) else FAILURE)
        except BrokenPipeError:  # the reader of our output had enough, e.g. `coexec trace run.json | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(FAILURE) from None

    return wrapped


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Turn coexec's warnings into lines on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        kind = "warning" if issubclass(warning.category, CoexecWarning) else warning.category.__name__
        say(f"coexec: {kind}: {warning.message}")


def emit(data: object) -> None:
    """Print `data` as JSON, the only thing on stdout."""
    print(json.dumps(data, indent=2, default=str, ensure_ascii=False))


def write_text(path: Path, text: str) -> None:
    """Write a file at once or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}; name another place") from error


def console(*, stderr: bool = False) -> Console:
    """Return a console that wraps at the terminal's width."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PLAIN_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: str = "") -> Table:
    """Return a table; columns whose letter in `numbers` is "r" are right-aligned, those with "w" wrap first."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        letter = numbers[index : index + 1]
        made.add_column(
            column,
            justify="right" if letter == "r" else "left",
            no_wrap=letter != "w",
            overflow="fold" if letter == "w" else "ellipsis",
        )
    for row in rows:
        made.add_row(*[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row])
    return made


def fields(title: str, entries: Mapping[str, Any]) -> Table:
    """Return a table of names and values."""
    return table(title, ["", ""], entries.items(), numbers="lw")
