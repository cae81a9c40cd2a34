"""A core that takes over a sibling's kernel must not let the kernels queued behind it run too early."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coexec as cx

PATIENCE = 20.0


class Gate:
    """A body waits here; the test sees it arrive and lets it go on."""

    def __init__(self) -> None:
        self._arrived, self._open = threading.Event(), threading.Event()

    def hold(self) -> None:
        self._arrived.set()
        assert self._open.wait(PATIENCE)

    def wait_for_arrival(self) -> None:
        assert self._arrived.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()


def held(hold: Callable[[], None]) -> Any:
    @cx.kernel(x=cx.update)
    def increment(x):
        hold()
        x += 1

    return increment


@cx.kernel(x=cx.read, y=cx.write)
def copy(x, y):
    y[...] = x


@pytest.mark.parametrize("first", [0, 1])
def test_a_stolen_kernel_is_not_overtaken_by_the_one_that_needs_its_result(first):
    busy, parent = [Gate(), Gate()], Gate()
    with cx.Runtime("cpu:0,cpu:1"):
        blockers = [cx.zeros(1) for _ in busy]
        x, y = cx.zeros(1000), cx.zeros(1000)
        for number, gate in enumerate(busy):
            held(gate.hold).using(devices=f"cpu:{number}")(blockers[number])
            gate.wait_for_arrival()
        try:
            held(parent.hold)(x)
            copy(x, y)
            busy[first].open()  # this core is free now: it runs the parent, its own or its sibling's
            parent.wait_for_arrival()
            busy[1 - first].open()
            blockers[1 - first].item(0)  # that core looks for its next kernel from here on
            after = cx.zeros(1)
            held(lambda: None)(after)
            after.item(0)  # and has found one
        finally:
            for gate in (*busy, parent):
                gate.open()
        assert np.asarray(y).tolist() == [1.0] * 1000
