"""The thread that lets go of what is held, a moment after the program has stopped adding to it."""

from __future__ import annotations

import threading

from coexec.execute.idle_timer import IdleTimer
from tests.holding import PATIENCE


def test_it_lets_go_once_nothing_more_comes_and_sleeps_until_something_is_held_again() -> None:
    asked = threading.Semaphore(0)
    lasts: list[bool] = []

    def let_go(last: bool) -> bool:
        lasts.append(last)
        asked.release()
        return True

    moment = IdleTimer(threading.RLock(), let_go, "test", 1e-4, 1e-3)
    for turn in range(3):
        moment.touch()
        assert asked.acquire(timeout=PATIENCE)
        assert lasts == [False] * (turn + 1)
    moment.stop()


def test_whoever_is_busy_is_asked_again_until_the_last_time() -> None:
    over = threading.Event()
    lasts: list[bool] = []

    def let_go(last: bool) -> bool:
        lasts.append(last)
        if last:
            over.set()
        return last

    moment = IdleTimer(threading.RLock(), let_go, "test", 1e-4, 8e-4)
    moment.touch()
    assert over.wait(PATIENCE)
    moment.stop()
    assert lasts == [False, False, False, True]


def test_while_more_comes_nothing_is_let_go() -> None:
    lock = threading.RLock()
    asked = threading.Event()
    came: list[int] = []

    def let_go(last: bool) -> bool:
        del last
        came.append(moment._came)
        asked.set()
        return True

    moment = IdleTimer(lock, let_go, "test", 1e-4, 1e-3)
    with lock:  # the thread cannot ask before all has come
        for _ in range(100):
            moment.touch()
    assert asked.wait(PATIENCE)
    moment.stop()
    assert came[-1] == 100


def test_stopping_ends_the_thread_whether_or_not_anything_was_held() -> None:
    before = set(threading.enumerate())
    for held in (False, True):
        moment = IdleTimer(threading.RLock(), lambda last: last, "test", 1e-4, 1e-3)
        if held:
            moment.touch()
        moment.stop()
    assert set(threading.enumerate()) <= before
