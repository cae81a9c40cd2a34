"""Range mappers that users write: several boxes end to end, and what debug mode says of wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError, ProgramError, TaskFailed
from coexec.geometry import Box
from coexec.program.user_mappers import as_mapper, not_monotonic
from coexec.testing import check_kernel
from tests.devices import TWO


@pytest.fixture
def runtime():
    with cx.Runtime(TWO, debug=True) as opened:
        yield opened


def five_points(border):
    @cx.kernel(split=(0, 1), u=cx.read(cx.halo(1, border=border, shape="axes")), out=cx.update)
    def step(u, out):
        out[...] = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]

    return step


@pytest.mark.parametrize("border", ["inside", "wrap", "edge", "reflect", 2.0])
@pytest.mark.parametrize("debug", [False, True])
def test_a_stencil_without_diagonals_is_right_in_parts(border, debug) -> None:
    u = np.random.default_rng(1).random((9, 12))
    how = {"mode": border} if isinstance(border, str) else {"mode": "constant", "constant_values": border}
    wide = u if border == "inside" else np.pad(u, 1, **how)
    expected = np.full_like(u, 7.0)
    inner = expected[1:-1, 1:-1] if border == "inside" else expected
    five_points(border).function(wide, inner)
    for policy in ("even", "static"):
        with cx.Runtime(TWO, debug=debug):
            out = cx.full(u.shape, 7.0)
            five_points(border).using(devices=TWO, policy=policy)(cx.array(u), out)
            np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-13)
    check_kernel(five_points(border), u, np.zeros_like(u))


def test_debug_mode_poisons_the_corners_that_a_body_should_not_see(runtime) -> None:
    @cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside", shape="axes")), out=cx.update)
    def diagonal(u, out):
        out[...] = u[:-2, :-2]

    out = cx.zeros((6, 6))
    diagonal(cx.ones((6, 6)), out)
    assert np.isnan(np.asarray(out)[1, 1])


def halves(chunk):
    half = chunk.array_shape[0] // 2
    return [slice(chunk.lo[0], chunk.hi[0]), slice(half + chunk.lo[0], half + chunk.hi[0])]


@pytest.mark.parametrize("debug", [False, True])
def test_parts_may_write_boxes_between_those_of_others(debug) -> None:
    @cx.kernel(split=0, over="n", x=cx.update(halves))
    def both(x, n, chunk):
        rows = chunk.shape[0]
        x[:rows] += 1
        x[len(x) - rows :] += 2

    with cx.Runtime(TWO, debug=debug):
        x = cx.array(np.arange(12.0))
        assert len(both.using(devices=TWO, policy="even").plan(x, 6).parts) == 2
        both.using(devices=TWO, policy="even")(x, 6)
        assert np.asarray(x).tolist() == [i + (1 if i < 6 else 2) for i in range(12)]


def test_debug_mode_finds_a_body_that_writes_between_its_boxes(runtime) -> None:
    @cx.kernel(split=0, over="n", x=cx.update(lambda c: [slice(0, 1), slice(4, 5)]))
    def all_of_it(x, n):
        x += 1

    with pytest.raises(TaskFailed, match=r"wrote element \(1,\) of 'x', which lies between the boxes") as caught:
        all_of_it(cx.zeros(6), 1).result()
    assert isinstance(caught.value, ProgramError)


def test_even_gives_each_point_its_slab(runtime) -> None:
    @cx.kernel(split=0, over="parts", x=cx.read(cx.even(2)), out=cx.write(cx.even(2)))
    def scaled(x, out, parts, chunk):
        out[...] = x * 10

    x = np.arange(22.0).reshape(11, 2)
    out = cx.empty((11, 2))
    assert len(scaled.using(devices=TWO, policy="even").plan(cx.array(x), out, 4).parts) == 2
    scaled.using(devices=TWO, policy="even")(cx.array(x), out, 4)
    np.testing.assert_array_equal(np.asarray(out), 10 * x)


def test_debug_mode_names_the_chunk_whose_part_maps_outside_it(runtime) -> None:
    def growing(chunk):  # the smaller the chunk, the wider its halo
        return slice(chunk.lo[0] - 16 // (chunk.hi[0] - chunk.lo[0]), chunk.hi[0])

    @cx.kernel(split=0, x=cx.read(growing), out=cx.write)
    def use(x, out):
        out[...] = 0

    message = r"kernel 'use': range mapper growing of 'x' is wrong: chunk \[.*\] maps to .*, but its part \[.*\] to"
    with pytest.raises(ArgumentError, match=message):
        use(cx.zeros(16), cx.zeros(16))
    assert not_monotonic(as_mapper(growing), Box((3,), (3,)), (16,), (16,)) == ""  # nothing to look at
    with cx.Runtime(TWO):
        use(cx.zeros(16), cx.zeros(16))  # nobody looks


def test_a_function_that_raises_does_so_at_the_call() -> None:
    def broken(chunk):
        raise KeyError("no such row")

    @cx.kernel(split=0, x=cx.read(broken), out=cx.write)
    def use(x, out):
        out[...] = 0

    with cx.Runtime(TWO), pytest.raises(KeyError, match="no such row"):
        use(cx.zeros(4), cx.zeros(4))
