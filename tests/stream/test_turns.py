"""Functions that wait in the middle: a key that is pressed while one is begun leaves no thread behind."""

from __future__ import annotations

import _thread
import threading
from typing import Any

import pytest

import coexec as cx
from coexec.stream.turns import StreamTurn


def test_a_key_that_is_pressed_while_the_thread_starts_leaves_no_thread_behind(monkeypatch: Any) -> None:
    joined = threading.Event()

    class HeldAtItsEnd(threading.Semaphore):
        """Keeps the thread that has released it, until it is joined."""

        def release(self, n: int = 1) -> None:
            super().release(n)
            joined.wait()

    with cx.Runtime("cpu:0") as runtime:
        turn = StreamTurn(lambda: 1, "coexec-item-0", runtime._driver.signals.deferred)
        start, join = turn._thread.start, turn._thread.join

        def pressed() -> None:
            start()
            _thread.interrupt_main()
            len("here the handler is called")

        def joining() -> None:
            joined.set()
            join()

        turn._back = HeldAtItsEnd(0)
        monkeypatch.setattr(turn._thread, "start", pressed)
        monkeypatch.setattr(turn._thread, "join", joining)
        try:
            with pytest.raises(KeyboardInterrupt):
                turn.resume()
            assert turn.over and not turn._thread.is_alive()
        finally:
            joined.set()
