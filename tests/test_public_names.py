"""Every public name exists, says what it is, and can be found in the documentation."""

from __future__ import annotations

import inspect
import re
from functools import cache

import coexec
from tests.repository import ROOT

NAMES = [name for name in coexec.__all__ if not name.startswith("__")]


@cache
def documentation() -> str:
    """Return the text of docs/, where every public name is explained."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))


def mentioned(name: str, text: str) -> bool:
    """Tell whether `text` speaks of cx.name, coexec.name or `name`."""
    return re.search(rf"\b(cx|coexec)\.{name}\b|`{name}\b", text) is not None


def contract(thing: object) -> str:
    """Return the docstring of a module, class or function, or of the class of which `thing` is an instance."""
    described = thing if inspect.ismodule(thing) or inspect.isroutine(thing) else None
    owner = described or (thing if isinstance(thing, type) else type(thing))
    inherited = isinstance(owner, type) and owner.__module__ == "builtins"
    return "" if inherited else inspect.getdoc(thing) or ""


def test_every_public_name_exists_and_stands_once() -> None:
    assert len(set(coexec.__all__)) == len(coexec.__all__)
    assert [name for name in coexec.__all__ if not hasattr(coexec, name)] == []
    assert coexec.__version__


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in NAMES if not contract(getattr(coexec, name))] == []


def test_every_public_name_is_mentioned_in_the_documentation() -> None:
    assert [name for name in NAMES if not mentioned(name, documentation())] == []


def test_a_mention_is_a_whole_word() -> None:
    assert mentioned("read", "use `cx.read` here")
    assert mentioned("read", "`read(mapper)`")
    assert not mentioned("read", "cx.readable, already read")


def test_a_plain_value_borrows_no_docstring_from_its_builtin_type() -> None:
    assert not contract(3)
    assert contract(re)
    assert contract(inspect.getdoc)
