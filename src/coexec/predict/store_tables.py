"""The tables of the calibration file: what a row is, which rows make sense, and how new ones are merged in.

Before: predict/sample.py.  After: predict/store_file.py, predict/store.py.  Knows open connections, and no file.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .sample import SECONDS, Sample, merged

if TYPE_CHECKING:
    import sqlite3

Key = tuple[str, str, bool]
"""What tells samples of one model apart: kind, key, together."""
Samples = Mapping[str, Mapping[Key, Sample]]
Figures = dict[tuple[str, str], tuple[float, float]]
"""Two names -> two numbers: links and rates."""

ROWS = 512  # samples per model
ROWS_IN_ALL = 20_000  # of all models: every edit of a kernel makes a new model, and old ones fade away
TEXT = 10_000  # characters in one name; ours have a few hundred
FEATURES = 256  # of one sample
TABLES = {
    "samples": (
        "CREATE TABLE samples (model TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, together INTEGER NOT NULL, "
        "features TEXT NOT NULL, seconds TEXT NOT NULL, updated REAL NOT NULL, "
        "PRIMARY KEY (model, kind, key, together))"
    ),
    "figures": (
        "CREATE TABLE figures (what TEXT NOT NULL, name TEXT NOT NULL, other TEXT NOT NULL, "
        "first REAL NOT NULL, second REAL NOT NULL, updated REAL NOT NULL, PRIMARY KEY (what, name, other))"
    ),
}


class ModelInfo(NamedTuple):
    """What the store knows of one model."""

    model: str
    shapes: int
    updated: float  # seconds since 1970


def numbers(values: Iterable[Any]) -> tuple[float, ...] | None:
    """Return finite non-negative numbers as floats, or None if any is something else."""
    taken = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            number = float(value)
        except OverflowError:
            return None
        if not math.isfinite(number) or number < 0:
            return None
        taken.append(number)
    return tuple(taken)


def is_text(value: Any) -> bool:
    """Tell whether `value` is text that a file can hold."""
    if not isinstance(value, str) or len(value) > TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half a character
        return False
    return True


def checked(sample: Sample) -> Sample | None:
    """Return a sample that can be kept, or None if its values make no sense."""
    features, seconds = numbers(sample.features), numbers(sample.seconds[:SECONDS])
    if (
        features is None
        or not seconds
        or len(features) > FEATURES
        or not (is_text(sample.kind) and is_text(sample.key))
    ):
        return None
    return Sample(sample.kind, sample.key, features, seconds, bool(sample.together))


def _sample(kind: Any, key: Any, together: Any, features: Any, seconds: Any) -> Sample | None:
    """Return a row as a sample, or None if it is none."""
    try:
        lists = json.loads(features), json.loads(seconds)
    except (TypeError, ValueError, RecursionError):
        return None
    if not all(isinstance(entry, list) for entry in lists) or together not in (0, 1):
        return None
    return checked(Sample(kind, key, tuple(lists[0]), tuple(lists[1]), bool(together)))


def read_samples(connection: sqlite3.Connection, model: str) -> tuple[list[Sample], int]:
    """Return the model's samples, newest first, and the number of rows that make no sense."""
    rows = connection.execute(
        "SELECT kind, key, together, features, seconds FROM samples WHERE model = ? ORDER BY rowid DESC LIMIT ?",
        (model, ROWS),
    )
    samples = [_sample(*row) for row in rows]
    sound = [sample for sample in samples if sample is not None]
    return sound, len(samples) - len(sound)


def write_samples(connection: sqlite3.Connection, samples: Samples) -> None:
    """Merge samples into the file, and drop the oldest rows beyond the limits."""
    now = time.time()
    for model, known in samples.items():
        for place, sample in known.items():
            where = (model, *place)
            row = connection.execute(
                "SELECT kind, key, together, features, seconds FROM samples "
                "WHERE model = ? AND kind = ? AND key = ? AND together = ?",
                where,
            ).fetchone()
            new = merged(sample, None if row is None else _sample(*row))
            # A replaced row gets a new rowid, so rowids tell the age, whatever the clocks say.
            values = (*where, json.dumps(new.features), json.dumps(new.seconds), now)
            connection.execute("REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        connection.execute(
            "DELETE FROM samples WHERE rowid IN "
            "(SELECT rowid FROM samples WHERE model = ? ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
            (model, ROWS),
        )


def drop_oldest(connection: sqlite3.Connection, keep: int = ROWS_IN_ALL) -> None:
    """Keep the newest rows of all models."""
    connection.execute(
        "DELETE FROM samples WHERE rowid IN (SELECT rowid FROM samples ORDER BY rowid DESC LIMIT -1 OFFSET ?)", (keep,)
    )


def read_figures(connection: sqlite3.Connection, what: str) -> tuple[Figures, int]:
    """Return the figures of one table, and the number of rows that make no sense."""
    rows = list(connection.execute("SELECT name, other, first, second FROM figures WHERE what = ?", (what,)))
    sound = {row[:2]: pair for row in rows if (pair := figure(*row)) is not None}
    return sound, len(rows) - len(sound)


def figure(name: Any, other: Any, *values: Any) -> tuple[float, float] | None:
    """Return two numbers that can be kept, or None: the second is a rate, which is divided by."""
    match numbers(values):
        case (first, second) if second > 0 and is_text(name) and is_text(other):
            return first, second
    return None


def write_figures(connection: sqlite3.Connection, what: str, figures: Figures) -> None:
    """Write figures over those of the same names."""
    rows = [(what, *names, *values, time.time()) for names, values in figures.items()]
    connection.executemany("REPLACE INTO figures VALUES (?, ?, ?, ?, ?, ?)", rows)


def read_models(connection: sqlite3.Connection) -> list[ModelInfo]:
    """Return every model, the newest first."""
    query = "SELECT model, COUNT(*), MAX(updated) FROM samples GROUP BY model ORDER BY MAX(rowid) DESC"
    return [
        ModelInfo(model, count, float(updated))
        for model, count, updated in connection.execute(query)
        if isinstance(model, str) and isinstance(updated, int | float)
    ]


def delete_all(connection: sqlite3.Connection) -> None:
    """Forget everything."""
    for table in TABLES:
        connection.execute(f"DELETE FROM {table}")  # noqa: S608  # our own names
