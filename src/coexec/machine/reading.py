"""Read the text of a platform file: tables whose fields are known and sensible, and errors that name the line.

Before: machine/schema.py, machine/lines.py.  After: machine/expanding.py.  Knows no devices: only tables and fields.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import PlatformError, unknown_name
from .lines import Where, line_of
from .schema import REPEATED, REQUIRED, TABLES, Wrong


class Source(NamedTuple):
    """The text of a file, and what it is called."""

    file: str
    text: str

    def error(self, where: Where, field: str, message: str) -> PlatformError:
        """Return the error about the value at `where`."""
        return PlatformError(message, self.file, line_of(self.text, where), field)


@dataclass(frozen=True, slots=True)
class Entry:
    """One table of the file, checked field by field."""

    source: Source
    table: str
    where: Where
    values: Mapping[str, Any]

    def __getitem__(self, field: str) -> Any:
        """Return the value of a field that must be there."""
        return self.values[field]

    def get(self, field: str, otherwise: Any = None) -> Any:
        """Return the value of a field, if it is there."""
        return self.values.get(field, otherwise)

    def error(self, field: str, message: str) -> PlatformError:
        """Return the error about a field."""
        return self.source.error((*self.where, field), f"{self.table}.{field}" if self.table else field, message)


Tables = Mapping[str, list[Entry]]
"""Table -> its entries in the order of the file. "" and "network" have at most one."""


def read(source: Source) -> Tables:
    """Return the tables of a platform file; raise PlatformError at the first thing that is wrong."""
    document = parse(source)
    known = [name for name in TABLES if name]
    top = {key: value for key, value in document.items() if key not in known}
    tables: dict[str, list[Entry]] = {"": [_entry(source, "", (), top)]}
    for name in known:
        tables[name] = [
            _entry(source, name, where, values) for where, values in _found(source, name, document.get(name))
        ]
    return tables


def parse(source: Source) -> dict[str, Any]:
    """Return the file as TOML gives it."""
    try:
        return tomllib.loads(source.text)
    except ValueError as error:  # TOMLDecodeError is one, and so is an integer of too many digits
        place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        last = source.text.count("\n") + 1
        line = int(place[1] or last) if place else None
        message = str(error)[: place.start()] if place else str(error)
        raise PlatformError(f"not valid TOML: {message}", source.file, line) from None
    except RecursionError:
        raise PlatformError("not valid TOML: nested too deeply", source.file) from None


def _found(source: Source, name: str, value: Any) -> list[tuple[Where, Any]]:
    """Return the tables called `name`, each with the way to it."""
    if value is None:
        return []
    many = name in REPEATED
    if isinstance(value, list) if many else isinstance(value, dict):
        return [((name, i), entry) for i, entry in enumerate(value)] if many else [((name,), value)]
    raise source.error((name,), name, f"must be written [[{name}]]" if many else f"must be one table, [{name}]")


def _entry(source: Source, table: str, where: Where, given: Any) -> Entry:
    """Return a table with each field read."""
    fields = TABLES[table]
    if not isinstance(given, dict):
        raise source.error(where, table, f"must be a table, [[{table}]]")
    values = {}
    for field, value in given.items():
        place = f"{table}.{field}" if table else field
        if field not in fields:
            known = fields if table else [*fields, *(name for name in TABLES if name)]
            raise source.error((*where, field), place, str(unknown_name("field", field, list(known))))
        try:
            values[field] = fields[field](value)
        except Wrong as error:
            raise source.error((*where, field), place, f"{error}, not {_short(value)}") from None
    for field in REQUIRED.get(table, ()):
        if field not in values:
            raise source.error(where, f"{table}.{field}", f"is missing: each [[{table}]] needs it")
    return Entry(source, table, where, values)


def _short(value: Any) -> str:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # a number of too many digits, lists in lists in lists
        return "this"
    return shown if len(shown) <= 60 else shown[:57] + "..."
