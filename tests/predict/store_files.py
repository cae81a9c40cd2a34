"""Questions about a store's file, and samples to put into it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from coexec.predict.sample import Sample
from coexec.predict.store_file import APPLICATION


def sample(key: str, *seconds: float) -> Sample:
    return Sample("float32", key, (1.0,), seconds or (1.0,), False)


def marked(content: bytes) -> bytes:
    """Return a file that says in its header that it is a store of ours, and is nothing else of one."""
    return b"SQLite format 3\0" + b"\xff" * 52 + APPLICATION.to_bytes(4, "big") + content


def listed(path: Path) -> list[str]:
    """Return what lies beside a store, and the store."""
    return sorted(entry.name for entry in path.parent.iterdir())


def is_intact(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as file:
        return list(file.execute("PRAGMA integrity_check")) == [("ok",)]
