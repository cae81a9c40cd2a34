"""The examples run, and each checks its own result against NumPy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT, child_environment

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "picture")
SMALL = {
    "heat": ["120", "12"],
    "black_scholes": ["40000"],
    "image": ["150"],
    "matmul_everywhere": ["300"],
    "nbody": ["150", "5"],
    "rsim": ["6", "12"],
    "wave_sim": ["200", "20"],
}
"""Arguments that keep an example short; sizes that still are divided."""


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} == set(SMALL)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_agrees_with_numpy(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "assert np." in text, "an example checks itself"
    ended = subprocess.run(
        [sys.executable, str(path), *SMALL[path.stem]],
        cwd=tmp_path,
        env=child_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("\n") in (1, 2)
    drawn = [found.name for found in tmp_path.iterdir() if found.suffix in (".png", ".svg")]
    assert len(drawn) == ("--picture" in text), drawn
