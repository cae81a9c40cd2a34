"""A program without a launcher is rank 0 of 1; what a launcher asks for and cannot be had is said with the remedy."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from coexec.cluster.collectives import allgather, barrier
from coexec.cluster.opening import interface_for, open_transport
from coexec.errors import ClusterError, ConfigError, RankAborted, UnknownName


def test_without_a_launcher_a_process_is_alone_and_needs_no_library() -> None:
    before = sys.excepthook
    transport = open_transport({})
    assert (transport.rank, transport.size, transport.broken) == (0, 1, None)
    assert transport.hosts[0]
    barrier(transport)
    assert allgather(transport, b"me") == [b"me"]
    assert sys.excepthook != before
    transport.close()
    assert sys.excepthook == before
    assert "mpi4py" not in sys.modules


def test_an_exception_that_ends_the_program_is_told_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    transport = open_transport({})
    error = ZeroDivisionError("by nothing")
    sys.excepthook(ZeroDivisionError, error, None)
    assert "by nothing" in capsys.readouterr().err
    with pytest.raises(RankAborted, match=r"rank 0 on .* gave up: ZeroDivisionError: by nothing"):
        transport.close()


@pytest.mark.skipif(find_spec("mpi4py") is not None, reason="mpi4py is there")
def test_a_missing_mpi_is_said_with_its_extra() -> None:
    with pytest.raises(ClusterError, match=r"pip install 'coexec\[mpi\]'"):
        open_transport({"PMI_RANK": "0", "PMI_SIZE": "2"})


def test_a_place_to_meet_is_checked() -> None:
    rank = {"CX_RANK": "0", "CX_SIZE": "2"}
    with pytest.raises(UnknownName, match=r"unknown way for gloo to meet 'fil'; did you mean 'file'"):
        open_transport({**rank, "CX_MEET": "fil:x"})
    with pytest.raises(ConfigError, match="write tcp:HOST:PORT"):
        open_transport({**rank, "CX_MEET": "tcp:29500"})


def test_gloo_uses_the_interface_that_is_named() -> None:
    assert interface_for("tcp", {}) == "" and interface_for("tcp", {"GLOO_SOCKET_IFNAME": " eth1,eth2"}) == "eth1"
    assert interface_for("file", {"GLOO_SOCKET_IFNAME": "eth1"}) == "eth1"
    assert interface_for("file", {}) == ("lo" if sys.platform == "linux" else "")
