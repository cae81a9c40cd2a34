"""`coexec run -n`: a script on several ranks, started by this environment's mpiexec, by coexec itself, by Ray or by Dask.

Before: script.py, run.py, cluster/.  After: app.py.  What ranks have to say to each other is theirs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from ..cluster.ending import EXIT_CODE
from ..cluster.launching import beside, mpi_command, mpi_environment, python_command
from ..cluster.rank import ENDS, failures
from ..errors import ClusterError, ConfigError, unknown_name
from .output import emit, say
from .run import ProgramRun, check, environment
from .script import run_child

Starter = Callable[[int, Sequence[str], Mapping[str, str]], int]
"""Runs a command on so many ranks and returns an exit code."""


def execute_on_ranks(request: ProgramRun, ranks: int, on: str | None, restarts: int = 0) -> None:
    """Run the script on so many ranks and leave with its exit code: that of the first rank that failed.

    After a rank was lost, all of them are started again, up to so many times: the program goes on from its checkpoint.
    """
    if restarts < 0:
        raise ConfigError(f"--restart {restarts}: give how often ranks may be started again, 0 for never")
    if ranks < 1:
        raise ConfigError(f"-n {ranks}: 1 rank is the least")
    if on is not None and on not in STARTERS:
        raise unknown_name("starter of ranks", on, list(STARTERS))
    check(request)
    command = beside(python_command(request.script, request.arguments))
    with _to_stderr() if request.json else nullcontext():
        start, environ = STARTERS[on] if on else _here, environment(request, os.environ)
        code = start(ranks, command, environ)
        for left in range(restarts, 0, -1):
            if not _lost(code):
                break
            say(f"coexec: a rank was lost (exit code {code}); all are started again, {left - 1} times more if need be")
            code = start(ranks, command, environ)
    if request.json:
        emit({"script": str(request.script), "ranks": ranks, "exit_code": code, "trace": str(request.trace)})
    raise SystemExit(code)


def _lost(code: int) -> bool:
    """Tell whether a program ended because a rank was lost: by a signal nobody at the terminal sent, or as ranks end then."""
    asked = (128 + signal.SIGINT, 128 + signal.SIGTERM)
    return code in (EXIT_CODE, signal.SIGKILL) or (code > 128 and code not in asked)


@contextmanager
def _to_stderr() -> Iterator[None]:
    """Let whatever is printed, by whomever, go to stderr."""
    sys.stdout.flush()
    before = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(before, 1)
        os.close(before)


def _here(ranks: int, command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run with MPI if this environment has one, else with gloo."""
    try:
        mpi_command(ranks, command)
    except ClusterError as missing:
        say(f"coexec: gloo joins the ranks, since {missing}")
        return _gloo(ranks, command, environ)
    return _mpi(ranks, command, environ)


def _mpi(ranks: int, command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run with mpiexec, whose exit code says little: it mixes those of all ranks, and is 0 for a rank that left with 0."""
    with TemporaryDirectory(prefix="coexec-") as folder:
        code = run_child(mpi_command(ranks, command), {**mpi_environment(environ), ENDS: folder})
        failed = failures(Path(folder))
    for end in failed:
        say(f"coexec: rank {end.rank} ended with exit code {end.code}")
    return failed[0].code if failed else code


def _gloo(ranks: int, command: Sequence[str], environ: Mapping[str, str]) -> int:
    from ..cluster.starting import Local

    with TemporaryDirectory(prefix="coexec-") as folder:
        return Local(lambda text: say(f"coexec: {text}")).run(ranks, command, {**environ, ENDS: folder})


def _ray(ranks: int, command: Sequence[str], environ: Mapping[str, str]) -> int:
    from ..cluster.engines import on_ray

    return _first("ray", on_ray(ranks, command, environ))


def _dask(ranks: int, command: Sequence[str], environ: Mapping[str, str]) -> int:
    from ..cluster.engines import on_dask

    return _first("dask", on_dask(ranks, command, environ))


def _first(where: str, codes: Sequence[int]) -> int:
    """Say which ranks failed, and return the exit code of the first one."""
    for rank, code in enumerate(codes):
        if code:
            say(f"coexec: rank {rank} on {where} ended with exit code {code}")
    return next((code for code in codes if code), 0)


STARTERS: dict[str, Starter] = {"mpi": _mpi, "gloo": _gloo, "ray": _ray, "dask": _dask}
