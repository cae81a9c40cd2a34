"""How many threads libraries use: limited, held at one, given back."""

from __future__ import annotations

import pytest

from coexec.backend.library_threads import LibraryThreads
from coexec.errors import ConfigError


class Library:
    """A library that may refuse."""

    internal_api = "blas"

    def __init__(self, *, obeys: bool = True) -> None:
        self.threads, self._obeys = 4, obeys

    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, count: int) -> None:
        if self._obeys:
            self.threads = count


def limits(library: Library) -> LibraryThreads:
    made = LibraryThreads()
    made._libraries = [(library, 4)]
    return made


def test_threads_are_limited_and_given_back() -> None:
    library = Library()
    threads = limits(library)
    threads.limit()
    assert library.threads == 1
    threads.restore()
    assert library.threads == 4


def test_nobody_gives_threads_back_while_they_are_held() -> None:
    library = Library()
    holder, other = limits(library), limits(library)
    holder.hold()
    other.limit()
    other.restore()
    holder.restore()
    assert library.threads == 1
    holder.let_go()
    assert library.threads == 4


def test_a_library_that_refuses_is_said_and_nothing_is_held() -> None:
    stubborn, obedient = Library(obeys=False), Library()
    with pytest.raises(ConfigError, match="blas to use one thread, which it refuses here"):
        limits(stubborn).hold()
    threads = limits(obedient)
    threads.limit()
    threads.restore()
    assert obedient.threads == 4
