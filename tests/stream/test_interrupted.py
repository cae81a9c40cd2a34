"""Ctrl-C while a stream is under way: it is closed at whatever moment, no thread is left, and the runtime stays usable."""

from __future__ import annotations

import _thread
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import coexec as cx
from tests.stream.functions import items, reads_inside, weights
from tests.stream.test_faults import left_behind
from tests.stream.test_results import opened


def test_an_interrupt_ends_the_stream_and_leaves_the_runtime_usable() -> None:
    def source() -> Iterator[Any]:
        yield from items(5)
        raise KeyboardInterrupt

    with opened(devices="cpu:0,cpu:1"):
        pipe = cx.Pipeline(reads_inside, w=weights())
        with pytest.raises(KeyboardInterrupt):
            pipe.map(source(), ahead=3)
        assert left_behind() == []
        assert len(pipe.map(items(3))) == 3


def test_a_key_that_is_pressed_while_items_are_under_way_ends_the_stream() -> None:
    @cx.kernel(x=cx.read, y=cx.write)
    def pressed(x: Any, y: Any) -> None:
        if x[0, 0] == 4:
            _thread.interrupt_main()
        y[...] = x

    def fn(item: Any, w: Any) -> Any:
        y = cx.empty(item.shape, item.dtype)
        pressed(item, y)
        return cx.matmul(y, w), float(y[0, 0])

    with opened(devices="cpu:0,cpu:1") as runtime:
        pipe = cx.Pipeline(fn, w=weights())
        pipe.plan(np.zeros((16, 16), np.float32))
        stream = pipe.stream(items(2000), ahead=3)
        with pytest.raises(KeyboardInterrupt):
            list(stream)
        assert stream.closed and left_behind() == []
        assert 0 <= stream.position < 1999
        assert len(pipe.map(items(3))) == 3
        cx.wait()
        assert runtime._driver.executor.engine.idle


@pytest.mark.parametrize("moment", ["asked", "left"])
def test_a_key_that_is_pressed_when_the_consumer_asks_or_is_answered_ends_the_stream(moment: str) -> None:
    class Pressing:
        """Stands for the stream's watch, and presses a key at the third result."""

        def __init__(self, watch: Any) -> None:
            self.watch, self.calls = watch, 0

        def asked(self) -> None:
            self.watch.asked()
            self.press("asked")

        def left(self) -> None:
            self.watch.left()
            self.press("left")

        def press(self, now: str) -> None:
            self.calls += now == moment
            if now == moment and self.calls == 3:
                _thread.interrupt_main()
                len("here the handler is called")

    with opened(devices="cpu:0,cpu:1") as runtime:
        pipe = cx.Pipeline(reads_inside, w=weights())
        stream = pipe.stream(items(20), ahead=3)
        stream.consumer = Pressing(stream.consumer)
        with pytest.raises(KeyboardInterrupt):
            list(stream)
        assert stream.closed and left_behind() == []
        assert list(stream) == []
        cx.wait()
        assert runtime._driver.executor.engine.idle
