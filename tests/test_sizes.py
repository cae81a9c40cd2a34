"""No file eats the system: a size budget from day one. Over it, split by concept, never by line count."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from statistics import median

from tests.repository import PACKAGE, TESTS, parsed, python_files, relative

LINES_PER_FILE = 400
LINES_PER_FUNCTION = 60
MEDIAN_LINES_PER_FUNCTION = 10

EXCEPTIONS: Mapping[str, str] = {  # "path" or "path:function" -> why it may be longer
    "src/coexec/cluster/dealing.py": "who computes what and who sends what to whom are one deal, in one class",
    "src/coexec/plan/steps/planner.py": "the life of a step's plans: begun, looked at, measured, chosen, in one class",
    "src/coexec/plan/division/make_offers.py": "where data is decides what a device offers: one is read with the other",
    "src/coexec/plan/planner.py": "the order of all decisions about one call, in one class",
    "src/coexec/plan/policies.py": "all placement policies, with what they are asked and what they remember",
    "src/coexec/plan/steps/choose.py": "making a plan of a step, improving it and choosing among plans are one search",
    "src/coexec/plan/steps/estimate.py": "one emulation of a step, with the links that its copies take",
}


def functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of every function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def over_budget(path: str, lines: int, tree: ast.AST) -> list[str]:
    """Name the file and each of its functions that outgrew its budget."""
    found = [path] if lines > LINES_PER_FILE else []
    return found + [f"{path}:{name}" for name, length in functions(tree) if length > LINES_PER_FUNCTION]


def test_files_and_functions_stay_within_their_budget() -> None:
    found = []
    for path in python_files(PACKAGE, TESTS):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        found += over_budget(relative(path), lines, parsed(path))
    assert sorted(set(found) - EXCEPTIONS.keys()) == []
    assert sorted(EXCEPTIONS.keys() - set(found)) == [], "exceptions that are no longer needed"


def test_the_median_function_is_short() -> None:
    lengths = [length for path in python_files(PACKAGE) for _, length in functions(parsed(path))]
    assert median(lengths) < MEDIAN_LINES_PER_FUNCTION


def test_a_function_that_ate_the_system_is_named() -> None:
    long = "def plan():\n" + "    x = 1\n" * 80
    assert over_budget("plan/heft.py", 81, ast.parse(long)) == ["plan/heft.py:plan"]
    assert over_budget("plan/heft.py", 401, ast.parse("def plan(): ...")) == ["plan/heft.py"]
    assert over_budget("plan/heft.py", 2, ast.parse("def plan():\n    return 1\n")) == []
