"""Notebooks: interrupts reach every cell, and a failure that no cell looks at is a cell's failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from coexec import notebook
from tests.scripts import HEAD, PATIENCE, ROOT

pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

from jupyter_client.manager import KernelManager  # noqa: E402 - only where it is installed

KERNELS = """
os.environ["COEXEC_DEVICES"] = "cpu:0"

@cx.kernel(x=cx.update)
def hold(x):
    pass_gate("hold")
    x += 1

@cx.kernel(x=cx.update)
def increment(x):
    x += 1

@cx.kernel(x=cx.update)
def fail(x):
    raise ValueError("no luck")
"""


@pytest.fixture(scope="module", autouse=True)
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what kernels write out of the user's folders, and let them find what this process finds."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name)))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, sys.path)]))
        yield


class Notebook:
    """A kernel, and somebody who runs one cell after the other."""

    def __init__(self) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel()
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE)

    def run(self, code: str) -> str:
        """Run a cell; return what it printed, or the error that it ended with."""
        printed: list[str] = []

        def output(message: dict[str, Any]) -> None:
            printed.append(message["content"].get("text", "") if message["msg_type"] == "stream" else "")

        reply = self.client.execute_interactive(code, allow_stdin=True, output_hook=output, timeout=PATIENCE)
        content = reply["content"]
        return "".join(printed) if content["status"] == "ok" else f"{content['ename']}: {content['evalue']}"

    def end(self) -> None:
        """End the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def book() -> Iterator[Notebook]:
    opened = Notebook()
    assert opened.run(HEAD + KERNELS) == ""
    yield opened
    opened.end()


def test_an_interrupt_outside_any_wait_cancels_what_has_not_begun_in_every_cell(book: Notebook) -> None:
    begin = """
gate = (block := closed_gate("hold")).__enter__()
held, queued = cx.zeros(3), cx.zeros(3)
task = hold(held)
gate.wait_for_arrival()
later = increment(queued)
"""
    end = "block.__exit__(None, None, None); print(type(later.exception()).__name__, np.asarray(held).tolist())"
    for interrupted in ("os.kill(os.getpid(), signal.SIGINT)", "raise KeyboardInterrupt"):
        assert book.run(begin) == ""
        assert book.run(interrupted).startswith("KeyboardInterrupt")
        assert book.run(end) == "TaskCancelled [1.0, 1.0, 1.0]\n"
    assert book.run("queued[...] = 4; print(np.asarray(queued).tolist())") == "[4.0, 4.0, 4.0]\n"


def test_an_interrupt_never_breaks_into_the_bookkeeping_of_a_later_cell(book: Notebook) -> None:
    assert (
        book.run(
            "from coexec.schedule.events import Made; runtime = cx.Runtime().__enter__(); handlers = runtime._driver.scheduler._handlers; adopt = handlers[Made]"
        )
        == ""
    )
    interrupt = """
def interrupted(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGINT)
    adopt(*args, **kwargs)
    registered.append(True)

registered, handlers[Made] = [], interrupted
x = cx.zeros(3)
increment(x)
"""
    assert book.run(interrupt).startswith("KeyboardInterrupt")
    assert book.run("handlers[Made] = adopt; print(registered)") == "[True]\n"


def test_a_failure_that_nobody_looked_at_is_shown_at_the_end_of_a_cell_and_once(book: Notebook) -> None:
    assert "no luck" in book.run("x = cx.zeros(3); task = fail(x); task.wait()")
    assert book.run("print('later')") == "later\n"
    assert "no luck" in book.run("np.asarray(x)")
    assert book.run("y = cx.zeros(3)\ntry:\n    fail(y).result()\nexcept ValueError:\n    print('seen')") == "seen\n"
    assert "2 tasks failed" in book.run("tasks = [fail(cx.zeros(3)) for _ in range(2)]\nfor task in tasks: task.wait()")
    assert book.run("gate = (block := closed_gate('hold')).__enter__(); task = hold(cx.zeros(3))") == ""  # never waits
    assert book.run("block.__exit__(None, None, None)") == ""


def test_a_notebook_that_is_run_as_a_program_fails_with_a_failure_that_no_cell_looks_at() -> None:
    looks = "try:\n    fail(cx.zeros(3)).result()\nexcept ValueError:\n    print('seen')"
    cells = [HEAD + KERNELS, looks, "x = cx.zeros(3)\nfor _ in range(50): increment(x)\nfail(x);"]
    written = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="no luck"):
        nbclient.NotebookClient(written, timeout=PATIENCE, kernel_name="python3").execute()
    assert written.cells[1].outputs[0].text == "seen\n"


class Shell:
    """IPython, as far as coexec knows it."""

    def __init__(self) -> None:
        self.hooks: dict[str, Any] = {}
        self.shown = 0
        self.events = SimpleNamespace(register=self.hooks.__setitem__)

    def get_ipython(self) -> Shell:
        """Return the shell, as the module IPython does."""
        return self

    def showtraceback(self) -> None:
        """Show the error that is being handled."""
        self.shown += 1
        assert sys.exc_info()[1] is not None


class Interrupted:
    """A runtime whose program was interrupted while it waited."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def wait(self) -> None:
        raise KeyboardInterrupt

    def unseen(self) -> list[Any]:
        return []

    def cancel_pending(self, reason: str) -> None:
        self.cancelled.append(reason)


def result(error: BaseException | None = None) -> SimpleNamespace:
    return SimpleNamespace(error_before_exec=None, error_in_exec=error)


def test_a_shell_is_attended_once_and_cells_end_as_they_were_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, runtime = Shell(), Interrupted()
    monkeypatch.setitem(sys.modules, "IPython", shell)
    notebook.attend(lambda: [runtime])
    end = shell.hooks.pop("post_run_cell")
    notebook.attend(lambda: [runtime])
    assert set(shell.hooks) == {"pre_execute"}
    for left in (ValueError(), SystemExit(), None):
        end(result(left))
    assert (runtime.cancelled, shell.shown) == ([], 0)
    for broken_off in (None, result(KeyboardInterrupt())):
        end(broken_off)
    assert len(runtime.cancelled) == 2
    shell.get_parent = lambda: {"content": {"allow_stdin": False}}  # type: ignore[attr-defined]
    end(cell := result())
    assert isinstance(cell.error_in_exec, KeyboardInterrupt) and shell.shown == 1
