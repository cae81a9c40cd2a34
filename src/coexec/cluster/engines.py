"""Ranks on clusters that users already have: Ray and Dask place, start and watch them; the ranks talk over gloo.

Before: launching.py, launched.py.  After: cli/.  We manage no cluster: each rank is a process that one of their workers runs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import ClusterError, ConfigError
from .launched import MEET, RANK, SIZE

KEPT = ("COEXEC_", "CX_", "PYTHONPATH", "OMP_", "OPENBLAS_", "MKL_")
"""Beginnings of the variables that a rank gets from where it was started; the rest are its own machine's."""


def meeting_place() -> str:
    """Return where ranks can meet on this machine. Called where rank 0 will run."""
    address = _address()
    with socket.socket() as free:
        free.bind((address, 0))
        return f"tcp:{address}:{free.getsockname()[1]}"


def _address() -> str:
    """Return the address by which others reach this machine; without a network, the one that only itself knows."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # sends nothing: it only tells which interface would be used
        except OSError:
            return "127.0.0.1"
        return str(asked.getsockname()[0])


def run_rank(rank: int, size: int, meet: str, command: Sequence[str], given: Mapping[str, str]) -> int:
    """Run a command as one rank, and return its exit code, 128 + n if signal n ended it. Called on the worker."""
    own = {RANK: str(rank), SIZE: str(size), MEET: meet}
    program = subprocess.Popen(list(command), env={**os.environ, **given, **own})  # noqa: S603
    try:
        code = program.wait()
    except BaseException:
        program.send_signal(signal.SIGTERM)
        raise
    return code if code >= 0 else 128 - code


def kept(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that go to the ranks."""
    return {name: value for name, value in environ.items() if name.startswith(KEPT)}


def on_ray(ranks: int, command: Sequence[str], environ: Mapping[str, str]) -> list[int]:
    """Run a command on so many ranks in Ray's workers and return their exit codes. RAY_ADDRESS names the cluster."""
    ray = _import("ray")
    own = not environ.get("RAY_ADDRESS")
    quiet = (
        {"log_to_driver": True, "include_dashboard": False, "num_cpus": max(ranks, os.cpu_count() or 1)} if own else {}
    )
    ray.init(**quiet)
    try:
        room = int(ray.cluster_resources().get("CPU", 0))
        _check_room(ranks, room, "the Ray cluster", "CPUs")
        seats = [ray.remote(num_cpus=1, max_restarts=0)(RankSeat).remote() for _ in range(ranks)]
        meet = ray.get(seats[0].meeting_place.remote())
        codes = [seat.run.remote(rank, ranks, meet, command, kept(environ)) for rank, seat in enumerate(seats)]
        return [_code(partial(ray.get, code), ray.exceptions.RayError) for code in codes]
    finally:
        ray.shutdown()


class RankSeat:
    """A worker of Ray that runs one rank."""

    def meeting_place(self) -> str:
        """Return where ranks can meet."""
        return meeting_place()

    def run(self, rank: int, size: int, meet: str, command: Sequence[str], given: Mapping[str, str]) -> int:
        """Run a command as one rank, and return its exit code."""
        return run_rank(rank, size, meet, command, given)


def on_dask(ranks: int, command: Sequence[str], environ: Mapping[str, str]) -> list[int]:
    """Run a command on so many ranks in Dask's workers and return their exit codes.

    DASK_SCHEDULER_ADDRESS names the cluster; without it, one of this machine is started.
    """
    distributed = _import("distributed", "dask")
    address = environ.get("DASK_SCHEDULER_ADDRESS")
    if address:
        where: Any = address
    else:
        where = distributed.LocalCluster(n_workers=ranks, threads_per_worker=1, dashboard_address=None)
    try:
        with distributed.Client(where) as client:
            threads = client.scheduler_info(n_workers=-1)["workers"]
            seats = [worker for worker, about in threads.items() for _ in range(about["nthreads"])]
            _check_room(ranks, len(seats), "the Dask cluster", "threads")
            chosen = _spread(seats, ranks)
            meet = client.submit(meeting_place, workers=[chosen[0]], pure=False).result()
            given = kept(environ)
            codes = [
                client.submit(run_rank, rank, ranks, meet, list(command), given, workers=[seat], pure=False, retries=0)
                for rank, seat in enumerate(chosen)
            ]
            return [_code(future.result, Exception) for future in codes]
    finally:
        if not address:
            where.close()


def _spread(seats: Sequence[str], ranks: int) -> list[str]:
    """Return a seat for each rank: every worker's first, then every worker's second, ..."""
    taken: dict[str, int] = {}
    order = []
    for seat in seats:
        taken[seat] = taken.get(seat, 0) + 1
        order.append((taken[seat], seat))
    return [seat for _, seat in sorted(order, key=lambda entry: entry[0])][:ranks]


def _code(result: Callable[[], int], lost: type[BaseException]) -> int:
    """Return the exit code of a rank; that of a killed process if its worker is gone."""
    try:
        return result()
    except lost:
        return 128 + signal.SIGKILL


def _check_room(ranks: int, room: int, where: str, what: str) -> None:
    if ranks < 1:
        raise ConfigError(f"{ranks} ranks cannot do anything; 1 is the least")
    if ranks > room:
        raise ConfigError(
            f"{ranks} ranks must run at once, and {where} has {room} {what}; start more workers, or fewer ranks"
        )


def _import(name: str, extra: str = "") -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ClusterError(f"{name} is not installed here ({error}); pip install 'coexec[{extra or name}]'") from error
