"""Data of several ranks: contents that one rank gives, parts that each makes, files by parts, and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError, CheckpointError, ConfigError
from coexec.testing import on_teams
from tests.test_joined import driver, on
from tests.test_ranked import fail, half


def test_one_rank_may_give_the_contents_for_all() -> None:
    data = np.random.default_rng(3).random((40, 7))

    def program(runtime: cx.Runtime) -> Any:
        x = cx.array(data if cx.rank() == 1 else None, root=1)
        y = half(x)
        return np.asarray(y), np.asarray(x[3:5]), float(cx.sum(cx.array([cx.rank() + 1.0], root=2)))

    for whole, part, third in on(3, program):
        np.testing.assert_array_equal(whole, data / 2)
        np.testing.assert_array_equal(part, data[3:5])
        assert third == 3.0


def test_a_root_that_is_no_rank_is_refused_alike() -> None:
    with cx.Runtime("cpu:0"):
        np.testing.assert_array_equal(np.asarray(cx.array([1.0], root=0)), [1.0])
        for root in (1, -1, "0"):
            with pytest.raises(ArgumentError, match="the program runs on 1 rank, counted from 0"):
                cx.array([1.0], root=root)  # type: ignore[arg-type]


def test_only_one_rank_gets_what_is_gathered() -> None:
    def program(runtime: cx.Runtime) -> Any:
        x = half(cx.array(np.arange(100.0)))
        return cx.gather(x, root=1), cx.gather(x[10:12]), driver(runtime).network.bytes

    found = on(2, program)
    assert found[0][0] is None and found[1][1] is None
    np.testing.assert_array_equal(found[1][0], np.arange(100.0) / 2)
    np.testing.assert_array_equal(found[0][1], [5.0, 5.5])
    assert [sent for *_, sent in found] == [400, 0]  # rank 0's half, once; the view is rank 0's own


def test_a_failure_that_one_rank_would_read_is_told_to_all() -> None:
    def program(runtime: cx.Runtime) -> None:
        x = cx.zeros(10)
        fail(x)
        with pytest.raises(ValueError, match="wrong"):
            cx.gather(x, root=1)
        cx.wait()

    on(2, program)


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_array_from_a_function_is_numpys(ranks: int) -> None:
    def compute(i: Any, j: Any) -> Any:
        return np.sqrt(i) + 10 * j

    def whole(i: Any) -> Any:
        return i % 3 == 0

    def program(runtime: cx.Runtime) -> Any:
        return [
            np.asarray(cx.fromfunction(compute, (30, 4))),
            np.asarray(cx.fromfunction(whole, (17,), dtype=int)),
            np.asarray(cx.fromfunction(lambda i: 7.0, 5)),
            np.asarray(cx.fromfunction(compute, (0, 4))),
        ]

    for found in on(ranks, program):
        np.testing.assert_array_equal(found[0], np.fromfunction(compute, (30, 4)))
        np.testing.assert_array_equal(found[1], np.fromfunction(whole, (17,), dtype=int))
        assert found[1].dtype == bool
        np.testing.assert_array_equal(found[2], np.full(5, 7.0))
        assert found[3].shape == (0, 4)


# Host tasks -------------------------------------------------------------------------------------------------------------


def test_a_host_task_runs_once_or_on_every_rank_with_its_part() -> None:
    def program(runtime: cx.Runtime) -> Any:
        once: list[int] = []
        parts: list[Any] = []

        @cx.host_task(x=cx.read)
        def whole(x: Any) -> None:
            once.append(len(x))

        @cx.host_task(split=0, x=cx.read)
        def mine(x: Any, chunk: Any) -> None:
            parts.append((chunk.lo[0], chunk.hi[0], x.copy()))

        x = half(cx.array(np.arange(30.0)))
        whole(x)
        mine(x)
        cx.wait()
        return once, parts, driver(runtime).network.bytes

    found = on(3, program)
    assert [once for once, *_ in found] == [[30], [], []]
    assert [(lo, hi) for _, [(lo, hi, _)], _ in found] == [(0, 10), (10, 20), (20, 30)]
    for _, [(lo, hi, data)], _ in found:
        np.testing.assert_array_equal(data, np.arange(lo, hi) / 2)
    assert [sent for *_, sent in found] == [0, 80, 80]  # what rank 0 lacked for the one that runs once


def test_on_one_rank_a_host_task_with_parts_has_all() -> None:
    seen: list[Any] = []

    @cx.host_task(split=0, x=cx.read)
    def mine(x: Any, chunk: Any) -> None:
        seen.append((chunk.lo, chunk.hi, float(x.sum())))

    with cx.Runtime("cpu:0"):
        mine(cx.ones((4, 2)))
    assert seen == [((0, 0), (4, 2), 8.0)]
    with pytest.raises(ArgumentError, match="takes an array, whose parts"):
        cx.host_task(split=0)(lambda: None)


# Files ------------------------------------------------------------------------------------------------------------------

ARRAYS = [np.arange(60.0).reshape(20, 3), np.array(4.5), np.zeros((0, 3)), np.arange(5, dtype="i2"), np.ones((1, 7))]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_arrays_go_to_files_and_back_without_being_gathered(ranks: int, tmp_path: Path) -> None:
    def program(runtime: cx.Runtime) -> Any:
        for number, data in enumerate(ARRAYS):
            cx.save(tmp_path / f"{number}.npy", cx.array(data))
        moved = cx.load(tmp_path / "0.npy")
        cx.save(tmp_path / "moved.npy", moved)
        if ranks > 1:
            assert driver(runtime).network.messages == 0
        return [np.asarray(cx.load(tmp_path / f"{number}.npy")) for number in range(len(ARRAYS))]

    for found in on(ranks, program):
        for got, data in zip(found, ARRAYS, strict=True):
            np.testing.assert_array_equal(got, data, strict=True)
    for number, data in enumerate(ARRAYS):
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), data, strict=True)
    np.testing.assert_array_equal(np.load(tmp_path / "moved.npy"), ARRAYS[0])
    assert not list(tmp_path.glob("*.part"))


def test_what_cannot_be_written_or_read_is_an_error_on_every_rank(tmp_path: Path) -> None:
    def program(runtime: cx.Runtime) -> int:
        with pytest.raises(ConfigError, match="cannot open"):
            cx.save(tmp_path / "nowhere" / "a.npy", cx.ones(5))
        with pytest.raises(ConfigError, match=r"cannot be read as \.npy"):
            cx.load(tmp_path / "nothing.npy")
        return 1

    assert on(2, program) == [1, 1]


# Checkpoints ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)])
def test_a_program_goes_on_from_its_checkpoint_on_any_number_of_ranks(before: int, after: int, tmp_path: Path) -> None:
    folder = tmp_path / "kept"

    def steps(until: int) -> Any:
        def program(runtime: cx.Runtime) -> Any:
            state = cx.restore(folder, default=None) or {"u": cx.array(np.arange(50.0)), "n": cx.array(7), "step": 0}
            u, step = state["u"], state["step"]
            while step < until:
                u, step = half(u) + step, step + 1
                assert cx.checkpoint(folder, u=u, n=state["n"], step=step) == step
            return np.asarray(u), int(state["n"]), step

        return program

    on(before, steps(3))
    found = on(after, steps(5))
    wanted = np.arange(50.0)
    for step in range(5):
        wanted = wanted / 2 + step
    for u, n, step in found:
        np.testing.assert_array_equal(u, wanted)
        assert (n, step) == (7, 5)


def test_checkpoints_that_are_not_there_or_damaged_are_errors_in_words(tmp_path: Path) -> None:
    with cx.Runtime("cpu:0"):
        with pytest.raises(CheckpointError, match="there is no checkpoint"):
            cx.restore(tmp_path)
        with pytest.raises(ArgumentError, match=r"a ndarray is neither.*cx\.array"):
            cx.checkpoint(tmp_path, u=np.ones(3))
        cx.checkpoint(tmp_path, u=cx.ones(1000))
        file = next(tmp_path.glob("*/rank-0.bin"))
        file.write_bytes(file.read_bytes()[:-1] + b"x")
        with pytest.raises(CheckpointError, match="is damaged"):
            np.asarray(cx.restore(tmp_path)["u"])


def test_a_rank_that_cannot_write_its_part_is_told_to_all(tmp_path: Path) -> None:
    def program() -> None:
        with cx.Runtime("cpu:0", store="off"):
            folder = tmp_path / "kept"
            if cx.rank() == 0:
                (folder / "000001.part").mkdir(parents=True)
            cx.wait()
            cx.checkpoint(folder, u=cx.ones(10))  # what was left by a killed one is removed
            with pytest.raises(CheckpointError, match="cannot write a checkpoint"):
                cx.checkpoint("/proc/none", u=cx.ones(10))
            assert list(cx.restore(folder)) == ["u"]

    on_teams(2, program)
