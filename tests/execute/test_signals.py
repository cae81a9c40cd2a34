"""Signals: one handler for all runtimes, which breaks into no bookkeeping, no closing and no exit handler."""

from __future__ import annotations

import os

import pytest

import coexec as cx
from tests.scripts import ROOT, run_script


def test_ctrl_c_never_breaks_into_the_bookkeeping_of_a_second_runtime() -> None:
    done = run_script(
        """
        from coexec.schedule.events import Made

        with cx.Runtime("cpu:0"):
            with cx.Runtime("cpu:0") as inner:
                handlers = inner._driver.scheduler._handlers
                adopt = handlers[Made]

                def interrupted(*args, **kwargs):
                    os.kill(os.getpid(), signal.SIGINT)
                    adopt(*args, **kwargs)
                    print("registered")

                handlers[Made] = interrupted
                try:
                    x = cx.zeros(100_000)
                    x[...] = 1
                except KeyboardInterrupt:
                    print("interrupted")
        """
    )
    assert (done.returncode, done.stdout) == (0, "registered\ninterrupted\n"), done.stderr


def test_ctrl_c_while_a_waiting_thread_reports_what_it_did_loses_no_instruction() -> None:
    done = run_script(
        """
        with cx.Runtime("cpu:0", sync=True, inline=False) as runtime:
            executor = runtime._driver.executor
            (cpu,) = executor._helpers
            report, strike = cpu._finished, [True]

            def interrupted(ran):
                if strike and threading.current_thread() is threading.main_thread():
                    strike.clear()
                    os.kill(os.getpid(), signal.SIGINT)
                    len("here the handler is called")
                report(ran)

            cpu._finished = interrupted
            x = cx.zeros(100_000)
            try:
                x[...] = 1
                np.asarray(x)
            except KeyboardInterrupt:
                print("interrupted")
            if not executor.engine.idle:
                executor.cancel(executor.engine.waiting(), "the test is over")
            print(executor.engine.idle, executor.broken, flush=True)
            os._exit(0)
        """
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\nTrue None\n"), done.stderr


def test_ctrl_c_in_a_finalizer_is_raised_at_the_next_call() -> None:
    """Python drops what a finalizer raises, and the end of an array is one."""
    done = run_script(
        """
        class Dropped:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(10):
                    pass  # the handler runs here

        with cx.Runtime("cpu:0", inline=False):
            x = cx.zeros(100_000)
            Dropped()
            print("dropped")
            try:
                x[...] = 1
            except KeyboardInterrupt:
                print("interrupted")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "dropped\ninterrupted\n", "")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_a_runtime_closes_is_raised_when_it_is_closed(tmp_path, name, code) -> None:
    trace = tmp_path / "run.json"
    done = run_script(
        f"""
        def closing(runtime):
            save = runtime.learned.save

            def interrupted(*args):
                os.kill(os.getpid(), signal.{name})
                save(*args)
                print("saved")

            runtime.learned.save = interrupted

        try:
            with cx.Runtime("cpu:0", trace=sys.argv[1]) as runtime:
                cx.zeros(3)[...] = 1
                closing(runtime)
        except (KeyboardInterrupt, SystemExit) as error:
            print(type(error).__name__, runtime.closed, threading.active_count())
        at_exit = cx.Runtime("cpu:0")
        closing(at_exit)
        """,
        str(trace),
    )
    raised = "KeyboardInterrupt" if code == 130 else "SystemExit"
    assert (done.returncode, done.stdout) == (code, f"saved\n{raised} True 1\nsaved\n"), done.stderr
    assert done.stderr == ""
    assert cx.Trace.load(trace).complete


def test_a_signal_to_a_program_that_is_over_breaks_into_no_exit_handler() -> None:
    done = run_script(
        """
        import atexit

        def last():
            os.kill(os.getpid(), signal.SIGTERM)
            print("cleaned up")

        cx.zeros(3)[...] = 1
        atexit.register(last)  # runs before the runtime is closed
        """,
        environ={"COEXEC_DEVICES": "cpu:0"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "cleaned up\n", "")


def test_workers_of_a_spawn_pool_end_in_silence(tmp_path) -> None:
    (tmp_path / "pooled.py").write_text(
        "import numpy as np\nimport coexec as cx\n\ndef work(n):\n    return float((cx.ones(100_000) + n)[0])\n"
    )
    done = run_script(
        """
        import multiprocessing
        sys.path.insert(0, sys.argv[1])
        from pooled import work

        with multiprocessing.get_context("spawn").Pool(2) as pool:
            print(pool.map(work, range(4)))
        """,
        str(tmp_path),
        environ={"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1.0, 2.0, 3.0, 4.0]\n", "")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", -2), ("SIGTERM", 143)])
def test_a_signal_that_another_thread_takes_ends_a_main_thread_that_waits_in_c(name: str, code: int) -> None:
    done = run_script(
        f"""
        import multiprocessing, select

        def take():
            asleep = 0
            while asleep < 5:  # looks in a row at which the main thread slept: it waits for the semaphore
                select.select([], [], [], 0.02)
                state = open(f"/proc/self/task/{{os.getpid()}}/stat").read().rpartition(")")[2].split()[0]
                asleep = asleep + 1 if state == "S" else 0
            signal.pthread_kill(threading.get_ident(), signal.{name})

        cx.zeros(3)[...] = 1
        nobody_releases = multiprocessing.get_context("spawn").Semaphore(0)
        threading.Thread(target=take, daemon=True).start()
        nobody_releases.acquire()
        """,
        environ={"COEXEC_DEVICES": "cpu:0"},
    )
    assert (done.returncode, done.stdout) == (code, ""), done.stderr


def test_a_signal_in_a_finalizer_is_raised_when_it_is_over_though_the_program_calls_nothing() -> None:
    done = run_script(
        """
        import multiprocessing

        class Late:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)
                print("finalized", flush=True)

        cx.zeros(3)[...] = 1
        late = Late()
        del late
        multiprocessing.get_context("spawn").Semaphore(0).acquire()
        """,
        environ={"COEXEC_DEVICES": "cpu:0"},
    )
    assert (done.returncode, done.stdout) == (143, "finalized\n"), done.stderr


def test_an_interrupt_that_was_heard_comes_once() -> None:
    done = run_script(
        """
        import select

        cx.zeros(3)[...] = 1
        for _ in range(3):
            try:
                os.kill(os.getpid(), signal.SIGINT)
                select.select([], [], [])
            except KeyboardInterrupt:
                print("interrupted")
                select.select([], [], [], 0.3)  # a second one would end the program
        """,
        environ={"COEXEC_DEVICES": "cpu:0"},
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n" * 3), done.stderr


def test_a_signal_to_a_forked_child_is_not_sent_to_its_parent() -> None:
    done = run_script(
        """
        import select

        cx.zeros(3)[...] = 1
        child = os.fork()
        if not child:
            select.select([], [], [], 30)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        select.select([], [], [], 0.3)  # what came to the child would come here now
        print(os.waitstatus_to_exitcode(status))
        """,
        environ={"COEXEC_DEVICES": "cpu:0"},
    )
    assert (done.returncode, done.stdout) == (0, "-15\n"), done.stderr


def test_what_the_program_hears_signals_with_stays_as_it_is() -> None:
    done = run_script(
        """
        import socket

        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno())
        with cx.Runtime("cpu:0"):
            print(signal.set_wakeup_fd(theirs.fileno()) == theirs.fileno())
        print(signal.set_wakeup_fd(-1) == theirs.fileno())
        with cx.Runtime("cpu:0"):
            signal.set_wakeup_fd(theirs.fileno())
        print(signal.set_wakeup_fd(-1) == theirs.fileno())
        """
    )
    assert (done.returncode, done.stdout) == (0, "True\nTrue\nTrue\n"), done.stderr


def test_handlers_stand_once_the_main_thread_waits_though_another_thread_opened_the_runtime() -> None:
    done = run_script(
        """
        opened = []
        thread = threading.Thread(target=lambda: opened.append(cx.Runtime("cpu:0").__enter__()))
        thread.start()
        thread.join()
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        opened[0].wait()
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        opened[0].close()
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        """
    )
    assert (done.returncode, done.stdout) == (0, "True\nFalse\nTrue\n"), done.stderr
