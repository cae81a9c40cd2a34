"""How a program ends: with failures nobody saw, with work in flight, in a forked child."""

from __future__ import annotations

from tests.scripts import run_script


def test_a_program_that_never_looks_at_a_failure_prints_it_and_exits_with_1() -> None:
    done = run_script(
        """
        @cx.kernel(x=cx.update)
        def fail(x):
            raise ValueError("nobody looks")

        fail(cx.zeros(3))
        print("the end")
        """
    )
    assert done.returncode == 1
    assert done.stdout == "the end\n"
    assert "1 task(s) failed" in done.stderr and "nobody looks" in done.stderr and "TaskFailed" in done.stderr


def test_a_program_that_looked_exits_with_0() -> None:
    done = run_script(
        """
        @cx.kernel(x=cx.update)
        def fail(x):
            raise ValueError("seen")

        x = cx.zeros(3)
        fail(x)
        try:
            np.asarray(x)
        except ValueError:
            print("looked")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "looked\n", "")


def test_handlers_registered_before_still_run_when_failures_end_the_program() -> None:
    done = run_script(
        """
        import atexit
        atexit.register(print, "first handler")

        @cx.kernel(x=cx.update)
        def fail(x):
            raise ValueError("nobody looks")

        fail(cx.zeros(3))
        atexit.register(print, "last handler")
        """
    )
    assert done.returncode == 1
    assert done.stdout == "last handler\nfirst handler\n"


def test_work_in_flight_is_finished_at_exit(tmp_path) -> None:
    done = run_script(
        """
        from pathlib import Path

        @cx.kernel(x=cx.update)
        def slow(x):
            for _ in range(20):
                x += np.sin(x) + 1

        @cx.host_task(x=cx.read)
        def save(x, path):
            Path(path).write_text(str(int(x[0] > 0)))

        x = cx.zeros(100_000)
        for _ in range(10):
            slow(x)
        save(x, sys.argv[1])
        """,
        str(tmp_path / "result"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "result").read_text() == "1"


def test_an_uncaught_error_of_the_program_keeps_its_own_exit_code() -> None:
    done = run_script(
        """
        @cx.kernel(x=cx.update)
        def increment(x):
            x += 1

        x = cx.zeros(10)
        increment(x)
        sys.exit(7)
        """
    )
    assert (done.returncode, done.stderr) == (7, "")
    done = run_script("x = cx.zeros(10)\nraise LookupError('mine')")
    assert done.returncode == 1 and "LookupError: mine" in done.stderr and "task" not in done.stderr


def test_a_forked_child_is_told_and_its_parent_goes_on() -> None:
    done = run_script(
        """
        import warnings
        warnings.simplefilter("ignore")

        @cx.kernel(x=cx.update)
        def increment(x):
            x += 1

        @cx.kernel(x=cx.update)
        def hold(x):
            pass_gate("hold")

        x = cx.zeros(3)
        increment(x)
        cx.wait()
        with closed_gate("hold") as gate:
            task = hold(cx.zeros(3))
            gate.wait_for_arrival()
            pid = os.fork()
        if pid == 0:
            answers = 0
            uses = [lambda: cx.zeros(3), lambda: increment(x), lambda: np.asarray(x), task.result, cx.wait, cx.Runtime]
            for use in uses:
                try:
                    use()
                except cx.errors.RuntimeClosed as error:
                    answers += "fork" in str(error)
            repr(x)
            del x
            sys.exit(40 + answers)
        _, status = os.waitpid(pid, 0)
        increment(x)
        print(os.waitstatus_to_exitcode(status), np.asarray(x).tolist())
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "46 [2.0, 2.0, 2.0]"


def test_a_fork_before_the_first_use_is_free() -> None:
    done = run_script(
        """
        pid = os.fork()
        x = cx.zeros(3)
        x[...] = 2
        assert np.asarray(x).sum() == 6
        if pid == 0:
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        print(status)
        """
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_module_globals_may_hold_arrays_until_the_interpreter_is_gone() -> None:
    done = run_script(
        """
        class Holder:
            def __init__(self):
                self.me = self
                self.array = cx.zeros(10)
                self.array[...] = 1

        holder = Holder()
        runtime = cx.Runtime("cpu:0")
        with runtime:
            other = cx.zeros(5)
            other[...] = 1
        sys.modules["keep"] = holder
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
