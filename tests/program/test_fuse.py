"""Chains as data: which results are wanted, what may join, which buffers serve whom, and what the body computes."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.program import fuse, session, ufunc
from coexec.program.fuse import LONGEST, Chain, Fused, FusedStep, Operation, blocks_of
from coexec.program.overlap import same_place


class Holding:
    """A session that holds every operation back, and runs nothing."""

    closed = False

    def __init__(self) -> None:
        self.chain = Chain()
        self.refused: list[Operation] = []
        self._next = 0

    def adopt(self, storage: Any, data: Any, *, borrowed: bool) -> None:
        self._next += 1
        storage.id = self._next

    def dropped(self, storage_id: int) -> None:
        """Nothing is kept that could be freed."""

    def fuse(self, operation: Operation) -> bool:
        if self.chain.accepts(operation):
            self.chain.add(operation)
        else:
            self.refused.append(operation)
        return True

    def outputs(self) -> list[tuple[int, str]]:
        """Return how many arrays each call writes, and its name."""
        return [(sum(name.startswith("out") for name in k.passed), k.name) for k, _, _ in self.chain.calls()]


@contextmanager
def holding() -> Iterator[Holding]:
    held: Any = Holding()
    session.push(held)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ufunc, "FUSED_FROM", 1)  # small arrays are held back as large ones are
            yield held
    finally:
        session.remove(held)


# What is wanted ---------------------------------------------------------------------------------------------------------


def test_only_the_result_of_an_expression_is_written() -> None:
    with holding() as held:
        x, y = cx.empty(8), cx.empty(8)
        z = np.sqrt(x * y + 1.0) * 0.5 + x
        assert held.outputs() == [(1, "multiply+add+sqrt+multiply+add")]
        assert z.shape == (8,)


def test_a_result_that_the_program_holds_is_written_too() -> None:
    with holding() as held:
        x = cx.empty(8)
        kept = x + 1
        z = kept * 2 - 3
        assert held.outputs() == [(2, "add+multiply+subtract")]
        del kept, z


def test_a_result_that_was_dropped_is_not_written() -> None:
    with holding() as held:
        x = cx.empty(8)
        dropped = x + 1
        z = dropped * 2
        del dropped
        assert held.outputs() == [(1, "add+multiply")]
        del z


@pytest.mark.parametrize("hide", [lambda a: [a], lambda a: a[2:5], lambda a: a.T, lambda a: a[None], lambda a: a[3]])
def test_a_list_or_a_view_keeps_a_result_wanted(hide) -> None:
    with holding() as held:
        t = cx.empty(8) + 1
        kept = hide(t)
        z = t * 2
        del t
        assert held.outputs() == [(2, "add+multiply")]
        del kept, z


def test_a_result_in_a_cycle_is_wanted_until_it_is_collected() -> None:
    with holding() as held:
        x = cx.empty(8)
        t = x + 1
        cycle: list[Any] = [t]
        cycle.append(cycle)
        z = t * 2
        del t, cycle
        assert len(held.chain._wanted()) == 2
        gc.collect()
        assert held.outputs() == [(1, "add+multiply")]
        del z


def test_the_last_result_is_computed_even_if_nobody_holds_it() -> None:
    with holding() as held:
        x = cx.empty(8)
        x + 1
        assert held.outputs() == [(1, "add")]


def test_an_operand_used_twice_is_passed_once() -> None:
    with holding() as held:
        x = cx.empty(8)
        z = (x * x + x[:]) - x
        ((kernel, arguments, _),) = held.chain.calls()
        assert kernel.passed == ("x0", "out0")
        assert len(arguments) == 2
        del z


def test_views_of_one_array_are_operands_of_their_own() -> None:
    with holding() as held:
        x = cx.empty(9)
        z = x[1:] + x[:-1] * 2
        ((kernel, _, _),) = held.chain.calls()
        assert kernel.passed == ("x0", "x1", "s0", "out0")
        del z


def test_operations_that_have_nothing_to_do_with_each_other_are_calls_of_their_own() -> None:
    with holding() as held:
        x, y = cx.empty(8), cx.empty(8)
        a, b = x + 1, y * 2
        c = np.exp(a)
        assert held.outputs() == [(2, "add+exp"), (1, "multiply")]
        del a, b, c


def test_branches_that_meet_are_one_call() -> None:
    with holding() as held:
        x, y = cx.empty(8), cx.empty(8)
        z = (x + 1) * (y - 2)
        assert held.outputs() == [(1, "add+subtract+multiply")]
        del z


# What may join ----------------------------------------------------------------------------------------------------------


def test_another_shape_ends_a_chain() -> None:
    with holding() as held:
        a = cx.empty(8) + 1
        b = cx.empty((2, 8)) + a
        assert [operation.output.shape for operation in held.refused] == [(2, 8)]
        del b


@pytest.mark.parametrize("view", [lambda t: t[::-1], lambda t: t.T, lambda t: t[:1], lambda t: t[2]])
def test_a_view_of_a_result_ends_a_chain(view) -> None:
    with holding() as held:
        t = cx.empty((4, 4)) + 1
        z = t + view(t)
        assert len(held.refused) == 1
        del z


def test_a_view_that_shows_the_same_elements_in_the_same_order_does_not() -> None:
    with holding() as held:
        t = cx.empty((4, 4)) + 1
        z = t[:] * t.T.T
        assert held.outputs() == [(2, "add+multiply")]
        del z


def test_a_chain_has_a_longest_length() -> None:
    with holding() as held:
        x = cx.empty(8)
        for _ in range(LONGEST + 1):
            x = x + 1
        assert (len(held.chain.operations), len(held.refused)) == (LONGEST, 1)


def test_the_same_place_is_the_same_elements_in_the_same_order() -> None:
    with holding():
        a, b = cx.empty((4, 4)), cx.empty((4, 4))
        assert same_place(a, a[:]) and same_place(a[1:3], a[1:3]) and same_place(a.T, a.T)
        for other in (b, a.T, a[1:], a[::2], a[::-1], a[0]):
            assert not same_place(a, other)


# Kernels and buffers ----------------------------------------------------------------------------------------------------


def kernel_of(compute: Any, *arrays: Any) -> Any:
    with holding() as held:
        result = compute(*[cx.empty(a.shape, a.dtype) for a in arrays])
        ((kernel, _, _),) = held.chain.calls()
        del result
        return kernel


def test_chains_of_the_same_structure_share_a_kernel_whatever_their_scalars() -> None:
    x = np.zeros(8)
    one = kernel_of(lambda a: a * 2.0 + 1.0, x)
    assert one is kernel_of(lambda a: a * 3.0 + 7.0, x)
    assert one is kernel_of(lambda a: a * 2.0 + 1.0, np.empty(9))
    assert one is not kernel_of(lambda a: a * 2 + 1.0, x)  # an integer is another type
    assert one is not kernel_of(lambda a: a * 2.0 + 1.0, x.astype("f4"))
    assert one is not kernel_of(lambda a: a * 2.0 + 1.0, x[None])
    assert one is not kernel_of(lambda a: (a + 1.0) * 2.0, x)


def test_kernels_of_other_types_or_patterns_are_known_apart_by_their_code() -> None:
    from coexec.program.fingerprint import fingerprint

    forms = [np.empty(8), np.empty(8, "f4"), np.empty(8, "i4"), np.empty((2, 4))]
    kernels = [kernel_of(lambda a: a * 2.0 + 1.0, form) for form in forms[:3]]
    assert len({fingerprint(kernel) for kernel in kernels}) == 3


def steps_of(*reads: tuple[int, ...], live: tuple[int, ...] = ()) -> tuple[FusedStep, ...]:
    """Return steps that read earlier steps; the last is live, and those named."""
    f8 = np.dtype("f8")
    named = {*live, len(reads) - 1}
    return tuple(FusedStep(np.add, (), tuple(("v", i) for i in r), (), f8, n in named) for n, r in enumerate(reads))


def test_a_buffer_is_used_again_by_its_last_reader() -> None:
    assert fuse._slots(steps_of((), (0,), (1,), (2,), (3,))) == [0, 0, 0, 0, -1]
    assert fuse._slots(steps_of((), (0,), (0, 1), (2,))) == [0, 1, 0, -1]
    assert fuse._slots(steps_of((), (0,), (1,), (2,), live=(0, 1))) == [-1, -1, 0, -1]


@given(st.data())
def test_no_buffer_is_overwritten_while_somebody_reads_it(data) -> None:
    count = data.draw(st.integers(1, 12))
    reads = [tuple(data.draw(st.lists(st.integers(0, n - 1), max_size=3))) if n else () for n in range(count)]
    steps = steps_of(*reads, live=tuple(data.draw(st.sets(st.integers(0, count - 1)))))
    slots = fuse._slots(steps)
    holder: dict[int, int] = {}
    for number, step in enumerate(steps):
        for _, i in step.values:
            assert steps[i].live or holder[slots[i]] == i
        if not step.live:
            holder[slots[number]] = number


SHAPES = st.one_of(
    st.lists(st.integers(1, 40), min_size=1, max_size=2),
    st.lists(st.integers(1, 7), min_size=3, max_size=4),
)


@given(SHAPES, st.integers(1, 50))
def test_blocks_tile_a_shape_and_are_small(shape, size) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuse, "BLOCK", size)
        seen = np.zeros(shape, int)
        sizes = []
        for block in blocks_of(tuple(shape)):
            seen[block] += 1
            sizes.append(seen[block].shape)
    assert (seen == 1).all()
    assert max(map(math.prod, sizes)) <= size
    assert all(n <= first for each in sizes for n, first in zip(each, sizes[0], strict=True))


# What the body computes -------------------------------------------------------------------------------------------------


def run_whole(compute: Any, *arrays: Any, block: int) -> None:
    """Assert that the body of a chain gives NumPy's bits, block by block."""
    with holding() as held, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuse, "BLOCK", block)
        inputs = [cx.empty(a.shape, a.dtype) for a in arrays]
        results = compute(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        expected = compute(*arrays)
        expected = expected if isinstance(expected, tuple) else (expected,)
        by_storage = {a._storage: data for a, data in zip(inputs, arrays, strict=True)}
        (call,) = held.chain.calls()
        assert not held.refused
        got = {r._storage: np.empty(r.shape, r.dtype) for r in results}
        kernel, arguments, _ = call
        values = [
            by_storage[v._storage] if v._storage in by_storage else got[v._storage]
            for v in arguments
            if isinstance(v, cx.Array) and v.ndim
        ]
        scalars = [
            v if not isinstance(v, cx.Array) else by_storage[v._storage][()]
            for v in arguments
            if not isinstance(v, cx.Array) or not v.ndim
        ]
        arrays_in = len(values) - len(results)
        body: Any = kernel.function
        assert isinstance(body, Fused)
        body(*values[:arrays_in], *scalars, *values[arrays_in:])
        for r, want in zip(results, expected, strict=True):
            assert got[r._storage].dtype == want.dtype
            np.testing.assert_array_equal(got[r._storage], want)


RNG = np.random.default_rng(0)
A, B = RNG.random((13, 7)), RNG.random((13, 7))


@pytest.mark.parametrize("block", [1, 3, 7, 20, 1000])
@pytest.mark.parametrize(
    "compute",
    [
        lambda a, b: np.sqrt(a * b + 1.0) * 0.5 + a,
        lambda a, b: (t := a + b, t * t, np.exp(t) - a),
        lambda a, b: (a > b) & (a < 0.5) | ~(b >= 0.25),
        lambda a, b: np.add(a, b, dtype="f4", casting="same_kind") * 2,
        lambda a, b: np.floor_divide(a, b, dtype="f8") - np.float32(0.25),
        lambda a, b: 3 * a - b / np.int8(2),
    ],
)
def test_blocks_of_any_size_give_the_bits_of_the_whole(compute, block) -> None:
    run_whole(compute, A, B, block=block)


@pytest.mark.parametrize("shape", [(7,), (1, 7), (13, 1), (1, 1), (1,)])
@pytest.mark.parametrize("block", [1, 5, 1000])
def test_inputs_are_broadcast_in_every_block(shape, block) -> None:
    run_whole(lambda a, b: (a + b) * b - a, A, RNG.random(shape), block=block)


@pytest.mark.parametrize("block", [1, 11, 100])
def test_arrays_without_axes_are_scalars(block) -> None:
    run_whole(lambda a, b: (a + b) * b, A, np.array(3.5), block=block)


def test_buffers_of_other_types_do_not_meet() -> None:
    data = RNG.integers(0, 9, (50, 3)).astype("i2")
    run_whole(lambda a: np.sqrt(((a + 1) * 2 > 5) + 0.5) + (a - 3) // 2, data, block=8)


def test_long_rows_are_cut_too() -> None:
    long = RNG.random((2, 3, 1000))
    run_whole(lambda a, b: np.exp(a * b) + b, long, RNG.random((3, 1)), block=64)


def test_a_failing_operation_is_named() -> None:
    kernel = kernel_of(lambda a, b: (a + 1) ** b, np.empty(4, int), np.empty(4, int))
    with pytest.raises(ValueError, match="negative integer powers") as raised:
        kernel.function(np.ones(4, int), np.full(4, -1), 1, np.empty(4, int))
    assert raised.value.__notes__ == ["in operation 2 of a chain, power"]
