"""The core can be compiled by mypyc: what it cannot take, or takes to mean something else, is not in it.

`hatch_build.py` says which files those are. Each rule here has cost somebody an afternoon.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.repository import PACKAGE, parsed, python_files

ROOT = PACKAGE.parent.parent


def _builder() -> ModuleType:
    found = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


BUILDER = _builder()
CORE: list[Path] = BUILDER.modules(PACKAGE)


KEYWORDS = frozenset(
    f"_{word}"
    for word in [
        "thread",
        "inline",
        "asm",
        "typeof",
        "const",
        "signed",
        "volatile",
        "alignof",
        "attribute",
        "restrict",
        "complex",
        "real",
        "imag",
    ]
)
"""Attributes that mypyc turns into words of the C compiler: it puts another underscore before each."""

BUILTIN = frozenset({"list", "set", "frozenset", "tuple", "str", "bytes", "int", "float"})
"""Types that classes of mypyc cannot inherit from; they can from dict."""


def _names_for_checking_only(tree: ast.Module) -> set[str]:
    """Return what is imported for the type checker alone."""
    blocks = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING")]
    imports = [n for block in blocks for n in ast.walk(block) if isinstance(n, ast.ImportFrom | ast.Import)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _in_class(node: ast.ClassDef, absent: set[str]) -> Iterator[str]:
    methods = {entry.name for entry in node.body if isinstance(entry, ast.FunctionDef)}
    for entry in node.body:
        if isinstance(entry, ast.Assign) and isinstance(entry.value, ast.Name) and entry.value.id in methods:
            yield f"{node.name} has an alias of the method {entry.value.id}"
    for base in node.bases:
        if ast.unparse(base).partition("[")[0] in BUILTIN:
            yield f"{node.name} inherits from {ast.unparse(base)}"
    if any(ast.unparse(base) == "NamedTuple" for base in node.bases):
        for entry in node.body:
            if isinstance(entry, ast.AnnAssign):
                used = {n.id for n in ast.walk(entry.annotation) if isinstance(n, ast.Name)} & absent
                if used:  # a crash without a message, when the first one is made
                    yield f"{node.name} is a NamedTuple with {', '.join(sorted(used))}, imported for the type checker only"
    for decorator in node.decorator_list:
        if "slots=True" in ast.unparse(decorator):
            yield f"{node.name} is a dataclass with slots"


def not_for_mypyc(tree: ast.Module) -> list[str]:
    """Name what mypyc refuses in a file, or compiles to something else."""
    found: list[str] = []
    absent = _names_for_checking_only(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found += _in_class(node, absent)
        elif isinstance(node, ast.Attribute) and node.attr in ("__dict__", "_getframe"):
            found.append(f"{ast.unparse(node)} in line {node.lineno}")
        elif isinstance(node, ast.Attribute) and node.attr in KEYWORDS:
            found.append(f"{ast.unparse(node)} in line {node.lineno}, a keyword of C")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "type" and len(node.args) == 3:
            found.append(f"a class is made in line {node.lineno}, for which compiled functions are no methods")
        elif isinstance(node, ast.Name) and node.id == "cached_property":
            found.append(f"cached_property in line {node.lineno}")
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
            named = [n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            if node.left.id in named:  # the left side may be taken after the right one has changed it
                found.append(f"{ast.unparse(node)} in line {node.lineno}")
    return found


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_mypyc_can_take_the_core(path: Path) -> None:
    assert not_for_mypyc(parsed(path)) == []


def test_the_core_is_what_every_task_goes_through() -> None:
    names = {path.relative_to(PACKAGE).as_posix() for path in CORE}
    assert {"geometry/box.py", "graph/tracker.py", "lower/lowering.py", "schedule/scheduler.py"} <= names
    assert {"execute/engine.py", "execute/executor.py"} <= names
    assert not {"geometry/__init__.py", *BUILDER.INTERPRETED} & names


def test_no_interpreted_class_inherits_from_a_compiled_one() -> None:
    compiled = {node.name for path in CORE for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)}
    others = [path for path in python_files(PACKAGE) if path not in CORE]
    classes = [node for path in others for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]
    bases = {node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases} for node in classes}
    assert {name: found & compiled for name, found in bases.items() if found & compiled} == {}  # it cannot be made


def test_what_mypyc_cannot_take_is_found() -> None:
    text = """
from typing import TYPE_CHECKING, NamedTuple
if TYPE_CHECKING:
    from .task import Task
class Wrong:
    def union(self): ...
    __or__ = union
class Event(NamedTuple):
    task: Task | None
class Found(list[int]): ...
def ask(self, device):
    vars(self).update(self.__dict__)
    return sys._getframe(1), last != (last := device), self._thread, type("Made", (Found,), {"__init__": ask})
"""
    found = not_for_mypyc(ast.parse(text))
    assert len(found) == 8 and "alias of the method union" in found[0] and "Task" in found[1]


@pytest.mark.parametrize(("said", "asked"), [("", "0"), ("0", "0"), ("1", "1"), (" auto ", "auto")])
def test_the_variable_says_whether_to_compile(said: str, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEXEC_COMPILE", said)
    assert BUILDER.asked() == asked


def test_another_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEXEC_COMPILE", "yes")
    with pytest.raises(SystemExit, match=r"COEXEC_COMPILE='yes' must be 0, 1 or auto"):
        BUILDER.asked()
