"""The programs that are recorded: random ones, of tests/fuzz/, and the examples."""

from __future__ import annotations

import gc
import hashlib
import runpy
import sys
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from zlib import crc32

import numpy as np

import coexec as cx
from tests.fuzz.kernels import KERNELS
from tests.fuzz.mixes import MIXES, runtime_options
from tests.fuzz.nonsense import nonsense
from tests.fuzz.program import Program
from tests.fuzz.steps import program_of
from tests.holding import closed_gate
from tests.repository import ROOT

from .canonical import DIGEST, Become, Row, become, record
from .tap import forget, open_runtime, rows_of

RUNTIME = cx.Runtime  # examples see another one
LEFT_OUT = ("threads", "threads mixed", "first touch")
"""Mixes whose threads run side by side: no two runs are alike."""
NAMES = [name for name in MIXES if name not in LEFT_OUT]
EACH = 1
"""How many mixes a seed is for."""
SIZES = {
    "black_scholes": ["20000"],
    "cg": ["30"],
    "cholesky": ["200", "64"],
    "heat": ["120", "12"],
    "image": ["120"],
    "kmeans": ["20000", "5", "4"],
    "matmul_everywhere": ["200"],
    "monte_carlo": ["20000", "4"],
    "nbody": ["120", "5"],
    "rsim": ["6", "12"],
    "wave_sim": ["150", "20"],
}
"""Arguments with which an example takes a second at most, but for a few."""
POLICIES = {"example": {}, "even": {"policy": "even"}}
"""Examples run as they are, and with every task divided evenly, which small ones are not."""
CAP = "200kB"
"""What a limited memory holds: less than some examples need, enough for a dozen rows of each."""
BATCHES = 10_000_000
"""A seed beyond those of random programs: it chooses what a mix has several of, such as limits of memory."""


def mixes_of(seed: int) -> list[str]:
    """Return the mixes that a seed is for, in turn, so that each mix gets as many."""
    return [NAMES[(seed * EACH + number) % len(NAMES)] for number in range(EACH)]


class Run:
    """Where the runtimes of one program write their traces, and what the program saw."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self._seed = folder, seed
        self._traces: list[Path] = []
        self._seen = hashlib.blake2b(digest_size=DIGEST // 2)

    def open(self, options: dict[str, Any]) -> Any:
        """Open a runtime of the program."""
        trace = self.folder / f"{len(self._traces)}.json"
        self._traces.append(trace)
        return open_runtime(RUNTIME, options, trace, self._seed)

    def look(self, value: Any) -> None:
        """Take what the program sees; elements that failed tasks should have written are seen as such."""
        try:
            bits = np.asarray(value).tobytes()
        except (cx.TaskFailed, cx.TaskCancelled) as error:
            bits = type(error).__name__.encode()
        self._seen.update(bits)

    @property
    def seen(self) -> str:
        """A digest of everything that was seen."""
        return self._seen.hexdigest()

    def became(self) -> list[Become]:
        """Return what each runtime was given to do."""
        return [become(rows_of(trace)) for trace in self._traces if trace.exists()]


_modules = [0]  # how many were imported, whenever there were more


@contextmanager
def _quiet() -> Iterator[None]:
    """Let garbage be collected before a program, never within it; modules, which stay, are looked at only once."""
    gc.collect()
    if _modules[-1] != len(sys.modules):
        gc.freeze()
        _modules.append(len(sys.modules))
    gc.disable()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        gc.enable()


def _outcome(error: BaseException | None) -> str:
    if isinstance(error, BaseExceptionGroup):
        return f"group of {', '.join(sorted({type(part).__name__ for part in error.exceptions}))}"
    return "right" if error is None else type(error).__name__


def _random(run: Run, program: Program) -> None:
    names = {"np": np, "cx": cx, "look": run.look, "nonsense": nonsense, "log": [], "closed_gate": closed_gate}
    with run.open(program.options):
        for source in program.sources():
            exec(compile(source, "<program>", "exec"), {**names, **KERNELS})
        cx.wait()


def _example(run: Run, kind: str, stem: str, mix: str) -> None:
    chosen = runtime_options(MIXES[mix], BATCHES + crc32(stem.encode()))
    options = {name: value for name, value in chosen.items() if name in MIXES[mix].runtime} | POLICIES[kind]
    if MIXES[mix].capped:
        options["memory"] = dict.fromkeys(options["memory"], CAP)
    path = ROOT / "examples" / f"{stem}.py"

    def opened(**given: Any) -> Any:
        del given
        return run.open(options)

    with (
        patch.object(sys, "argv", [str(path), *SIZES[stem]]),
        patch.object(sys, "path", [str(path.parent), *sys.path]),
        patch.object(cx, "Runtime", opened, create=True),
        redirect_stdout(StringIO()) as said,
        chdir(run.folder),  # some leave a picture behind
        cx.Runtime(),
    ):
        runpy.run_path(str(path), run_name="__main__")
    run.look(np.frombuffer(said.getvalue().encode(), np.uint8))


def names_of(seeds: range, mixes: list[str], *, examples: bool) -> list[str]:
    """Return the names of all programs: `random 13/cores`, `example heat/cores`, `even heat/cores`."""
    found = [f"{kind} {stem}/{mix}" for kind in POLICIES for stem in SIZES for mix in mixes] if examples else []
    return [f"random {seed}/{mix}" for seed in seeds for mix in mixes_of(seed) if mix in mixes] + found


def carried_out(name: str) -> tuple[str, str, list[Become]]:
    """Run the program of that name; return how it ended, what it saw, and what it became."""
    what, _, mix = name.partition("/")
    kind, _, which = what.partition(" ")
    program = program_of(mix, int(which)) if kind == "random" else None
    forget()
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        run = Run(Path(folder), program.seed if program is not None else crc32(which.encode()))
        ended: BaseException | None = None
        with _quiet():
            try:
                if program is not None:
                    _random(run, program)
                else:
                    _example(run, kind, which, mix)
            except Exception as error:
                ended = error
            outcome = _outcome(ended)
            if ended is not None:
                ended.__traceback__ = None
            del ended
        return outcome, run.seen, run.became()


def record_of(name: str) -> Row:
    """Run the program of that name, and return its record."""
    return record(name, *carried_out(name))


def told(name: str) -> Iterator[str]:
    """Yield what the program of that name is and became, line by line."""
    what, _, mix = name.partition("/")
    if what.startswith("random "):
        program = program_of(mix, int(what.removeprefix("random ")))
        yield f"options {program.options}"
        for source in program.sources():
            yield from source.splitlines()
    outcome, seen, runs = carried_out(name)
    yield f"outcome {outcome}, seen {seen}"
    for run in runs:
        yield from (f"  {key}: {value}" for key, value in {**run.counts, **run.ended}.items())
        yield from (f"  part {part}" for part in run.parts)
        for number, node in enumerate(run.nodes):
            needs = set(run.feeds[number])
            yield f"  {node}: " + ", ".join(
                f"{run.nodes[other]}{'' if other in needs else ' (after)'}" for other in run.before[number]
            )
