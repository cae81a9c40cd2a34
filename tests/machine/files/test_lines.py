"""Where keys stand in a TOML text."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given, strategies as st

from coexec.machine.files.reading import Where, line_of, lines

TEXT = '''# a comment = 1
top = 1
"quoted key" = "a # b = c"
long = """
no.key = 2
"""
[table]
a.b = [1,
  2, # two
  { x = 3, y = [4] },
]
'literal' = \'''
[[no.table]]
\'''

[[many]]
name = "x"
[many.sub]
z = 1
[[many]]   # another
name = "y"
[[many.inner]]
w = 2
'''


def ways(value: Any, where: Where = ()) -> list[Where]:
    """Return the way to every value inside a value."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    return [where] * bool(where) + [way for key, inner in pairs for way in ways(inner, (*where, key))]


def test_keys_are_found_in_every_way_of_writing_them() -> None:
    found = lines(TEXT)
    expected = {
        ("top",): 2, ("quoted key",): 3, ("long",): 4, ("table",): 7, ("table", "a", "b"): 8, ("table", "a", "b", 1): 9,
        ("table", "a", "b", 2, "x"): 10, ("table", "a", "b", 2, "y", 0): 10, ("table", "literal"): 12, ("many", 0): 16,
        ("many", 0, "name"): 17, ("many", 0, "sub"): 18, ("many", 0, "sub", "z"): 19, ("many", 1): 20,
        ("many", 1, "name"): 21, ("many", 1, "inner", 0): 22, ("many", 1, "inner", 0, "w"): 23,
    }  # fmt: skip
    assert {way: found.get(way) for way in expected} == expected
    assert [way for way in found if "no" in way or "no.key" in way] == []


def test_everything_the_parser_finds_has_a_line() -> None:
    found = lines(TEXT)
    assert [way for way in ways(tomllib.loads(TEXT)) if way not in found] == []


def test_what_has_no_line_gets_that_of_the_table_around_it() -> None:
    assert line_of(TEXT, ("many", 1, "missing")) == 20
    assert line_of(TEXT, ("nothing", "here")) == 1


@given(st.text(alphabet="ab=[]{}\"',.#\n \\1"))
def test_any_text_is_scanned_to_an_end(text: str) -> None:
    assert all(1 <= line <= text.count("\n") + 1 for line in lines(text).values())
