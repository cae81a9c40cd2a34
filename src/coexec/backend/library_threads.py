"""How many threads BLAS and OpenMP use: one while narrow devices work, the user's number otherwise.

Before: nothing.  After: backend/cpu.py.  Knows no device. The setting is the whole process's, so it is changed only
by a thread that is submitting or waiting, when no kernel runs.
"""

from __future__ import annotations

from typing import Any


class LibraryThreads:
    """Sets and restores the libraries' thread limits."""

    def __init__(self) -> None:
        self._libraries: list[tuple[Any, int]] | None = None
        self.limited = False

    def _found(self) -> list[tuple[Any, int]]:
        if self._libraries is None:
            from threadpoolctl import ThreadpoolController

            controllers = ThreadpoolController().lib_controllers
            self._libraries = [(library, library.get_num_threads() or 1) for library in controllers]
        return self._libraries

    def limit(self) -> None:
        """Let every library call use one thread."""
        if not self.limited:
            self.limited = True
            for library, before in self._found():
                if before > 1:
                    library.set_num_threads(1)

    def restore(self) -> None:
        """Give the libraries back the threads they had."""
        if self.limited:
            self.limited = False
            for library, before in self._found():
                if before > 1:
                    library.set_num_threads(before)
