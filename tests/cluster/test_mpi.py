"""What MPI allows and says, without one: threads that may call it, how many ranks it sees, and whether it is over."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from coexec.cluster import mpi
from coexec.cluster.mpi import MpiCarrier
from coexec.errors import ClusterError, PerformanceWarning

SINGLE, FUNNELED, SERIALIZED, MULTIPLE = range(4)


class Library:
    """An MPI that grants some level of threads."""

    THREAD_SERIALIZED, THREAD_MULTIPLE = SERIALIZED, MULTIPLE
    ERRORS_RETURN, ANY_SOURCE, BYTE = range(3)

    def __init__(self, grants: int, *, initialised: bool = False, finalised: bool = False, size: int = 2) -> None:
        self.asked: list[int] = []
        self._grants, self._initialised, self._finalised = grants, initialised, finalised
        own = SimpleNamespace(Set_errhandler=lambda handler: None, Irecv=lambda *arguments: None)
        self.COMM_WORLD = SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: size, Dup=lambda: own)

    def Is_finalized(self) -> bool:
        return self._finalised

    def Is_initialized(self) -> bool:
        return self._initialised

    def Is_thread_main(self) -> bool:
        return False

    def Init_thread(self, level: int) -> None:
        self.asked.append(level)

    def Query_thread(self) -> int:
        return self._grants

    def Get_library_version(self) -> str:
        return "Some MPI 1.0\nbuilt somewhere"


def started(monkeypatch: pytest.MonkeyPatch, library: Library, expected: int = 2) -> MpiCarrier:
    monkeypatch.setattr(mpi, "load", lambda: library)
    monkeypatch.setattr("coexec.cluster.mpi.atexit.register", lambda *arguments: None)
    carrier = MpiCarrier(expected)
    events: Any = None
    carrier.start(events)
    return carrier


@pytest.mark.parametrize("grants", [SERIALIZED, MULTIPLE])
def test_an_mpi_that_any_thread_may_call_is_called_on_any(grants: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(grants)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert started(monkeypatch, library).shared
    assert library.asked == [MULTIPLE]


@pytest.mark.parametrize("grants", [SINGLE, FUNNELED])
def test_an_mpi_that_grants_one_thread_works_and_what_it_costs_is_said(
    grants: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(PerformanceWarning, match=r"Some MPI 1\.0\) may be called on one thread only.*20 to 400 us"):
        carrier = started(monkeypatch, Library(grants))
    assert not carrier.shared and (carrier.rank, carrier.size) == (0, 2)


def test_an_mpi_that_the_program_has_initialised_for_its_own_thread_alone_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ClusterError, match=r"import coexec\.cluster first, or initialise MPI with THREAD_SERIALIZED"):
        started(monkeypatch, Library(FUNNELED, initialised=True))


def test_an_mpi_of_another_launcher_and_one_that_is_over_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match=r"the launcher says 2 ranks, and MPI \(Some MPI 1.0\) sees 1"):
        started(monkeypatch, Library(MULTIPLE, size=1))
    with pytest.raises(ClusterError, match="MPI was finalised in this process"):
        started(monkeypatch, Library(MULTIPLE, finalised=True))
