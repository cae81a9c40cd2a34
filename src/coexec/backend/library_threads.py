"""How many threads BLAS and OpenMP use: one while narrow devices work, the user's number otherwise.

Before: nothing.  After: backend/cpu.py.  Knows no device. The setting is the whole process's, so it is changed only
by a thread that is submitting or waiting, when no kernel runs.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import ConfigError


class LibraryThreads:
    """Sets and restores the libraries' thread limits."""

    _held: ClassVar[set[int]] = set()  # those, by id, that let no library have more than one thread for the time being

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
        if self.limited and not self._held:
            self.limited = False
            for library, before in self._found():
                if before > 1:
                    library.set_num_threads(before)

    def hold(self) -> None:
        """Let every library call use one thread until `let_go`, whoever else asks for more: how many changes bits."""
        self.limit()
        more = [library for library, _ in self._found() if (library.get_num_threads() or 1) > 1]
        if more:
            self.restore()
            raise ConfigError(
                f"reproducible=True needs {more[0].internal_api} to use one thread, which it refuses here: libraries may obey "
                "the main thread only; open the runtime there, or start with OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1"
            )
        self._held.add(id(self))

    def let_go(self) -> None:
        """Let others decide again, and give the libraries back the threads they had."""
        self._held.discard(id(self))
        self.restore()
