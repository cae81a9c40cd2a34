"""Ranks as threads keep the transport contract, whatever the size of parts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from coexec.cluster.endpoint import Endpoint
from coexec.cluster.loopback import loopback
from coexec.cluster.transport import Transport
from coexec.errors import ConfigError
from coexec.testing import check_transport, on_ranks


class Opening:
    """Gives each of several threads its rank of one loop after another."""

    def __init__(self, size: int, part: int) -> None:
        self.size, self.part = size, part
        self._loops: list[list[Endpoint]] = []
        self._lock = threading.Lock()

    def of(self, rank: int) -> Callable[[], Transport]:
        turns = iter(range(1000))

        def open() -> Transport:
            turn = next(turns)
            with self._lock:
                if turn == len(self._loops):
                    self._loops.append(loopback(self.size, part=self.part))
                return self._loops[turn][rank]

        return open


@pytest.mark.parametrize(("size", "part"), [(2, 10_000), (3, 3001), (4, 1 << 20)])
def test_ranks_as_threads_keep_the_contract(size: int, part: int) -> None:
    opening = Opening(size, part)
    first = loopback(size)
    on_ranks(first, lambda transport: check_transport(opening.of(transport.rank)))
    on_ranks(first, lambda transport: transport.close())


def test_a_single_rank_opens_and_closes_alone() -> None:
    (transport,) = loopback(1)
    assert (transport.rank, transport.size) == (0, 1)
    transport.close()


def test_no_rank_is_no_cluster() -> None:
    with pytest.raises(ConfigError, match="0 ranks cannot do anything"):
        loopback(0)
