"""Whose code it is goes by where coexec and NumPy lie: errors, traces and warnings name the program's own lines."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import coexec as cx
from coexec import origin
from coexec.plan.host_only import is_own
from coexec.program.assign import copy

PROGRAM = """
import numpy as np
import coexec as cx

@cx.kernel(x=cx.update)
def fail(x):
    np.linalg.inv(np.zeros((2, 2)))  # the body

def call(x):
    return fail(x)  # the call

def assign(x):
    x[:2] = 1  # the assignment

def chain(x):
    return np.asarray(x + 1)  # the operation
"""


def program(folder: Path, module: str) -> SimpleNamespace:
    """Return a program in some folder whose module has some name."""
    folder.mkdir(parents=True)
    file = folder / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    names = {"__name__": module, "__file__": str(file)}
    exec(compile(PROGRAM, str(file), "exec"), names)
    return SimpleNamespace(**names, file=str(file))


def line(words: str) -> int:
    return next(number for number, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith(f"# {words}"))


@pytest.mark.parametrize(
    ("folder", "module"),
    [
        ("coexec", "program"),
        ("coexec/site-packages/numpy", "program"),
        ("project", "coexec.program"),
        ("project", "numpy.program"),
        ("with a space/coexec", "coexec"),
    ],
)
def test_a_program_keeps_its_lines_whatever_its_folder_and_module_are_called(tmp_path, folder, module) -> None:
    its = program(tmp_path / folder, module)
    with cx.Runtime("cpu:0", trace=tmp_path / "run.json", fuse=True):
        task = its.call(x := cx.zeros(4))
        assert (task.call, task.line) == (its.file, line("the call"))
        with pytest.raises(np.linalg.LinAlgError) as raised:
            np.asarray(x)
        assert f"(in the body at {its.file}:{line('the body')})" in str(raised.value)
        its.assign(cx.zeros(4))
        its.chain(cx.ones(4))
    calls = {row["name"]: row["call"] for row in cx.Trace.load(tmp_path / "run.json").tasks}
    assert calls["fill"] == f"program.py:{line('the assignment')}"
    assert calls["add"] == f"program.py:{line('the operation')}"
    assert not is_own(its.fail) and is_own(copy)


def test_a_warning_names_the_line_of_a_program_in_a_folder_called_coexec(tmp_path) -> None:
    its = program(tmp_path / "coexec", "coexec.program")
    with cx.Runtime("cpu:0", inline=False) as runtime, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runtime._driver.diagnostics.say("odd", "it", "it is odd")
        its.assign(cx.zeros(4))
    assert [(w.filename, w.lineno) for w in caught] == [(its.file, line("the assignment"))]


def test_the_examples_that_an_installed_coexec_carries_are_programs() -> None:
    assert origin.is_ours(cx.Runtime.__init__.__code__.co_filename)
    assert origin.is_passed(np.linalg.inv.__wrapped__.__code__.co_filename)  # type: ignore[attr-defined]
    assert not origin.is_ours(str(Path(cx.__file__).parent / "examples" / "heat.py"))
    assert not origin.is_ours(str(Path(cx.__file__).parent) + "_more/program.py")


def test_benchmarks_and_examples_are_programs() -> None:
    for file, passed in [
        ("bench/overhead.py", False),
        ("examples/heat.py", False),
        ("driver.py", True),
        ("benches.py", True),
    ]:
        assert origin.is_passed(origin.OURS[0] + file) is origin.is_ours(origin.OURS[0] + file) is passed
