"""`import coexec` is quick because of what it leaves alone: no thread, no heavy package, few modules."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import coexec
from tests.repository import ROOT, child_environment

HEAVY = {"scipy", "pyopencl", "rich", "typer", "torch", "numba", "dask", "onnx", "mpi4py"}
SLOW = {"asyncio", "multiprocessing", "unittest", "importlib.metadata"}
MOST_MODULES = 140  # beside NumPy's own: a generous structural bound where a bound on time would be noise

# NumPy starts its library threads when it is imported, so it comes first and what counts is the difference.
PROBE = """
import json, sys, threading
import numpy, psutil
before, threads = set(sys.modules), psutil.Process().num_threads()
import coexec
new = sorted(set(sys.modules) - before)
print(json.dumps([new, psutil.Process().num_threads() - threads, threading.active_count()]))
"""


class Found(NamedTuple):
    """What a fresh interpreter has after `import coexec` that it had not before."""

    modules: list[str]
    threads: int
    python_threads: int


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    environment = child_environment(tmp_path_factory.mktemp("home"))
    run = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    return Found(*json.loads(run.stdout))


def test_importing_coexec_starts_no_thread(found: Found) -> None:
    assert (found.threads, found.python_threads) == (0, 1)


def test_importing_coexec_leaves_heavy_packages_alone(found: Found) -> None:
    assert {module.partition(".")[0] for module in found.modules} & HEAVY == set()
    assert set(found.modules) & SLOW == set()


def test_importing_coexec_loads_few_modules(found: Found) -> None:
    assert "coexec" in found.modules
    assert len(found.modules) < MOST_MODULES


def test_type_checkers_see_every_name_that_is_found_on_first_use() -> None:
    tree = ast.parse(Path(coexec.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {name.name: "." + (node.module or name.name) for node in block.body for name in node.names}  # type: ignore[attr-defined]
    seen["random"] = ".ops.random"
    assert seen == coexec.LATE


def test_importing_coexec_writes_nothing(tmp_path: Path) -> None:
    environment = {**child_environment(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", "import coexec"], cwd=ROOT, env=environment, check=True)
    assert list(tmp_path.iterdir()) == []
