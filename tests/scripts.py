"""Run a script in a process of its own: for what ends a process, or must not end this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 60.0
HEAD = """
import os, signal, sys, threading
import numpy as np
import coexec as cx
from tests.holding import closed_gate, pass_gate
"""


def run_script(text: str, *args: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program that begins with the usual imports; return its output and exit code. Its children end with it."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    program = subprocess.Popen(
        [sys.executable, "-c", HEAD + dedent(text), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **(environ or {})},
    )
    try:
        out, err = program.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        out, err = program.communicate()
        raise AssertionError(f"the script hangs after {PATIENCE:.0f} s\n{out}\n{err}") from None
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)
