"""What ranks send: no byte more than an algorithm needs, and nothing that depends on what a rank measures or is told alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.testing import on_teams
from tests.fuzz.on_ranks import run_on_ranks
from tests.fuzz.steps import program_of
from tests.test_joined import driver, on

ROWS, COLUMNS, STEPS = 48, 20, 5

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update)
def diffuse(u, out):
    out[...] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4


@cx.kernel(split=0, x=cx.read(cx.all), v=cx.update)
def attract(x, v, chunk):
    mine = x[chunk.lo[0] : chunk.hi[0]]
    v += (x[None, :] - mine[:, None]).sum(axis=1)


@cx.kernel(split=0, v=cx.read, x=cx.update)
def move(v, x):
    x += 0.01 * v


def bytes_sent(ranks: int, program: Any) -> int:
    """Return the bytes that all ranks together send for a program."""

    def run(runtime: cx.Runtime) -> int:
        program()
        cx.wait()
        return driver(runtime).network.bytes

    return sum(on(ranks, run))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_stencil_sends_its_halos_and_nothing_else(ranks: int) -> None:
    def program() -> None:
        u, v = cx.zeros((ROWS, COLUMNS)), cx.zeros((ROWS, COLUMNS))
        for _ in range(STEPS):
            diffuse(u, v)
            u, v = v, u
        del u, v

    written = (COLUMNS - 2) * 8  # bytes of a row that another rank writes; the first step reads what every rank has
    assert bytes_sent(ranks, program) == (STEPS - 1) * 2 * (ranks - 1) * written


@cx.kernel(split=(0, 1), u=cx.read(cx.halo(1, border="inside")), out=cx.update)
def diffuse_in_both(u, out):
    out[...] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4


def test_ranks_that_divide_two_axes_send_edges_and_corners_and_nothing_else() -> None:
    data = np.random.default_rng(3).random((22, 32))
    where = cx.Placement([f"n{rank}/cpu:0" for rank in range(4)], {0: 2, 1: 2})

    def program(runtime: cx.Runtime) -> tuple[int, int, Any]:
        u, v = cx.array(data), cx.array(data)
        for _ in range(STEPS):
            diffuse_in_both.using(placement=where)(u, v)
            u, v = v, u
        cx.wait()
        network = driver(runtime).network
        return network.messages, network.bytes, np.array(u)

    a = diffused(data, STEPS)
    for messages, sent, found in on(4, program):
        assert (messages, sent) == (3 * (STEPS - 1), (10 + 15 + 1) * 8 * (STEPS - 1))  # of 20 x 30 points inside
        np.testing.assert_array_equal(found, a)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_bodies_send_their_places_to_everybody_once_per_step(ranks: int) -> None:
    def program() -> None:
        x, v = cx.zeros((ROWS, 3)), cx.zeros((ROWS, 3))
        for _ in range(STEPS):
            attract(x, v)
            move(v, x)
        del x, v

    assert bytes_sent(ranks, program) == (STEPS - 1) * (ranks - 1) * ROWS * 3 * 8


def passed_on(ranks: int) -> int:
    """Return the messages with which all ranks get what all of them have made: few ranks send to each other directly."""
    if ranks < 4:
        return ranks * (ranks - 1)
    total, have = 0, 1
    while have < ranks:
        number = min(have, ranks - have)
        total += ranks + number - 1  # one each; where the last ranks' parts travel with the first ones', two
        have += number
    return total


@pytest.mark.parametrize(("ranks", "messages"), [(2, 2), (3, 6), (4, 9), (7, 24)])
def test_what_everybody_reads_is_passed_on_in_steps(ranks: int, messages: int) -> None:
    data = np.random.default_rng(ranks).random((ranks * 4, 3))

    def program(runtime: cx.Runtime) -> tuple[Any, Any, list[int]]:
        x, v, network = cx.array(data), cx.zeros(data.shape), driver(runtime).network
        cx.wait()
        counts = [network.messages]
        move(x, v)
        read = np.array(v)  # by the program
        counts.append(network.messages)
        attract(v, x)  # sends nothing: every rank has it
        move(x, v)
        attract(v, x)  # by a kernel
        cx.wait()
        counts.append(network.messages)
        return read, np.array(x), counts

    found = on(ranks, program)
    assert messages == passed_on(ranks)
    for first, last in ((0, 1), (1, 2)):
        assert sum(counts[last] - counts[first] for *_, counts in found) == messages
    moved = 0.01 * data
    x = data + (moved[None, :] - moved[:, None]).sum(axis=1)
    v = moved + 0.01 * x
    x = x + (v[None, :] - v[:, None]).sum(axis=1)
    for read, last, _ in found:
        np.testing.assert_array_equal(read, moved)
        np.testing.assert_allclose(last, x, rtol=1e-12)


@cx.kernel(split=0, x=cx.update)
def fail_at_the_end(x, chunk):
    if chunk.hi[0] == ROWS:
        raise ValueError("wrong")
    x += 1


@pytest.mark.parametrize("ranks", [4, 7])
def test_a_part_that_failed_fails_for_all_ranks_alike_though_others_passed_it_on(ranks: int) -> None:
    def program(runtime: cx.Runtime) -> tuple[list[bool], Any]:
        del runtime
        x = cx.zeros((ROWS, 2))
        fail_at_the_end(x).exception()
        with pytest.raises(ValueError, match="wrong"):
            np.asarray(x)
        failed = []
        for row in range(0, ROWS, 5):
            try:
                np.asarray(x[row])
            except ValueError:
                failed.append(True)
            else:
                failed.append(False)
        x[...] = 3
        return failed, np.array(x)

    found = on(ranks, program)
    for failed, healed in found:
        assert failed == found[0][0]
        np.testing.assert_array_equal(healed, np.full((ROWS, 2), 3.0))


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_product_of_what_everybody_has_sends_nothing(ranks: int) -> None:
    def program() -> None:
        cx.matmul(cx.ones((64, 32)), cx.ones((32, 16)))

    assert bytes_sent(ranks, program) == 0


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_sum_sends_one_number_per_block_and_rank(ranks: int) -> None:
    data = np.ones((8 * 16384,))

    def program() -> None:
        float(cx.sum(cx.array(data)))

    sent = bytes_sent(ranks, program)
    assert sent % 8 == 0 and 0 < sent <= 8 * (ranks - 1) * 64


UNLIKE: list[dict[str, Any]] = [
    {},
    {"lookahead": "none", "horizon": 3},
    {"replay": False},
    {"lookahead": "infinite", "placement": "round-robin", "lanes": "always-new"},
]
"""Options that may differ between ranks: they decide what a rank does with its part, and when."""


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_a_rank_decides_alone_decides_what_ranks_must_agree_on(seed: int) -> None:
    data = np.random.default_rng(seed).random((40, 6))

    def program() -> Any:
        with cx.Runtime("cpu:0", store="off", **UNLIKE[(cx.rank() + seed) % len(UNLIKE)]):
            u, v = cx.array(data), cx.zeros(data.shape)
            for step in range(12):
                diffuse(u, v)
                u, v = v, u * 0.5 + step
                if step % 5 == 0:
                    float(cx.sum(u))
            return np.asarray(u)

    first, *others = on_teams(4, program)
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_many_random_programs_compute_what_numpy_computes_on_ranks(first: int) -> None:
    for seed in range(first, first + 100):
        program = program_of("ranks", seed)
        outcome = run_on_ranks(program)
        assert outcome.fine, (seed, program.options, outcome)


@cx.kernel(split=(0, 1), u=cx.read(cx.halo((1, 1, 0), border="inside")), out=cx.update)
def diffuse_in_layers(u, out):
    out[...] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4


@cx.kernel(split=0, u=cx.read, out=cx.write)
def by_rows(u, out):
    out[...] = u.mean(axis=1, keepdims=True)


DEEP = (42, 42, 8192)  # of 40 x 40 columns inside, each of 64 KB


def diffused(data: Any, steps: int) -> Any:
    a, b = data.copy(), data.copy()
    for _ in range(steps):
        b[1:-1, 1:-1] = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) / 4
        a, b = b, a
    return a


@pytest.mark.parametrize(("ranks", "edges"), [(2, 40 + 40), (3, 4 * 40), (4, 8 * 20 + 4)])
def test_thick_arrays_are_cut_along_two_axes_by_themselves(ranks: int, edges: int) -> None:
    data = np.random.default_rng(3).random(DEEP)

    def program(runtime: cx.Runtime) -> tuple[int, Any]:
        u, v = cx.array(data), cx.array(data)
        for _ in range(3):
            diffuse_in_layers(u, v)
            u, v = v, u
        cx.wait()
        sent = driver(runtime).network.bytes
        return sent, np.array(u[:, :, ::1000])

    found = on(ranks, program, policy="even")
    assert sum(sent for sent, _ in found) == 2 * edges * 8192 * 8  # the first step sends nothing
    wanted = diffused(data, 3)[:, :, ::1000]
    for _, values in found:
        np.testing.assert_array_equal(values, wanted)


def test_arrays_that_another_call_has_cut_by_rows_stay_so() -> None:
    data = np.random.default_rng(3).random(DEEP)

    def program(runtime: cx.Runtime) -> tuple[list[int], Any]:
        u, v, w = cx.array(data), cx.array(data), cx.zeros(DEEP)
        sent = []
        for _ in range(4):
            diffuse_in_layers(u, v)
            by_rows(v[1:-1], w[1:-1])
            u, v, w = w, u, v
            cx.wait()
            sent.append(driver(runtime).network.bytes)
        return sent, np.array(u[:, :, ::1000])

    found = on(4, program, policy="even")
    total = np.sum([sent for sent, _ in found], axis=0)
    assert set(np.diff(total)[1:]) == {6 * 42 * 8192 * 8}  # rows at three cuts, both ways
    u, v, w = data.copy(), data.copy(), np.zeros(DEEP)
    for _ in range(4):
        v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        w[1:-1] = v[1:-1].mean(axis=1, keepdims=True)
        u, v, w = w, u, v
    for _, values in found:
        np.testing.assert_allclose(values, u[:, :, ::1000], rtol=1e-12)
