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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

from ..errors import CoexecError, CoexecWarning, ConfigError, UnknownName
from ..files import check_writable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FAILURE, USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes: the work failed; the command was called wrongly; Ctrl-C, as shells have it."""
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
            sys.stdout.flush()  # here, not at the end of the process, where nobody would hear of a full disk
        except BrokenPipeError:  # the reader of our output had enough, e.g. `coexec trace run.json | head`
            _no_more_output()
            raise SystemExit(FAILURE) from None
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)
        except (CoexecError, OSError, MemoryError) as error:
            if isinstance(error, OSError):
                _no_more_output()
            if _tracebacks or os.environ.get("COEXEC_DEBUG", "").strip().lower() in ("1", "true"):
                raise
            fail(_sentence(error), USAGE if isinstance(error, ConfigError | UnknownName) else FAILURE)

    return wrapped


def _sentence(error: Exception) -> str:
    """Return what is wrong, in one line."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {str(error) or 'none is left'}; try smaller sizes"
    if isinstance(error, OSError):
        what = f"{error.filename}" if error.filename is not None else "the output cannot be written"
        return f"{what}: {error.strerror or error}"
    return str(error)


def _no_more_output() -> None:
    """Let what is still to be printed go nowhere, if printing is what failed."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


def check_files(*asked: tuple[str, Path | None, tuple[str, ...]]) -> None:
    """Raise before any work if a file cannot be written: option, path if one was given, the endings it may have."""
    for option, path, endings in asked:
        if path is None:
            continue
        if endings and path.suffix not in endings:
            raise ConfigError(f"{option} {path}: end the name in {' or '.join(endings)}, which says how to write it")
        check_writable(path)


def console(*, stderr: bool = False) -> Console:
    """Return a console that wraps at the terminal's width and prints text as it is: brackets and colons are ours."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PLAIN_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)


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
