"""Read the text of a platform file: tables whose fields are known and sensible, and errors that name file and line.

Before: machine/files/schema.py.  After: machine/files/expanding.py.  On which line of the text each key stands is found here, because
the parser does not say.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import PlatformError, unknown_name
from .schema import REPEATED, REQUIRED, TABLES, Wrong

Where = tuple[str | int, ...]
"""The way to a value: keys of tables and indexes of arrays."""

BLANK = re.compile(r"[ \t]*")
SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
TEXT = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'",
    re.DOTALL,
)
BARE = re.compile(r"[^,\]}\n#]*")


def line_of(text: str, where: Where) -> int:
    """Return the line of the value, or of the innermost table around it that has a line; 1 if none has."""
    known = lines(text)
    while where and where not in known:
        where = where[:-1]
    return known.get(where, 1)


def lines(text: str) -> dict[Where, int]:
    """Return the line of each key, table and array element. Stops early where the text is no TOML."""
    return _Scanner(text).scan()


class _Scanner:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted = (0, 1)  # a position, and its line
        self._found: dict[Where, int] = {}
        self._arrays: dict[Where, int] = {}  # arrays of tables, and how many tables each has by now

    def scan(self) -> dict[Where, int]:
        table: Where = ()
        while self._skip(SPACE) < len(self._text):
            before = self._at
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)
            if self._at == before:
                break
        return self._found

    def _header(self) -> Where:
        """Read `[a.b]` or `[[a.b]]`."""
        line, double = self._line(), self._text.startswith("[[", self._at)
        self._at += 2 if double else 1
        keys = self._keys()
        self._at += 2 if double else 1
        where: Where = ()
        for key in keys:
            where = (*where, key)
            self._found.setdefault(where, line)
            if double and len(where) - sum(isinstance(k, int) for k in where) == len(keys):
                self._arrays[where] = self._arrays.get(where, 0) + 1
            if where in self._arrays:
                where = (*where, self._arrays[where] - 1)
        self._found.setdefault(where, line)
        return where

    def _pair(self, table: Where) -> None:
        """Read `a.b = value`."""
        line, keys = self._line(), self._keys()
        if keys and self._text.startswith("=", self._at):
            self._at += 1
            for many in range(1, len(keys) + 1):
                self._found.setdefault((*table, *keys[:many]), line)
            self._value((*table, *keys))

    def _keys(self) -> list[str]:
        """Read a key and those joined to it by dots; end behind the space after them."""
        keys = []
        while match := KEY.match(self._text, self._skip(BLANK)):
            keys.append(_plain(match.group()))
            self._at = match.end()
            if not self._text.startswith(".", self._skip(BLANK)):
                break
            self._at += 1
        return keys

    def _value(self, where: Where) -> None:
        self._skip(BLANK)
        start = self._text[self._at : self._at + 1]
        if start in ("[", "{") and start:
            self._at += 1
            self._inside(where, "]" if start == "[" else "}")
        elif match := TEXT.match(self._text, self._at) or BARE.match(self._text, self._at):
            self._at = match.end()

    def _inside(self, where: Where, end: str) -> None:
        """Read what stands between brackets or braces."""
        index = 0
        while self._skip(SPACE) < len(self._text) and not self._text.startswith(end, self._at):
            before = self._at
            if end == "]":
                self._found.setdefault((*where, index), self._line())
                self._value((*where, index))
            else:
                self._pair(where)
            index += 1
            self._skip(SPACE)
            if self._text.startswith(",", self._at):
                self._at += 1
            elif self._at == before:
                return
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at

    def _line(self) -> int:
        position, line = self._counted
        self._counted = (self._at, line + self._text.count("\n", position, self._at))
        return self._counted[1]


def _plain(key: str) -> str:
    """Return a key without its quotes."""
    if key.startswith('"'):
        try:
            return str(json.loads(key))
        except ValueError:
            return key.strip('"')
    return key.strip("'")


class SourceText(NamedTuple):
    """The text of a file, and what it is called."""

    file: str
    text: str

    def error(self, where: Where, field: str, message: str) -> PlatformError:
        """Return the error about the value at `where`."""
        return PlatformError(message, self.file, line_of(self.text, where), field)


@dataclass(frozen=True, slots=True)
class FileTable:
    """One table of the file, checked field by field."""

    source: SourceText
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


Tables = Mapping[str, list[FileTable]]
"""Table -> its entries in the order of the file. "" and "network" have at most one."""


def read(source: SourceText) -> Tables:
    """Return the tables of a platform file; raise PlatformError at the first thing that is wrong."""
    document = parse(source)
    known = [name for name in TABLES if name]
    top = {key: value for key, value in document.items() if key not in known}
    tables: dict[str, list[FileTable]] = {"": [_entry(source, "", (), top)]}
    for name in known:
        tables[name] = [
            _entry(source, name, where, values) for where, values in _found(source, name, document.get(name))
        ]
    return tables


def parse(source: SourceText) -> dict[str, Any]:
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


def _found(source: SourceText, name: str, value: Any) -> list[tuple[Where, Any]]:
    """Return the tables called `name`, each with the way to it."""
    if value is None:
        return []
    many = name in REPEATED
    if isinstance(value, list) if many else isinstance(value, dict):
        return [((name, i), entry) for i, entry in enumerate(value)] if many else [((name,), value)]
    raise source.error((name,), name, f"must be written [[{name}]]" if many else f"must be one table, [{name}]")


def _entry(source: SourceText, table: str, where: Where, given: Any) -> FileTable:
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
    return FileTable(source, table, where, values)


def _short(value: Any) -> str:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # a number of too many digits, lists in lists in lists
        return "this"
    return shown if len(shown) <= 60 else shown[:57] + "..."
