"""Do something bad to one of two ranks of `coexec run`, for real, and see how all of it ends.

    python -m tests.cluster.injections --times 1000 [--seed 5]

prints a line for each kind of trouble: how often, and how long the run went on at most after it. Exit code 1 if one hung,
ended with 0, left a process behind, or did not say why.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.cli.commands import arguments_of, environment

PROGRAM = """
import os, signal, sys, time
from pathlib import Path

how, mark = sys.argv[1], Path(sys.argv[2])

def happens():
    while how == "computes" and not (mark / "computes").exists():
        time.sleep(0.01)  # the other rank is still in a call
    (mark / "when").write_text(repr(time.time()))
    if how in ("SIGINT", "SIGTERM"):
        os.kill(int(os.environ["LAUNCHER"]), getattr(signal, how))
    elif how in ("kill", "stop", "computes"):
        os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)
    elif how in ("_exit 0", "_exit 3"):
        os._exit(int(how[-1]))
    elif how in ("exit 0", "exit 4", "early"):
        sys.exit(3 if how == "early" else int(how[-1]))
    elif how == "raise":
        raise ZeroDivisionError("the last rank cannot divide")

if how == "early" and os.environ.get("CX_RANK", os.environ.get("PMI_RANK")) == "1":
    happens()

import numpy as np
import coexec as cx

@cx.kernel(split=0, x=cx.read, y=cx.update)
def add(x, y, a):
    y += a * x

last = cx.rank() == cx.ranks() - 1
(mark / f"pid{cx.rank()}").write_text(str(os.getpid()))
x, y, large = cx.array(np.ones(1000)), cx.zeros(1000), np.zeros(100_000)
for step in range(1_000_000):
    add(x, y, 2.0 if last and how == "diverges" and step == 5 else 1.0)
    if last and step == 5:
        large[50_000] = how == "unequal"
        happens()
        if how == "waits":
            cx.wait()
    if how == "computes" and step == 5:
        (mark / "computes").touch()
        time.sleep(1000)
    if step == 6:
        x = cx.array(large)[:1000] + x
    np.asarray(y[::100])
"""
SAYS = {
    "kill": ("rank 1 on", "is gone: ", "called at"),
    "computes": ("rank 1 on", "is gone: ", "where its program is", "time.sleep(1000)"),
    "stop": ("rank 1 on", "has been stopped for 4 s", "called at"),
    "_exit 0": ("rank 1 on", "is gone: ", "called at"),
    "_exit 3": ("rank 1 on", "is gone: ", "called at"),
    "exit 0": ("rank 1 on", "has ended", "called at"),
    "exit 4": ("rank 1 on", "has ended", "called at"),
    "raise": ("rank 1 on", "ZeroDivisionError: the last rank cannot divide", "called at"),
    "diverges": ("they part at call", "a=1.0", "a=2.0", "app.py"),
    "unequal": ("was given other contents on", "app.py"),
    "waits": ("all ranks wait for each other", "its last calls", "app.py"),
    "early": ("rank 1 ended with exit code 3",),
    "SIGINT": ("the program was interrupted",),
    "SIGTERM": ("the program was interrupted",),
}
"""What happens, and what must be said then."""
HANGS = 120.0  # s after which a run is taken for hung


class Found(NamedTuple):
    """How a run ended."""

    code: int
    seconds: float  # from the event to the end of everything
    err: str
    wrong: tuple[str, ...]


def inject(how: str, on: str, folder: Path) -> Found:
    """Run a program on two ranks over MPI or gloo, let something happen to the last one, and judge the end."""
    script = folder / "app.py"
    script.write_text(PROGRAM)
    command = arguments_of("run", "-n", "2", "--on", on, "--trace", folder / "run.json", script, how, folder)
    shell = ["sh", "-c", 'export LAUNCHER=$$; exec "$@"', "sh", *command]  # keeps its process id
    program = subprocess.Popen(
        shell,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wrong = []
    try:
        _, err = program.communicate(timeout=HANGS)
    except subprocess.TimeoutExpired:
        wrong.append(f"it goes on after {HANGS:g} s")
        os.killpg(program.pid, signal.SIGKILL)
        _, err = program.communicate()
    end = time.time()
    wrong += [f"nobody says {words!r}" for words in SAYS[how] if words not in err]
    if not program.returncode:
        wrong.append("the exit code is 0")
    wrong += [f"rank {rank} goes on" for rank in range(2) if _alive(folder / f"pid{rank}")]
    if how != "early" and not _complete(folder / "run.json"):
        wrong.append("rank 0's trace is not complete")
    began = float((folder / "when").read_text())
    return Found(program.returncode, end - began, err, tuple(wrong))


def _alive(note: Path) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{int(note.read_text())}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _complete(trace: Path) -> bool:
    with suppress(OSError, ValueError):
        return len(json.loads(trace.read_text())) > 2
    return False


def main() -> int:
    """Inject as often as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    worst: dict[tuple[str, str], tuple[int, float]] = {}
    bad = 0
    for _ in range(given.times):
        how, on = chance.choice(list(SAYS)), chance.choice(["mpi", "gloo"])
        with tempfile.TemporaryDirectory(prefix="coexec-") as folder:
            found = inject(how, on, Path(folder))
        times, longest = worst.get((how, on), (0, 0.0))
        worst[how, on] = times + 1, max(longest, found.seconds)
        if found.wrong:
            bad += 1
            sys.stdout.write(f"{how} over {on}: {', '.join(found.wrong)}\n{found.err}\n")
    for (how, on), (times, longest) in sorted(worst.items()):
        sys.stdout.write(f"{how:10} {on:5} {times:4} times, {longest:5.1f} s at most\n")
    sys.stdout.write(f"{given.times} injections, {bad} bad\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
