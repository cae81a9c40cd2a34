"""Platforms on disk: presets that come with coexec, and files of the user.

Before: machine/files/reading.py, machine/files/expanding.py, machine/files/writing.py.  After: machine/platform.py.  Knows no device.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...config import blamed
from ...errors import PlatformError, unknown_name
from ...files import write_text
from ..topology import Parts
from .expanding import expand
from .reading import SourceText, read
from .writing import text_of

PRESETS = Path(__file__).parent.with_name("presets")
ENDING = ".toml"


def presets() -> dict[str, Path]:
    """Return the files of the platforms that come with coexec, by name."""
    return {path.name.removesuffix(ENDING): path for path in sorted(PRESETS.glob(f"*{ENDING}"))}


def load(source: str | os.PathLike[str]) -> Parts:
    """Return the parts of a platform: `source` is the name of a preset, or a path."""
    with blamed("platform", source):
        return _load(source)


def _load(source: str | os.PathLike[str]) -> Parts:
    given: object = source  # programs say what they want
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str):
        raise PlatformError(f"{source!r} is neither the name of a platform nor the path of a file")
    known = presets()
    if isinstance(source, str) and source in known:
        return read_file(known[source])
    if Path(text).suffix != ENDING and not Path(text).exists():
        error = unknown_name("platform", text, list(known))
        raise PlatformError(f"{error}; a file of your own must end in {ENDING}")
    if not Path(text).exists() and (name := Path(text).name.removesuffix(ENDING)) in known:
        raise PlatformError(f"cannot be read: there is no such file; the preset is called {name!r}", text)
    return read_file(Path(text))


def read_file(path: Path) -> Parts:
    """Return the parts of the platform that a file describes; without a name in it, it is called as the file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise PlatformError(f"is not text in UTF-8: {error.reason} at byte {error.start}", str(path)) from None
    except (OSError, ValueError) as error:
        raise PlatformError(f"cannot be read: {getattr(error, 'strerror', None) or error}", str(path)) from error
    parts = parse(text, str(path))
    return parts if parts.name else parts._replace(name=path.name.removesuffix(ENDING))


def parse(text: str, file: str = "platform") -> Parts:
    """Return the parts of the platform that a text describes."""
    source = SourceText(file, text.replace("\r\n", "\n"))
    return expand(read(source), source)


def save(parts: Parts, path: str | os.PathLike[str]) -> None:
    """Write a platform so that `load` gives the same again."""
    text = text_of(parts)
    if parts.topology is not None and parts.topology.nodes > 1 and parse(text)._replace(name=parts.name) != parts:
        raise PlatformError("its nodes are not alike, and a file describes one node for all")
    write_text(path, text, "the platform")
