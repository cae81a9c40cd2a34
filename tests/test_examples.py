"""The examples run, each checks its own result against NumPy, and each is short enough to be read at once."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from tests.repository import ROOT, child_environment

FOLDER = ROOT / "examples"
SHARED = ("common", "streaming")
"""What examples import; they are no examples themselves."""
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.stem not in SHARED)
LINES = 100
"""An example fits on two screens; OpenCL C stands in files of its own."""
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


@pytest.fixture(scope="session")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with matplotlib's list of fonts. Making it may take so long that matplotlib says so."""
    folder = tmp_path_factory.mktemp("matplotlib")
    command = [sys.executable, "-c", "import matplotlib.font_manager"]
    subprocess.run(command, env=child_environment(folder) | {"MPLCONFIGDIR": str(folder)}, timeout=120, check=True)
    return folder


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} == set(SMALL)


def test_no_example_is_longer_than_a_hundred_lines() -> None:
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in FOLDER.glob("*.py")}
    assert {name: count for name, count in lines.items() if count > LINES} == {}


def test_every_opencl_source_belongs_to_an_example_and_says_what_it_does() -> None:
    stems = tuple(path.stem for path in EXAMPLES)
    assert [path.name for path in FOLDER.glob("*.cl") if not path.stem.startswith(stems)] == []
    assert [p.name for p in FOLDER.glob("*.cl") if not p.read_text(encoding="utf-8").startswith("// ")] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_agrees_with_numpy(path: Path, tmp_path: Path, fonts: Path) -> None:
    text = path.read_text(encoding="utf-8")
    checks = "    assert " in text or "from streaming import" in text
    assert checks, "an example checks itself"
    draws = "args.picture" in text
    ended = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::UserWarning",  # tasks this small deserve the advice
            str(path),
            *SMALL[path.stem],
            *(["--picture", "picture.png"] if draws else []),
        ],
        cwd=tmp_path,
        env=child_environment(tmp_path) | {"COEXEC_DIAGNOSTICS": "error", "MPLCONFIGDIR": str(fonts)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("\n") in (1, 2)
    drawn = [found for found in tmp_path.iterdir() if found.suffix in (".png", ".svg")]
    assert len(drawn) == (draws or "--timeline" in text), drawn
    for found in drawn:
        if found.suffix == ".png":
            assert len(np.unique(imread(found))) > 10, "something is to be seen"
        else:
            assert ET.parse(found).getroot().tag.endswith("svg")


@pytest.fixture
def common() -> Any:
    spec = spec_from_file_location("common", FOLDER / "common.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_picture_without_matplotlib_is_refused_before_anything_is_computed(common, monkeypatch, capsys) -> None:
    monkeypatch.setattr(common, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["example.py", "--picture", "out.png"])
    with pytest.raises(SystemExit):
        common.arguments("An example.", side=7)
    assert "--picture needs matplotlib: pip install 'coexec[plot]'" in capsys.readouterr().err


def test_an_example_without_a_picture_needs_no_matplotlib(common, monkeypatch) -> None:
    monkeypatch.setattr(common, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["example.py", "9"])
    given = common.arguments("An example.", side=7, steps=3)
    assert (given.side, given.steps, given.picture) == (9, 3, None)
