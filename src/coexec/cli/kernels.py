"""`coexec doctor --kernels app.py`: which kernels of a script are compiled, and why the others are not.

Before: script.py, observe/trace.py.  After: app.py.  Runs the script in a process of its own, with every body compiled at once.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..config import PREFIX
from ..errors import TraceError
from ..observe.trace import Trace
from .output import console, emit, say, table
from .script import STDERR, check_script, run_child

TOLD = re.compile(
    r"kernel '(?P<kernel>[^']*)': variant '(?P<variant>[^']*)' is (?P<state>on|off)(?:: (?P<why>.*))?", re.DOTALL
)
SELDOM = "no core ran it twice"


class KernelState(NamedTuple):
    """What is known of one variant of a kernel."""

    kernel: str
    variant: str
    state: str  # on, off or unknown
    why: str


def show(script: Path, *, json: bool) -> None:
    """Run a script and tell what became of its kernels' bodies; leave with the script's exit code."""
    check_script(script, "doctor --kernels")
    with tempfile.TemporaryDirectory() as folder:
        wanted = {"TRACE": str(Path(folder, "run.json")), "COMPILE_BODIES": "always", "INLINE": "0"}
        environ = {**os.environ, **{PREFIX + name: value for name, value in wanted.items()}}
        code = run_child([sys.executable, str(script)], environ, stdout=STDERR if json else None)
        found = states(_traces(Path(folder)))
    if json:
        emit({"script": str(script), "exit_code": code, "kernels": [state._asdict() for state in found]})
    elif found:
        rows = [(state.kernel, state.variant, state.state, state.why) for state in found]
        console().print(table("", ["kernel", "variant", "", "why"], rows, numbers="lllw"))
    else:
        say(f"coexec: {script} called no kernel, or writes its trace somewhere else (trace=)")
    raise SystemExit(code)


def _traces(folder: Path) -> Iterable[Trace]:
    for path in sorted(folder.glob("*.json")):
        try:
            yield Trace.load(path)
        except TraceError as error:
            say(f"coexec: {error}")


def states(traces: Iterable[Trace]) -> list[KernelState]:
    """Return what traces tell of each kernel's variants that are made of its body: the last word counts."""
    told: dict[tuple[str, str], KernelState] = {}
    called: dict[str, None] = {}
    for trace in traces:
        ran = {row["task"] for row in trace.instructions if row["kind"] == "kernel"}
        called |= dict.fromkeys(row["name"] for row in trace.tasks if row["id"] in ran)
        for note in trace.notes:
            if (match := TOLD.match(note["text"])) is not None:
                kernel, variant = match["kernel"], match["variant"]
                told[kernel, variant] = KernelState(kernel, variant, match["state"], match["why"] or "")
    known = {kernel for kernel, _ in told}
    return [*told.values(), *(KernelState(name, "compiled", "unknown", SELDOM) for name in called if name not in known)]
