"""Fingerprints: the same for the same computation in every process, another one as soon as anything in it changes."""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.program.fingerprint import fingerprint
from coexec.program.ufunc import Elementwise
from coexec.program.variant import Variant
from tests.scripts import run_script

BODY = """
import math
import numpy as np
from math import sin as wave

FACTOR = 2.0

def helper(x):
    return x + 1

def make(shift):
    def body(x, y, k=3, *, mode="a"):
        '''Say what it does.'''
        try:
            scaled = [helper(v) * FACTOR + shift for v in (1, 2.5, 7) if str(v) in {"7", "u", "v", "w"}]
        except ValueError:
            scaled = []
        y[...] = np.sin(x) * k + 4 * wave(0.0)
    return body

body = make(10)
"""


def made(source: str, name: str = "first.py") -> Any:
    scope: dict[str, Any] = {"__name__": "user_module"}
    exec(compile(source, name, "exec"), scope)
    return scope["body"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("4 * wave", "5 * wave"),
        ("4 * wave", "4.0 * wave"),
        ("2.5", "2.75"),
        ('"w"', '"z"'),
        ("np.sin", "np.cos"),
        ("FACTOR = 2.0", "FACTOR = 3.0"),
        ("FACTOR = 2.0", "FACTOR = np.float32(2.0)"),
        ("make(10)", "make(11)"),
        ("k=3", "k=4"),
        ('mode="a"', 'mode="b"'),
        ("return x + 1", "return x + 2"),
        ("import sin as wave", "import cos as wave"),
        ("import numpy as np", "import cmath as np"),
        ("str(v) in", "str(v) not in"),
        ("except ValueError", "except KeyError"),
    ],
)
def test_whatever_changes_the_computation_changes_the_fingerprint(old: str, new: str) -> None:
    assert old in BODY
    assert fingerprint(made(BODY)) != fingerprint(made(BODY.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        try:\n", "\n        # a comment\n\n        try:\n"),
        ("Say what it does.", "Say something else."),
        ("        '''Say what it does.'''\n", ""),
        ("import math\n", "import math\nUNUSED = 1\n\n\n"),
        ("scaled", "renamed"),
    ],
)
def test_whatever_does_not_change_the_computation_does_not_change_the_fingerprint(old: str, new: str) -> None:
    assert old in BODY
    assert fingerprint(made(BODY)) == fingerprint(made(BODY.replace(old, new)))


def test_the_files_name_does_not_count() -> None:
    assert fingerprint(made(BODY, "first.py")) == fingerprint(made(BODY, "elsewhere/second.py"))


def test_running_a_body_does_not_change_its_fingerprint() -> None:
    body = made(BODY)
    before = fingerprint(body)
    for _ in range(100):  # the interpreter specialises its instructions
        body(np.ones(2), np.ones(2))
    assert fingerprint(body) == before


def test_every_process_gives_the_same_fingerprint() -> None:
    text = f"""
        from coexec.program.fingerprint import fingerprint
        from coexec.program.ufunc import Elementwise
        scope = {{"__name__": "user_module"}}
        exec(compile({BODY!r}, "third.py", "exec"), scope)
        words = frozenset(str(i) for i in range(100))
        def chosen(x, y):
            y[...] = x if "3" in words and "4" in {{"4", "5", "6", "7", "8"}} else 0
        print(fingerprint(scope["body"]))
        print(fingerprint(chosen), fingerprint(Elementwise(np.add, 2, 1, (("dtype", np.dtype("f4")),), masked=False)))
    """
    outputs = [run_script(text, environ={"PYTHONHASHSEED": seed}) for seed in ("1", "2")]
    assert [out.stderr for out in outputs] == ["", ""]
    assert outputs[0].stdout == outputs[1].stdout
    assert outputs[0].stdout.split()[0] == fingerprint(made(BODY))
    assert len(outputs[0].stdout.split()) == 3


def test_a_kernel_counts_by_its_body_and_its_variants_by_their_source() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def double(x, y):
        y[...] = 2 * x

    double.opencl("y = 2 * x;")
    python, opencl = double.variants
    assert fingerprint(double) == fingerprint(double.function)
    assert fingerprint(double, python) != fingerprint(double, opencl)
    others = [
        Variant("opencl", "opencl", source="y = x + x;"),
        Variant("opencl", "opencl", source="y = 2 * x;", entry="other"),
        Variant("opencl", "opencl", source="y = 2 * x;", local_size=(8,)),
        Variant("opencl", "opencl", source="y = 2 * x;", global_size=lambda y: (len(y),)),
        Variant("opencl", "opencl", source="y = 2 * x;", global_size=lambda y: (len(y) // 2,)),
        Variant("opencl", "opencl", source="y = 2 * x;", contract=True),
        Variant("opencl", "opencl", source="y = 2 * x;", elsewhere=opencl),
        Variant("opencl", "cpu", function=lambda x, y: None),
    ]
    assert len({fingerprint(double, variant) for variant in [*double.variants, *others]}) == 10


def test_elementwise_bodies_count_by_function_and_options() -> None:
    bodies = [
        Elementwise(np.add, 2, 1, (), masked=False),
        Elementwise(np.multiply, 2, 1, (), masked=False),
        Elementwise(np.add, 2, 1, (("dtype", np.dtype("f4")),), masked=False),
        Elementwise(np.add, 2, 1, (("dtype", np.dtype("f8")),), masked=False),
        Elementwise(np.where, 3, 1, (), masked=False),
    ]
    assert len({fingerprint(body) for body in bodies}) == len(bodies)
    assert fingerprint(bodies[0]) == fingerprint(Elementwise(np.add, 2, 1, (), masked=False))


class Scaled:
    """A body that is an object."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def __call__(self, x: Any, y: Any) -> None:
        y[...] = x * self.factor


def test_callables_of_every_kind_have_a_fingerprint() -> None:
    def plain(x, y):
        y[...] = x

    def other(x, y):
        y[...] = -x

    def compiled(function: Any) -> Any:
        return types.SimpleNamespace(py_func=function, __name__="body")

    bodies = [plain, other, compiled(plain), compiled(other), Scaled(1), Scaled(2), Scaled(plain), Scaled(other)]
    bodies += [functools.partial(plain, 1), functools.partial(plain, 2), functools.partial(other, 1)]
    bodies += [Scaled(1).__call__, np.add, np.multiply, len, np.linalg.norm, Scaled]
    assert len({fingerprint(body) for body in bodies}) == len(bodies)
    assert fingerprint(Scaled(1)) == fingerprint(Scaled(1))


def test_functions_that_call_each_other_have_a_fingerprint() -> None:
    source = """
def even(n):
    return n == 0 or odd(n - 1)
def odd(n):
    return n != STOP and even(n - 1)
STOP = 0
body = even
"""
    assert fingerprint(made(source)) == fingerprint(made(source))
    assert fingerprint(made(source)) != fingerprint(made(source.replace("STOP = 0", "STOP = 1")))


def test_a_closure_that_is_not_filled_yet_has_a_fingerprint() -> None:
    def body(x, y):
        y[...] = x * later

    early = fingerprint(body)
    later = 2.0
    assert fingerprint(body) != early


def test_functions_of_other_packages_count_by_name() -> None:
    source = "from inspect import getsource as get\ndef body(x):\n    return get(x)\n"
    other = source.replace("getsource", "getsourcelines")
    assert fingerprint(made(source)) != fingerprint(made(other))
