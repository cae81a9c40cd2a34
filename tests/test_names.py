"""One class name is one thing: who reads a name in an annotation knows which class is meant."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from tests.repository import PACKAGE, parsed, python_files

LEFT = frozenset({"Read", "Text"})
"""Names that mean two things still: an event and an expression; OpenCL C of some calls and of one body (compile/)."""

Classes = Mapping[str, Iterable[str]]


def classes_of(source: ast.AST) -> list[str]:
    """Return the names of all classes, wherever in a file they are."""
    return [node.name for node in ast.walk(source) if isinstance(node, ast.ClassDef)]


def all_classes() -> dict[str, list[str]]:
    """Return the classes of each file of the package."""
    return {path.relative_to(PACKAGE).as_posix(): classes_of(parsed(path)) for path in python_files(PACKAGE)}


def ambiguous(classes: Classes) -> dict[str, list[str]]:
    """Return the class names that mean several things, and where."""
    where: dict[str, list[str]] = {}
    for path, names in sorted(classes.items()):
        for name in names:
            where.setdefault(name, []).append(path)
    return {name: paths for name, paths in where.items() if len(paths) > 1}


def test_one_class_name_is_one_thing() -> None:
    assert set(ambiguous(all_classes())) == LEFT


def test_a_name_that_means_two_things_is_found() -> None:
    one, other = ast.parse("class Known: ..."), ast.parse("def f():\n    class Known: ...\n")
    found = ambiguous({"lower/cache.py": classes_of(other), "graph/shape.py": classes_of(one)})
    assert found == {"Known": ["graph/shape.py", "lower/cache.py"]}
