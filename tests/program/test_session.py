"""Which runtime a call belongs to: blocks of threads and tasks, the main thread's, and the default one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ProgramError, RuntimeClosed
from coexec.program import session
from tests.scripts import run_script
from tests.small_kernels import increment


def current() -> Any:
    """Return the runtime that a new array belongs to, which a kernel runs on."""
    x = cx.zeros(3)
    increment(x)
    assert np.asarray(x).tolist() == [1.0, 1.0, 1.0]
    return x._storage.session


def in_thread(call: Callable[[], Any]) -> Any:
    """Return what a call in a thread of its own answers."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_threads_that_begin_at_once_share_the_default_runtime() -> None:
    done = run_script(
        """
        from concurrent.futures import ThreadPoolExecutor
        from coexec.program import session

        @cx.kernel(x=cx.read, y=cx.update)
        def add(x, y):
            y += x

        begun, opened, made = threading.Barrier(4), threading.Barrier(2), []

        def opening():
            try:
                opened.wait(0.5)  # for another thread that would open one too
            except threading.BrokenBarrierError:
                print("nobody else does")
            return cx.Runtime("cpu:0")

        def work(number):
            begun.wait()
            made.append(cx.ones(3))
            begun.wait()
            y = cx.zeros(3)
            for x in made:
                add(x, y)
            return float(y[0])

        session.set_default(opening)
        with ThreadPoolExecutor(4) as pool:
            print(set(pool.map(work, range(4))), len({id(x._storage.session) for x in made}))
        """
    )
    assert (done.returncode, done.stdout) == (0, "nobody else does\n{4.0} 1\n"), done.stderr


def test_threads_with_blocks_of_their_own_each_use_theirs() -> None:
    barrier = threading.Barrier(2)

    def work() -> bool:
        with cx.Runtime("cpu:0") as mine:
            barrier.wait()
            inside = current()
            barrier.wait()
        return inside is mine

    with cx.Runtime("cpu:0") as outer, ThreadPoolExecutor(2) as pool:
        both = [pool.submit(work) for _ in range(2)]
        assert all(answer.result() for answer in both)
        assert current() is outer


def test_a_block_of_another_thread_changes_nothing_here() -> None:
    opened, leave = threading.Event(), threading.Event()

    def work() -> None:
        with cx.Runtime("cpu:0"):
            opened.set()
            assert leave.wait(60)

    with cx.Runtime("cpu:0") as mine, ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        assert opened.wait(60)
        try:
            assert current() is mine
            assert in_thread(current) is mine
        finally:
            leave.set()
        done.result()


def test_the_main_threads_block_serves_threads_that_have_none() -> None:
    with cx.Runtime("cpu:0") as outer:
        assert in_thread(current) is outer
        with cx.Runtime("cpu:0") as inner:
            assert in_thread(current) is inner
        assert in_thread(current) is outer is current()


def test_tasks_of_one_thread_each_keep_their_block() -> None:
    async def work(turns: asyncio.Barrier) -> bool:
        with cx.Runtime("cpu:0") as mine:
            await turns.wait()
            found = [current()]
            await turns.wait()
            found.append(await asyncio.to_thread(current))
            await turns.wait()
        return found == [mine, mine]

    async def main() -> bool:
        turns = asyncio.Barrier(2)
        return all(await asyncio.gather(work(turns), work(turns)))

    assert asyncio.run(main())


def test_a_thread_takes_its_block_along_with_its_context() -> None:
    def work() -> bool:
        with cx.Runtime("cpu:0") as mine, ThreadPoolExecutor(1) as pool:
            return pool.submit(copy_context().run, current).result() is mine

    with cx.Runtime("cpu:0"):
        assert in_thread(work)


def test_a_closed_block_is_passed_over_wherever_it_is_remembered() -> None:
    with cx.Runtime("cpu:0") as outer:
        with cx.Runtime("cpu:0"):
            inside = copy_context()
        assert inside.run(current) is outer
        with cx.Runtime("cpu:0") as inner:
            in_thread(inner.close)
            assert current() is outer
    assert outer not in session.program


def test_a_runtime_has_one_block() -> None:
    with cx.Runtime("cpu:0") as runtime:
        for enter in (runtime.__enter__, lambda: in_thread(runtime.__enter__)):
            with pytest.raises(ProgramError, match="has a `with` block already"):
                enter()
        assert current() is runtime
    with pytest.raises(RuntimeClosed, match="open another"), runtime:
        pass
