"""Ctrl-C and SIGTERM: what has not begun is cancelled, what runs ends, the runtime stays usable, the trace valid."""

from __future__ import annotations

import signal

import pytest

import coexec as cx
from tests.scripts import run_script

HELD = """
    ended, waits = [], True

    def note():
        ended.append(True)

    @cx.kernel(x=cx.update)
    def hold(x):
        pass_gate("hold")
        note()
        x += 1

    @cx.kernel(x=cx.update)
    def increment(x):
        x += 1

    def begin(gate, number):
        global held, queued
        held, queued = cx.zeros(3), cx.zeros(3)
        task = hold(held)
        gate.wait_for_arrival()
        later = increment(queued)
        threading.Thread(target=strike, args=(number, threading.get_ident())).start()
        return task, later

    ready = threading.Event()

    def strike(number, main):
        ready.wait()
        while waits and not sys._current_frames()[main].f_code.co_filename.endswith("executor.py"):
            pass  # until the program is in the midst of its wait
        os.kill(os.getpid(), number)
"""

USABLE = """
    assert task.exception() is None and ended == [True]
    assert np.asarray(held).tolist() == [1, 1, 1]
    assert isinstance(later.exception(), cx.TaskCancelled)
    queued[...] = 5
    increment(queued)
    assert np.asarray(queued).tolist() == [6, 6, 6]
    cx.wait()
    print("usable")
"""


def script(*parts: str) -> str:
    return "if True:\n" + "".join(parts)


@pytest.mark.parametrize("wait", ["np.asarray(held)", "cx.wait()", "task.result()", "task.wait()", "while True: pass"])
def test_ctrl_c_interrupts_any_wait_and_leaves_the_runtime_usable(wait) -> None:
    done = run_script(
        script(
            HELD,
            f"""
    with cx.Runtime("cpu:0"):
        with closed_gate("hold") as gate:
            task, later = begin(gate, signal.SIGINT)
            try:
                waits = {"pass" not in wait}
                ready.set()
                {wait}
            except KeyboardInterrupt:
                print("interrupted")
""",
            USABLE.replace("\n    ", "\n        "),
        )
    )
    assert (done.returncode, done.stdout.split()) == (0, ["interrupted", "usable"]), done.stderr


def test_ctrl_c_reaches_a_program_that_submits_and_submits() -> None:
    done = run_script(
        """
        @cx.kernel(x=cx.update)
        def increment(x):
            x += 1

        with cx.Runtime("cpu:0"):
            x = cx.zeros(3)
            increment(x)
            cx.wait()
            started = threading.Event()
            threading.Thread(target=lambda: (started.wait(), os.kill(os.getpid(), signal.SIGINT))).start()
            try:
                while True:
                    increment(x)
                    started.set()
            except KeyboardInterrupt:
                print("interrupted")
            x[...] = 0
            increment(x)
            print(np.asarray(x).tolist())
        """
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n[1.0, 1.0, 1.0]\n"), done.stderr


def test_an_uncaught_ctrl_c_ends_the_program_with_a_valid_trace(tmp_path) -> None:
    trace = tmp_path / "run.json"
    done = run_script(
        script(
            HELD,
            """
    with cx.Runtime("cpu:0", trace=sys.argv[1]):
        with closed_gate("hold") as gate:
            begin(gate, signal.SIGINT)
            ready.set()
            np.asarray(held)
""",
        ),
        str(trace),
    )
    assert done.returncode in (-signal.SIGINT, 130), done.stderr
    assert "KeyboardInterrupt" in done.stderr
    assert states(trace) == {"hold": "done", "increment": "cancelled"}


def test_an_uncaught_ctrl_c_ends_the_default_runtime_too(tmp_path) -> None:
    trace = tmp_path / "run.json"
    done = run_script(
        script(
            HELD,
            """
    with closed_gate("hold") as gate:
        begin(gate, signal.SIGINT)
        ready.set()
        np.asarray(held)
""",
        ),
        environ={"COEXEC_TRACE": str(trace), "COEXEC_DEVICES": "cpu:0"},
    )
    assert done.returncode in (-signal.SIGINT, 130), done.stderr
    assert states(trace) == {"hold": "done", "increment": "cancelled"}


@pytest.mark.parametrize("where", ["np.asarray(held)", "while True: pass"])
def test_sigterm_cancels_what_has_not_begun_and_ends_the_program(tmp_path, where) -> None:
    trace = tmp_path / "run.json"
    done = run_script(
        script(
            HELD,
            f"""
    import atexit
    atexit.register(lambda: print("cleaned up", ended))
    with cx.Runtime("cpu:0", trace=sys.argv[1]):
        with closed_gate("hold") as gate:
            begin(gate, signal.SIGTERM)
            waits = {"pass" not in where}
            ready.set()
            {where}
""",
        ),
        str(trace),
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert done.stdout == "cleaned up [True]\n"
    assert states(trace) == {"hold": "done", "increment": "cancelled"}


def test_ctrl_c_in_a_host_task_that_the_waiting_program_runs_itself() -> None:
    done = run_script(
        """
        @cx.host_task(x=cx.update)
        def interrupt(x):
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                pass

        with cx.Runtime("cpu:0", sync=True):
            x = cx.zeros(3)
            try:
                interrupt(x)
            except KeyboardInterrupt:
                print("interrupted")
            x[...] = 4
            print(np.asarray(x).tolist())
        """
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n[4.0, 4.0, 4.0]\n"), done.stderr


def test_ctrl_c_cancels_what_has_not_begun_in_every_open_runtime() -> None:
    done = run_script(
        script(
            HELD,
            """
    default = cx.zeros(3)
    with closed_gate("hold") as gate, cx.Runtime("cpu:0"):
        task, later = begin(gate, signal.SIGINT)
        with cx.Runtime("cpu:0"):
            mine = cx.zeros(3)
            hold(mine)
            gate.wait_for_arrival()
            third = increment(mine)
            try:
                ready.set()
                np.asarray(mine)
            except KeyboardInterrupt:
                gate.open.set()
                print(type(later.exception()).__name__, type(third.exception()).__name__, task.exception())
""",
        ),
        environ={"COEXEC_DEVICES": "cpu:0"},
    )
    assert (done.returncode, done.stdout) == (0, "TaskCancelled TaskCancelled None\n"), done.stderr


def test_the_programs_own_handlers_stay_in_place() -> None:
    done = run_script(
        """
        calls = []
        signal.signal(signal.SIGINT, lambda *_: calls.append("mine"))
        with cx.Runtime("cpu:0"):
            x = cx.zeros(3)
            x[...] = 1
            os.kill(os.getpid(), signal.SIGINT)
            print(np.asarray(x).tolist(), calls)
        """
    )
    assert (done.returncode, done.stdout) == (0, "[1.0, 1.0, 1.0] ['mine']\n"), done.stderr


def test_handlers_are_restored_when_the_runtime_is_closed() -> None:
    done = run_script(
        """
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        with cx.Runtime("cpu:0"):
            with cx.Runtime("cpu:0"):
                cx.zeros(3)[...] = 1
            cx.zeros(3)[...] = 1
        print((signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before)
        first, second = cx.Runtime("cpu:0"), cx.Runtime("cpu:0")
        first.close()
        second.close()
        print((signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before)
        """
    )
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n"), done.stderr


def states(path) -> dict[str, str]:
    """Return how each kernel of a complete trace ended."""
    trace = cx.Trace.load(path)
    return {row["name"]: row["state"] for row in trace.rows if row["row"] == "ran" and row["kind"] == "kernel"}


DIVIDED_FURTHER = """
    ROWS = 1000

    class Asked:
        count, strike = 0, 0

    def row(chunk):  # the range mapper of a call that is divided into very many rounds: asked while they are looked for
        Asked.count += 1
        if Asked.count == Asked.strike:
            os.kill(os.getpid(), signal.{number})
        return slice(10 * chunk.lo[0], 10 * chunk.hi[0])

    @cx.kernel(split=0, over="y", x=cx.read(row), y=cx.update)
    def rows(x, y):
        y += x.reshape(-1, 10).sum(axis=1)

    @cx.kernel(y=cx.update)
    def increment(y):
        y += 1

    with cx.Runtime("null:1", memory={{"null:0": "90"}}, diagnostics="off") as runtime:
        x, y, z = cx.ones(10 * ROWS), cx.ones(ROWS), cx.zeros(1)
        try:
            Asked.strike = {strike}
            rows(x, y)
        except {error}:
            after = Asked.count - Asked.strike
            assert after < 100, after
            print("interrupted")
        try:
            np.asarray(y)
        except cx.TaskFailed as error:
            print("spoiled:", error)
        increment(z)
        cx.wait()
        print("usable")
"""


@pytest.mark.parametrize(
    ("number", "error", "strike"), [("SIGINT", "KeyboardInterrupt", 500), ("SIGTERM", "SystemExit", 3500)]
)
def test_a_call_that_takes_long_to_lower_can_be_interrupted(number: str, error: str, strike: int) -> None:
    """While rounds are looked for; and while they are lowered, when what it would have written is spoiled."""
    ended = run_script(DIVIDED_FURTHER.format(number=number, error=error, strike=strike))
    assert "interrupted\n" in ended.stdout and "usable" in ended.stdout, ended.stdout + ended.stderr
    assert ("spoiled: T" in ended.stdout) == (strike == 3500) and not ended.stderr, ended.stdout + ended.stderr
