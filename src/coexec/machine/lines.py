"""On which line of a TOML text each key stands, because the parser does not say.

Before: nothing.  After: machine/reading.py.  Checks nothing: the text has been parsed before, values are skipped.
"""

from __future__ import annotations

import json
import re

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
