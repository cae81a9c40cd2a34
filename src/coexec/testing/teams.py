"""Ranks as threads of one process, as a program sees them: each opens runtimes of its own, and messages go through memory.

Before: cluster/loopback.py, team.py, here.py.  After: tests.  Everything but the library that carries messages is real.

    def program():
        with cx.Runtime("cpu:0"):
            return float(cx.sum(cx.ones(1000)))

    assert on_teams(3, program) == [1000.0] * 3
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..cluster.endpoint import Endpoint
from ..cluster.here import member
from ..cluster.loopback import loopback
from ..cluster.team import Team
from ..cluster.transport import Transport
from ..errors import ClusterError
from .transports import on_ranks

Result = TypeVar("Result")


def on_teams(ranks: int, program: Callable[[], Result]) -> list[Result]:
    """Run a program on so many ranks, each a thread; return what each returned, or raise the first error of all.

    A rank that raises tells the others, as the end of its process would.
    """

    def run(transport: Transport) -> Result:
        assert isinstance(transport, Endpoint)
        team = Team(transport)
        try:
            with member(team):
                found = program()
            transport.close()
        except BaseException as error:
            transport.abort(f"{type(error).__name__}: {error}")
            with suppress(ClusterError):
                transport.close()
            raise
        finally:
            team.close()
        return found

    return on_ranks(loopback(ranks), run)
