"""Habits that are easy to lose: no private paths in the tree, no print, no sleep, nothing executable from disk."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.repository import PACKAGE, ROOT, TESTS, parsed, python_files, relative, tracked_files

# A path that only one machine has.
PRIVATE_PATH = re.compile(r"(?<![\w./~-])/(?:work|root|home|tmp|Users)(?=/|\b(?![-\w./]))")
# Where packages come from is the user's choice; a lock on one index would break every other.
REGISTRY = re.compile("|".join(["index" + "-url", "find" + "-links", "trusted" + "-host", r"files\.python" + "hosted"]))
PICKLES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def private(text: str) -> list[str]:
    """Return what in `text` belongs to one machine or one package index."""
    return [match.group() for pattern in (PRIVATE_PATH, REGISTRY) for match in pattern.finditer(text)]


def calls(tree: ast.AST, name: str) -> Iterator[int]:
    """Yield the lines that call `name`, plain or as an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == name:
                yield node.lineno


def imported_packages(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (top-level package, line) of each absolute import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0], node.lineno


def text_of(path: Path) -> str:
    """Return the file's text, or nothing for pictures and other bytes."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_nothing_in_the_tree_belongs_to_one_machine_or_one_index() -> None:
    found = {relative(path): private(text_of(path)) for path in tracked_files()}
    assert {path: what for path, what in found.items() if what} == {}


def test_only_the_command_line_prints() -> None:
    quiet = [path for path in python_files(PACKAGE) if not path.is_relative_to(PACKAGE / "cli")]
    assert [f"{relative(path)}:{line}" for path in quiet for line in calls(parsed(path), "print")] == []


def test_no_test_sleeps() -> None:
    assert [f"{relative(path)}:{line}" for path in python_files(TESTS) for line in calls(parsed(path), "sleep")] == []


def test_nothing_executable_is_read_from_disk() -> None:
    found = [
        f"{relative(path)}:{line} imports {package}"
        for path in python_files(PACKAGE)
        for package, line in imported_packages(parsed(path))
        if package in PICKLES
    ]
    assert found == []


def test_the_version_is_written_once() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project
    assert re.search(r"^version\s*=", project, re.MULTILINE) is None


def test_a_private_path_is_found_and_an_ordinary_one_is_not() -> None:
    for folder in ("work", "root", "home", "tmp"):
        assert private(f"see /{folder}/x") == [f"/{folder}"]
        assert private(f"see '/{folder}'") == [f"/{folder}"]
    assert private("total work / devices, a/work/b, ./home/x, /etc/OpenCL/vendors, /workload, /tmpfs") == []
    assert private("pip install --index" + "-url x") == ["index" + "-url"]


def test_calls_and_imports_are_found_wherever_they_stand() -> None:
    tree = ast.parse("import time\ndef f():\n    time.sleep(1)\n    from pickle import load\n")
    assert list(calls(tree, "sleep")) == [3]
    assert ("pickle", 4) in set(imported_packages(tree))
