"""Operations counted in the graph of a body, at any size, without a compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coexec.compile.counting import DIVISION, DRAWN, EXPONENTIAL, Counts
from coexec.geometry import Box
from coexec.program.chunk import ChunkInfo


def counts(text: str, names: str, writes: tuple[str, ...] = ("out",)) -> Counts:
    space: dict[str, Any] = {"np": np}
    exec(f"def body({names}):\n    {text}\n", space)
    return Counts(space["body"], writes, ())


def arrays(**shapes: Any) -> dict[str, Any]:
    return {name: np.broadcast_to(0.0, shape) for name, shape in shapes.items()}


def test_operations_of_elements_are_counted_per_element() -> None:
    found = counts("out[...] = np.exp(x) * y + x / 2", "x, y, out")
    for n in (5, 1000, 123_456):
        assert found.of(arrays(x=(n,), y=(n,), out=(n,))) == n * (EXPONENTIAL + 2 + DIVISION)


def test_a_value_that_is_used_twice_is_computed_once() -> None:
    assert counts("t = x * 2; out[...] = t + t", "x, out").of(arrays(x=(10,), out=(10,))) == 20


def test_pairs_and_sums_are_counted_by_their_own_shapes() -> None:
    found = counts("out[...] = (x[:, None] * y[None, :]).sum(axis=1)", "x, y, out")
    assert found.of(arrays(x=(30,), y=(500,), out=(30,))) == 2 * 30 * 500


@pytest.mark.parametrize(("m", "k", "n"), [(3, 4, 5), (100, 200, 300)])
def test_products_of_matrices_of_any_size_are_counted(m: int, k: int, n: int) -> None:
    found = counts("out[...] = a @ b", "a, b, out")
    assert found.of(arrays(a=(m, k), b=(k, n), out=(m, n))) == 2 * m * k * n


def test_a_loop_over_blocks_is_counted_for_every_number_of_rows() -> None:
    found = counts("for lo in range(0, len(x), 16): out[lo : lo + 16] = x[lo : lo + 16] * 2 + 1", "x, out")
    assert [found.of(arrays(x=(n, 3), out=(n, 3))) for n in (7, 16, 1000)] == [42, 96, 6000]


def test_halos_count_what_is_written() -> None:
    found = counts("out[...] = u[1:-1] + 0.5 * (u[:-2] + u[2:])", "u, out")
    assert found.of(arrays(u=(102,), out=(100,))) == 300


def test_random_numbers_are_counted_and_their_chunk_may_lie_anywhere() -> None:
    found = counts("out[...] = chunk.rng(seed).random() * 2", "out, seed, chunk")
    for low in (0, 7):
        box = Box((low,), (low + 50,))
        given = arrays(out=(50,)) | {"seed": low, "chunk": ChunkInfo(box, Box((0,), (100,)), {"out": box})}
        assert found.of(given) == 50 * (DRAWN["uniform"] + 1)


def test_a_body_that_decides_by_its_size_is_counted_for_both() -> None:
    found = counts("out[...] = x * 2 + 1 if len(x) > 100 else x", "x, out")
    assert [found.of(arrays(x=(n,), out=(n,))) for n in (50, 200, 60, 300)] == [0, 400, 0, 600]


@pytest.mark.parametrize(
    "text", ["out[...] = np.sort(x)", "print(x)", "out[...] = x if x[0] > 1 else 2", "out[:] = x[9]"]
)
def test_what_cannot_be_read_is_unknown_and_not_tried_again(text: str) -> None:
    found = counts(text, "x, out")
    assert found.of(arrays(x=(5,), out=(5,))) is None
    assert found.of(arrays(x=(5,), out=(5,))) is None


def test_scalars_may_be_given_and_decide() -> None:
    found = counts("out[...] = x * k if k > 1 else x", "x, out, k")
    assert [found.of(arrays(x=(8,), out=(8,)) | {"k": k}) for k in (3, 0.5, 1, 2)] == [8, 0, 0, 8]
