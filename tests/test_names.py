"""One class name is one thing in the core: who reads a name in an annotation knows which class is meant."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from tests.repository import PACKAGE, parsed, python_files

CORE = (
    "geometry", "program", "graph", "predict", "plan", "lower", "schedule", "execute", "backend/opencl", "backend/torch",
)  # fmt: skip
"""What a call passes on its way to a device, together with the files of the drivers."""

Classes = Mapping[str, Iterable[str]]


def classes_of(source: ast.AST) -> list[str]:
    """Return the names of all classes, wherever in a file they are."""
    return [node.name for node in ast.walk(source) if isinstance(node, ast.ClassDef)]


def core_classes() -> dict[str, list[str]]:
    """Return the classes of each file of the core."""
    folders = [PACKAGE / name for name in CORE]
    files = [*PACKAGE.glob("*.py"), *python_files(*folders)]
    return {path.relative_to(PACKAGE).as_posix(): classes_of(parsed(path)) for path in files}


def ambiguous(classes: Classes) -> dict[str, list[str]]:
    """Return the class names that mean several things, and where."""
    where: dict[str, list[str]] = {}
    for path, names in sorted(classes.items()):
        for name in names:
            where.setdefault(name, []).append(path)
    return {name: paths for name, paths in where.items() if len(paths) > 1}


def test_one_class_name_is_one_thing_in_the_core() -> None:
    assert ambiguous(core_classes()) == {}


def test_a_name_that_means_two_things_is_found() -> None:
    one, other = ast.parse("class Known: ..."), ast.parse("def f():\n    class Known: ...\n")
    found = ambiguous({"lower/cache.py": classes_of(other), "graph/shape.py": classes_of(one)})
    assert found == {"Known": ["graph/shape.py", "lower/cache.py"]}
