"""The calibration file: one use of it at a time, and what becomes of a file that cannot be used.

Before: predict/store_tables.py.  After: predict/store.py, which decides what trouble means.  Knows no model or device.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .store_tables import TABLES

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
APPLICATION = 0x636F6578  # "coex", in the file's header
VERSION = 1
HEADER = 100  # bytes, of any SQLite file
BYTES = 1_000_000  # in one value of a row; ours are much shorter
_DAMAGED = {"SQLITE_ERROR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT", "SQLITE_SCHEMA", "SQLITE_TOOBIG"}
# SQLITE_ERROR too: our statements are fixed and right, so only the file can make one fail like that.


class Trouble(Exception):
    """The file cannot be used now; `remedy` says what the user can do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


class _Unusable(Exception):
    """The file is damaged or of another version."""

    def __init__(self, why: str, suffix: str) -> None:
        super().__init__(why)
        self.suffix = suffix  # of the name that it gets
        self.aside: Path | None = None  # where it is now


# One use ------------------------------------------------------------------------------------------------------------------


def use(
    path: Path,
    action: Callable[[sqlite3.Connection], T],
    *,
    writing: bool,
    wait: float,
    empty: T,
    say: Callable[[str], None],
    ours: bool = False,
) -> T:
    """Run `action` in one short transaction and return its answer, or `empty` if there is nothing to read.

    A file that cannot be used is renamed and said, and a new one begun: one that is `ours` by its place, or says so in
    its header; whatever else the path may name stays as it is. The connection lives in this call alone.
    Raises Trouble; then nothing was written.
    """
    try:
        import sqlite3
    except ImportError as error:
        raise Trouble(str(error), "install a Python that has SQLite") from error
    path = Path(os.path.realpath(path))  # SQLite puts its journal beside the real file
    try:
        for _ in range(4):
            identity = _identity(path)
            if identity is None and not writing:
                return empty
            if identity is not None and not ours:
                _check_ours(path)
            try:
                return _transaction(path, identity, action, writing=writing, wait=wait, empty=empty)
            except _Unusable as bad:
                writing = True  # only with the writer's lock is it renamed: nobody else is in the middle of something
                if bad.aside is not None:
                    say(f"the measurements in {path} {bad}; the file is now {bad.aside.name}, and a new one is begun")
    except (OSError, sqlite3.Error) as error:
        raise _trouble(error) from error
    raise Trouble("other processes replace it by unusable files again and again", "end them")


def _trouble(error: Exception) -> Trouble:
    name: str = getattr(error, "sqlite_errorname", "")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Trouble(f"{reason} by another process", "find that process")
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return Trouble(reason, "free space on its disk")
    return Trouble(reason, "make the file and its folder writable, remove the file")


def _transaction(
    path: Path,
    identity: tuple[int, int] | None,
    action: Callable[[sqlite3.Connection], T],
    *,
    writing: bool,
    wait: float,
    empty: T,
) -> T:
    import sqlite3

    if writing:
        path.parent.mkdir(parents=True, exist_ok=True)
    mode = "rwc" if writing else "rw"  # not ro: a reader must be able to roll back what a killed writer left
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=0, isolation_level=None)
    until = time.monotonic() + wait
    try:
        _prepare(connection, until)
        _patiently(connection, "BEGIN IMMEDIATE" if writing else "BEGIN", until)
        _patiently(connection, "SELECT COUNT(*) FROM sqlite_master", until)  # from here on a reader has its lock, too
        if not _ready(connection, writing=writing):
            return empty
        answer = action(connection)
        _patiently(connection, "COMMIT", until)
    except (sqlite3.Error, UnicodeDecodeError, _Unusable) as error:
        bad = _unusable(error)
        if bad is None:
            raise
        if bad is not error:
            with suppress(sqlite3.Error):  # while the journal still has the name by which SQLite deletes it
                connection.execute("ROLLBACK")
        if writing:
            bad.aside = _set_aside(path, identity, bad.suffix)
        raise bad from error
    else:
        return answer
    finally:
        connection.close()  # what was not committed is rolled back


def _patiently(connection: sqlite3.Connection, statement: str, until: float) -> None:
    """Execute a statement that may have to wait for another process.

    SQLite's own waiting sleeps ever longer, up to 0.1 s, and so never meets the short pauses of a busy writer.
    """
    import sqlite3

    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > until:
                raise
            time.sleep(_pause())
        else:
            return


def _prepare(connection: sqlite3.Connection, until: float) -> None:
    import sqlite3

    connection.text_factory = lambda data: data.decode("utf-8", "replace")  # one bad row must not hide the others
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, BYTES)
    for pragma in (
        "trusted_schema=OFF",
        "synchronous=NORMAL",  # what a power cut could cost are measurements
        "journal_mode=DELETE",  # WAL needs shared memory, which network folders lack
    ):
        _patiently(connection, f"PRAGMA {pragma}", until)  # each may read the file's header


def _ready(connection: sqlite3.Connection, *, writing: bool) -> bool:
    """Tell whether the tables are there, after making them in an empty file that is to be written."""
    ((application,),) = connection.execute("PRAGMA application_id")
    ((version,),) = connection.execute("PRAGMA user_version")
    tables = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    if not (application or version or tables):
        if writing:
            for statement in (
                *TABLES.values(),
                f"PRAGMA application_id={APPLICATION}",
                f"PRAGMA user_version={VERSION}",
            ):
                connection.execute(statement)
        return writing
    if application != APPLICATION:
        raise Trouble("it is an SQLite file of another program", "move that file")
    if version != VERSION:
        raise _Unusable(f"are of version {version} and this coexec reads version {VERSION}", f"v{version}.bak")
    if tables != TABLES:
        raise _Unusable("are damaged (the tables are not the expected ones)", "damaged-1")
    return True


def _unusable(error: Exception) -> _Unusable | None:
    """Return what `error` says of the file, or None if the file is not to blame."""
    if isinstance(error, _Unusable):
        return error
    if isinstance(error, UnicodeDecodeError):  # SQLite's message repeats what is in the file
        return _Unusable("are damaged (they are no text)", "damaged-1")
    name: str = getattr(error, "sqlite_errorname", "")  # e.g. SQLITE_CORRUPT_INDEX
    if name in _DAMAGED or name.startswith("SQLITE_CORRUPT"):
        return _Unusable(f"are damaged ({error})", "damaged-1")
    return None


# Setting aside ------------------------------------------------------------------------------------------------------------


def _check_ours(path: Path) -> None:
    """Raise Trouble unless a file is empty, or says of itself that it is a store: SQLite's header, with our name in it.

    Before SQLite opens it: that alone may change a file of another program.
    """
    with path.open("rb") as file:
        header = file.read(HEADER)
    of_sqlite = header.startswith(b"SQLite format 3\0")
    if not header or (of_sqlite and header[68:72] == APPLICATION.to_bytes(4, "big")):
        return
    if of_sqlite:
        raise Trouble("it is an SQLite file of another program", "move that file")
    raise Trouble("it is no store of coexec, or damaged beyond recognition", "move that file")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells this file from another one of the same name, or None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is not a regular file")
    return status.st_dev, status.st_ino


def _set_aside(path: Path, identity: tuple[int, int] | None, suffix: str) -> Path | None:
    """Rename the file and its journal and return its new name, or None if another process was quicker."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(ImportError, OSError):  # some network folders have no such lock
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _identity(path) != identity:  # never rename the new file that the other process has begun
            return None
        aside = _free_name(path, suffix)
        with suppress(FileNotFoundError):  # the journal first: it must never be applied to a new file
            path.with_name(f"{path.name}-journal").rename(f"{aside}-journal")
        return path.rename(aside)
    finally:
        os.close(descriptor)


def _free_name(path: Path, suffix: str) -> Path:
    name, number = f"{path.name}.{suffix}", 1
    while path.with_name(name).exists():
        number += 1
        name = f"{path.name}.{suffix.removesuffix('-1')}-{number}"
    return path.with_name(name)


def _pause() -> float:
    """Return some seconds, others for each process that waits."""
    import random  # many modules, for a case that is rare

    return random.uniform(0.0002, 0.003)
