"""The examples run, and each checks its own result against NumPy."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from tests.repository import ROOT, child_environment
from tests.test_pictures import pixels_of

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem not in ("picture", "streaming"))
SMALL = {
    "black_scholes": ["40000"],
    "cg": ["60"],
    "cholesky": ["300", "64"],
    "graph_stream": ["400", "6", "gin", "--timeline", "timeline.svg"],
    "heat": ["120", "12"],
    "image": ["150"],
    "image_stream": ["64", "6", "--timeline", "timeline.svg"],
    "kmeans": ["40000", "5", "4"],
    "matmul_everywhere": ["300"],
    "monte_carlo": ["40000", "4"],
    "nbody": ["150", "5"],
    "resnet": ["32"],
    "rsim": ["6", "12"],
    "wave_sim": ["200", "20"],
    "window_stream": ["128", "4", "32", "--timeline", "timeline.svg"],
}
"""Arguments that keep an example short; sizes that still are divided."""


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} == set(SMALL)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_agrees_with_numpy(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    checks = "    assert " in text or "from streaming import" in text
    assert checks, "an example checks itself"
    ended = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::UserWarning",
            str(path),
            *SMALL[path.stem],
        ],  # tasks this small deserve the advice
        cwd=tmp_path,
        env=child_environment(tmp_path) | {"COEXEC_DIAGNOSTICS": "error"},  # nothing unwritten is read
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("\n") in (1, 2)
    drawn = [found for found in tmp_path.iterdir() if found.suffix in (".png", ".svg")]
    assert len(drawn) == ("--picture" in text or "--timeline" in text), drawn
    for found in drawn:
        if found.suffix == ".png":
            assert len(np.unique(pixels_of(found))) > 10, "something is to be seen"
        else:
            assert ET.parse(found).getroot().tag.endswith("svg")
