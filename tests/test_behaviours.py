"""docs/behaviours.md keeps its word: every behaviour has its row, and every test it names exists."""

from __future__ import annotations

import ast
import re

from tests.repository import ROOT, parsed

PAGE = ROOT / "docs" / "behaviours.md"
WANTED = [f"G{n}" for n in range(1, 57)]
WANTED += [f"B{n}" for n in range(1, 67)]
WANTED += [f"P{n}" for n in range(1, 11)]
ROW = re.compile(r"^\| ([GBP]\d+) \| (.+?) \| (.*?) \| ?(.*?) ?\|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_behaviour_has_exactly_one_row() -> None:
    rows = [match[1] for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))]
    assert sorted(rows) == sorted(WANTED)


def test_a_behaviour_that_applies_names_its_tests_and_one_that_does_not_says_why() -> None:
    for id, _, mark, tests in (match.groups() for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))):
        assert re.match(r"(yes|ours|no)\b", mark), id
        assert bool(TEST.search(tests)) == (not mark.startswith("no:")), id
        assert mark.startswith("yes") or len(mark) > 20, f"{id} does not say why"


def test_every_test_that_is_named_exists() -> None:
    missing = []
    for path, name in TEST.findall(PAGE.read_text(encoding="utf-8")):
        file = ROOT / path
        known = (
            {node.name for node in ast.walk(parsed(file)) if isinstance(node, ast.FunctionDef)}
            if file.exists()
            else set()
        )
        if name not in known:
            missing.append(f"{path}::{name}")
    assert missing == []
