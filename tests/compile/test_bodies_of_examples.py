"""The bodies of all examples, compiled at their second call and compared with NumPy at each: none differs, and refusals have a reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT, child_environment
from tests.test_examples import SMALL

pytest.importorskip("llvmlite")
KERNELS = ("black_scholes", "cg", "cholesky", "heat", "image", "kmeans", "monte_carlo", "nbody", "rsim", "wave_sim")
SCRIPT = """
import json, runpy, sys
from coexec.compile.serving import compiled_bodies
kept, found = [], {}
for path, arguments in json.loads(sys.argv[1]):
    for again in range(2):  # some call a kernel once
        sys.argv = [path, *arguments]
        kept.append(runpy.run_path(path, run_name="__main__"))
    for body in compiled_bodies():
        found.setdefault(body.kernel_name, set()).update(state.answer for state in body.states())
print(json.dumps({name: sorted(answers) for name, answers in found.items()}))
"""


def test_bodies_of_all_examples_are_numpys_or_are_refused_with_a_reason(tmp_path: Path) -> None:
    folder = str(ROOT / "examples")
    given = [(f"{folder}/{name}.py", SMALL[name]) for name in KERNELS]
    settings = {"COEXEC_COMPILE_BODIES": "always", "COEXEC_DEVICES": "cpu:0", "PYTHONPATH": f"{ROOT / 'src'}:{folder}"}
    command = [sys.executable, "-c", SCRIPT, json.dumps(given)]
    ran = subprocess.run(
        command,
        env=child_environment(tmp_path) | settings,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    states: dict[str, list[str]] = json.loads(ran.stdout.splitlines()[-1])
    answers = {name: answer for name, all_of_it in states.items() for answer in all_of_it}
    assert not [name for name, answer in answers.items() if "differs" in answer or "failed" in answer], answers
    assert {name for name, found in states.items() if "compiled" in found} >= {
        "step",
        "turn",
        "advance",
        "apply",
        "move",
    }
