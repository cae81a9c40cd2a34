"""Slices that go backwards between bounds: NumPy's elements at every size that the trace takes, or a reason."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from coexec.compile.reference import Meaning
from coexec.compile.refused import Untraceable
from coexec.compile.trace import trace

BOUNDS = (None, 0, 1, 3, 5, 9, 20, -1, -2, -4, -7, -20)


@pytest.mark.parametrize("step", [-1, -2, -3])
def test_slices_that_go_backwards_show_numpys_elements(step: int) -> None:
    shown = served = 0
    refused: list[tuple[int | None, int | None]] = []
    for start, stop in product(BOUNDS, BOUNDS):

        def body(x, out, start=start, stop=stop):
            part = x[start:stop:step]
            out[: len(part)] = part

        x = np.arange(1.0, 9.0)
        try:
            traced = trace(body, {"x": x, "out": np.zeros(40), "start": start, "stop": stop}, ("out",))
        except Untraceable:
            refused.append((start, stop))
            continue
        shown += 1
        for size in (8, 6, 7, 10, 21, 3, 1):
            x, wanted = np.arange(1.0, 1.0 + size), np.zeros(40)
            given = {"x": x, "out": np.zeros(40), "start": start, "stop": stop}
            meaning = Meaning(traced, given)
            if meaning.missed():
                assert size != 8, (start, stop, step, meaning.missed())
                continue
            served += size != 8
            body(x, wanted)
            np.testing.assert_array_equal(meaning.run()["out"], wanted, f"{start}:{stop}:{step} of {size}")
    assert all(np.arange(8)[start:stop:step].size == 0 for start, stop in refused)
    assert shown > 60 and served > 2 * shown
