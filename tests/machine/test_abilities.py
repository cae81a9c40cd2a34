"""What kinds of devices can do is declared in one table, which the rest of the package asks."""

import re
from dataclasses import replace

import pytest

from coexec.backend.machine import BACKENDS
from coexec.machine.abilities import DECLARED, abilities_of
from coexec.machine.platform import HOST, Device
from tests.repository import ROOT

CORE = Device("x:0", "cpu", HOST)
COMPARED = re.compile(
    r"""\b(device|backend|driver|host|one|d|b)\.kind *(==|!=|in|not in) *\(?"(cpu|opencl|torch|gpu)\""""
)
"""A kind of a device; kinds of variants are another thing."""
ELSEWHERE = ("backend/machine.py", "bench/")
"""Who may compare the names of kinds: the table of how each kind is opened, and cases for devices of one kind."""


def test_every_kind_that_can_be_opened_is_declared() -> None:
    assert set(BACKENDS) == set(DECLARED)


@pytest.mark.parametrize("kind", DECLARED)
def test_a_kind_is_driven_or_invented(kind: str) -> None:
    can = abilities_of(kind)
    assert can.driven is not can.invented
    assert can.runs_python or not can.on_numpy  # NumPy arrays are for Python bodies


def test_a_kind_that_nobody_declared_can_do_nothing_by_itself() -> None:
    gpu = replace(CORE, kind="gpu", rates=(("float32", 1e9),))
    assert not any(gpu.abilities) and not gpu.is_core and not gpu.loops
    assert not gpu.computes("float64") and replace(gpu, kind="cpu").computes("float64")


def test_a_device_has_the_abilities_of_its_kind() -> None:
    assert CORE.is_core and CORE.loops and not replace(CORE, wide=True).is_core
    assert replace(CORE, kind="torch").loops and not replace(CORE, kind="torch").is_core
    assert (
        replace(CORE, kind="opencl").abilities.takes_source and not replace(CORE, kind="opencl").abilities.runs_python
    )


def test_nobody_else_compares_the_names_of_kinds() -> None:
    source = ROOT / "src" / "coexec"
    found = [
        f"{path.relative_to(source)}:{number}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        if not path.relative_to(source).as_posix().startswith(ELSEWHERE)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if COMPARED.search(line)
    ]
    assert not found, "ask Device.abilities (machine/abilities.py):\n" + "\n".join(found)
