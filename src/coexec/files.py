"""Write a file whole or not at all: under another name beside its place, to the disk, and then by its name.

Before: errors.py.  After: everything that writes a file, except the trace of a run, which is streamed, and the store.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import ConfigError


def write_text(path: str | os.PathLike[str], text: str | Iterable[str], what: str = "") -> None:
    """Write a text, given whole or in parts; a file that exists is replaced whole, or stays. Raise ConfigError if not.

    What is no regular file, such as a pipe or /dev/stdout, is written to as it is; a link stays a link.
    """
    parts = [text] if isinstance(text, str) else text
    # Names of files may be no text.
    _write_parts(path, (part.encode("utf-8", "backslashreplace") for part in parts), what)


def write_bytes(path: str | os.PathLike[str], data: bytes, what: str = "") -> None:
    """Write bytes in the same way."""
    _write_parts(path, [data], what)


def _write_parts(path: str | os.PathLike[str], parts: Iterable[bytes], what: str) -> None:
    with _in_words(path, what):
        found = _status(Path(path))
        if found is not None and not stat.S_ISREG(found.st_mode):
            with Path(path).open("wb") as file:
                file.writelines(parts)
        else:
            _replace(Path(os.path.realpath(path)), parts, found)


def check_writable(path: str | os.PathLike[str], what: str = "") -> None:
    """Raise ConfigError unless a file can be written there. Changes nothing."""
    with _in_words(path, what):
        found = _status(Path(path))
        if found is not None:
            if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
                os.close(os.open(path, os.O_WRONLY))
        else:
            beside = _beside(Path(os.path.realpath(path)))
            os.close(_new(beside))
            beside.unlink()


def _status(target: Path) -> os.stat_result | None:
    try:
        return target.stat()
    except FileNotFoundError:
        return None


def _replace(target: Path, parts: Iterable[bytes], found: os.stat_result | None) -> None:
    if found is not None:
        os.close(os.open(target, os.O_WRONLY))  # what is protected is not replaced either
    beside = _beside(target)
    descriptor = _new(beside)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if found is not None:
                with suppress(OSError):  # of another owner
                    os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())  # a disk that is full or gone may say so only now
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _settle(target.parent)


def _beside(target: Path) -> Path:
    """Return a free name in the same folder, as short as its names may be."""
    return target.with_name(f".coexec-{os.urandom(6).hex()}")


def _new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)


def _settle(folder: Path) -> None:
    """Have the new name on the disk too, where folders can be asked for that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _in_words(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn what the system says into one sentence with the next step."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        name = f"{what} {os.fspath(path)!r}".strip()
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot write {name}: {reason}; {_remedy(error, Path(path))}") from error


def _remedy(error: Exception, path: Path) -> str:
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "free some space, or name another place"
    with suppress(OSError, ValueError):
        if path.is_dir():
            return "name a file inside it"
        if not path.parent.is_dir():
            return f"make the folder {str(path.parent)!r} first"
    return "name another place"
