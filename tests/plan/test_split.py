"""Even divisions along one axis and two: tiles as the reference makes them, granules, nothing empty."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.geometry import Box, Region, whole
from coexec.plan.split import BLOCKS, LARGE_BLOCK, MOST_BLOCKS, blocks, even, even_2d, tiling
from tests.plan.planning import Planning, alike, unlike

sizes = st.integers(1, 60)


@pytest.mark.parametrize(
    ("extents", "count", "expected"),
    [
        ((64, 64), 4, (2, 2)),
        ((64, 64), 6, (3, 2)),
        ((64, 64), 8, (4, 2)),
        ((64, 64), 12, (4, 3)),
        ((64, 64), 7, (7, 1)),
        ((64, 64), 1, (1, 1)),
        ((60, 64), 6, (2, 3)),  # not nearly square: shorter edges win, 30 + 21 against 20 + 32
        ((100, 10), 6, (3, 2)),
        ((10, 100), 6, (2, 3)),
        ((1000, 10), 4, (2, 2)),  # factors close to each other come first, whatever the extents
        ((2, 64), 12, (2, 6)),  # a band per row; twelve parts as asked
        ((2, 3), 12, (2, 3)),  # there are no more
    ],
)
def test_tiles_are_as_many_as_asked_and_as_square_as_can_be(extents, count, expected) -> None:
    rows, columns = extents
    assert tiling(rows, columns, count) == expected


def test_granules_limit_how_many_tiles_there_are() -> None:
    assert tiling(64, 64, 16, granule=32) == (2, 2)
    assert tiling(64, 512, 16, granule=32) == (2, 8)


@given(sizes, sizes, st.integers(1, 20), st.integers(1, 9), st.integers(0, 1))
def test_tiles_cover_the_box_and_keep_to_granules(rows, columns, count, granule, first) -> None:
    """B62."""
    box = Box((3, 5, 1), (3 + rows, 5 + columns, 4))
    tiles = even_2d(box, first, 1 - first, count, granule)
    assert not any(tile.empty for tile in tiles) and len(tiles) <= count
    assert Region(tiles) == Region([box]) and sum(tile.volume for tile in tiles) == box.volume
    for tile in tiles:
        for axis in (0, 1):
            assert (tile.lo[axis] - box.lo[axis]) % granule == 0
    most = -(-rows // granule) * -(-columns // granule)
    assert len(tiles) == count or len(tiles) <= most


@given(sizes, st.integers(1, 20), st.integers(1, 9))
def test_parts_along_one_axis_keep_to_granules(rows, count, granule) -> None:
    """B62."""
    chunks = even(whole((rows, 3)), [0], [f"dev:{i}" for i in range(count)], granule)
    assert [chunk.device for chunk in chunks] == [f"dev:{i}" for i in range(min(count, -(-rows // granule)))]
    assert all(chunk.box.lo[0] % granule == 0 and not chunk.box.empty for chunk in chunks)
    granules = [-(-chunk.box.shape[0] // granule) for chunk in chunks]
    assert sum(chunk.box.shape[0] for chunk in chunks) == rows and max(granules) - min(granules) <= 1


def test_nothing_to_divide_has_no_parts() -> None:
    assert even_2d(whole((0, 5)), 0, 1, 4) == []
    assert even(whole((0,)), [0], ["a", "b"]) == ()


@cx.kernel(split=(0, 1), x=cx.read, y=cx.write)
def flat(x, y):
    y[...] = x


@cx.kernel(split=0, granule=8, x=cx.read, y=cx.write)
def eights(x, y):
    y[...] = x


@pytest.mark.parametrize(("devices", "tiles"), [(4, (2, 2)), (6, (3, 2)), (2, (2, 1)), (3, (3, 1))])
def test_an_even_policy_tiles_kernels_that_may_be_cut_along_two_axes(devices, tiles) -> None:
    planning = Planning(platform=alike(devices), policy="even")
    x, y = planning.on_host(1200, 1200), planning.on_host(1200, 1200)
    parts = [chunk.box for chunk in planning.plan(flat, x, y).command.chunks]
    assert [part.shape for part in parts] == [(1200 // tiles[0], 1200 // tiles[1])] * devices
    assert Region(parts) == Region([whole((1200, 1200))])


def test_an_even_policy_keeps_to_the_granules_of_devices_and_kernels() -> None:
    planning = Planning(platform=unlike(own=(False,) * 3, granule=12), policy="even")
    x, y = planning.on_host(100_000, 3), planning.on_host(100_000, 3)
    parts = [chunk.box for chunk in planning.plan(eights, x, y).command.chunks]
    assert len(parts) == 3 and all(part.lo[0] % 24 == 0 for part in parts)  # both: 24


@pytest.mark.parametrize("policy", ["static", "auto"])
@pytest.mark.parametrize("rates", [(1e6, 3e5), (1e6, 1e6, 7e5), (1e6, 1e3)])
def test_parts_of_a_kernel_with_a_granule_begin_at_its_multiples(rates, policy) -> None:
    planning = Planning(platform=unlike(own=(False,) * len(rates)), policy=policy)
    rows = 10_001
    x, y = planning.on_host(rows), planning.on_host(rows)
    planning.teach(eights, [x, y], {f"dev:{i}": rate for i, rate in enumerate(rates)})
    parts = [chunk.box for chunk in planning.plan(eights, x, y).command.chunks]
    assert all(part.lo[0] % 8 == 0 and not part.empty for part in parts)
    assert Region(parts) == Region([whole((rows,))])


def test_shares_of_weighted_work_are_whole_granules_too() -> None:
    @cx.kernel(split=0, granule=16, x=cx.read, y=cx.write, weight=lambda rows: rows + 1.0)
    def heavy(x, y):
        y[...] = x

    planning = Planning(platform=unlike())
    x, y = planning.on_host(10_000), planning.on_host(10_000)
    planning.teach(heavy, [x, y], {"dev:0": 1e6, "dev:1": 1e6})
    first, second = (chunk.box for chunk in planning.plan(heavy, x, y).command.chunks)
    assert second.lo[0] % 16 == 0 and first.hi[0] == pytest.approx(10_000 / 2**0.5, rel=0.02)


@given(st.integers(1, 1 << 21), st.integers(1, 1000))
def test_blocks_of_a_reduction_keep_to_granules(size, granule) -> None:
    parts = blocks(whole((size,)), 0, granule)
    assert Region(parts) == Region([whole((size,))])
    assert all(part.lo[0] % granule == 0 and not part.empty for part in parts)


def test_a_granule_needs_an_axis_and_a_number_from_one() -> None:
    for split, granule in ((None, 2), (0, 0)):
        with pytest.raises(cx.errors.ArgumentError, match="granule"):
            cx.kernel(y=cx.write, split=split, granule=granule)(lambda y: None)


@pytest.mark.parametrize(
    ("points", "target", "number"),
    [
        (BLOCKS * LARGE_BLOCK, 1, BLOCKS),
        (BLOCKS * LARGE_BLOCK + 1, 1, 2 * BLOCKS),
        (4 * BLOCKS * LARGE_BLOCK, 1, 4 * BLOCKS),
        (1 << 40, 1, MOST_BLOCKS),
        (1 << 40, 100, 8 * BLOCKS),  # every block has a private target: 256 of 100 numbers are 25,600
        (1 << 40, 1 << 20, BLOCKS),
    ],
)
def test_large_reductions_have_more_blocks_unless_their_targets_are_large(
    points: int, target: int, number: int
) -> None:
    assert len(blocks(whole((points,)), 0, 1, target)) == number


def test_cuts_into_few_blocks_are_among_those_into_many() -> None:
    few, many = blocks(whole((1 << 26,)), 0), blocks(whole((1 << 30,)), 0)
    assert {16 * part.hi[0] for part in few} <= {part.hi[0] for part in many}
