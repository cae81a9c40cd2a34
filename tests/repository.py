"""The repository as the tests of habits see it: its files, its modules and who imports whom.

Before: nothing.  After: tests/test_*.py.  Knows nothing of what coexec does.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "coexec"
TESTS = ROOT / "tests"


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return the files under version control, or all files of an unpacked archive."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return tuple(path for path in paths if path.is_file())


def python_files(*folders: Path) -> list[Path]:
    """Return every Python file below `folders`, in order."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def relative(path: Path) -> str:
    """Return the path as the repository names it."""
    return path.relative_to(ROOT).as_posix()


def child_environment(home: Path) -> dict[str, str]:
    """Return an environment in which a child finds this coexec and writes its caches below `home`."""
    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": str(home / "cache")}


@cache
def modules() -> dict[str, Path]:
    """Return every module of coexec by its dotted name; a package is its `__init__.py`."""
    found = {}
    for path in python_files(PACKAGE):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(module: str, tree: ast.AST, *, is_package: bool, known: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield (module of coexec, line) for each import that runs; those under TYPE_CHECKING never do."""
    for node in running(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, node.lineno) for alias in names if alias.name in known)
            case ast.ImportFrom(names=names):
                base = absolute(module, node, is_package=is_package)
                for alias in names:
                    target = f"{base}.{alias.name}"
                    if target in known:
                        yield target, node.lineno
                    elif base in known:
                        yield base, node.lineno


def absolute(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    """Return the dotted name that a `from ... import` means inside `module`."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    above = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*above, *filter(None, [node.module])])


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree, leaving out the bodies of `if TYPE_CHECKING:`."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for other in child.orelse:
                yield from running(other)
        else:
            yield from running(child)


@cache
def imports() -> dict[str, dict[str, int]]:
    """Return, for each module of coexec, the modules of coexec it imports and the line where it does."""
    known = frozenset(modules())
    return {
        name: dict(imported(name, parsed(path), is_package=path.name == "__init__.py", known=known))
        for name, path in modules().items()
    }
