"""Arrays that no machine could hold are refused when they are made; smaller ones are virtual, however large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ShapeError


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (10**30, "larger than any memory"),
        ((1 << 40, 1 << 40), "larger than any memory"),
        ((0, 10**30), "larger than any memory"),
        (1 << 60, "larger than any memory"),
        ((1,) * 65, "65 axes"),
    ],
)
def test_what_no_machine_could_hold_is_refused_at_the_call(shape: Any, words: str) -> None:
    for make in (cx.zeros, cx.ones, cx.empty, lambda shape: cx.full(shape, 7.0)):
        with pytest.raises(ShapeError, match=words):
            make(shape)
    with pytest.raises(ShapeError, match="larger than any memory"):
        np.add.outer(cx.zeros(1 << 35), cx.zeros(1 << 35))
    assert cx.zeros((1 << 30, 1 << 29)).nbytes == 1 << 62  # virtual: nothing was allocated
