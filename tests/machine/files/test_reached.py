"""What devices of platform files reach in operations, by themselves and configured as designs."""

from __future__ import annotations

import pytest

from coexec.errors import UnknownName
from coexec.machine.files import loading as files
from coexec.machine.files.writing import text_of
from coexec.machine.parts import AchievedRate
from coexec.predict.roofline import DevicePeaks
from tests.machine.platform_files import refused

ACHIEVED = """
[[memory]]
name = "host"
[[device]]
name = "card"
kind = "fpga"
memory = "host"
flops = { float32 = 1e12, float64 = 5e11 }
watts = 200.0
idle_watts = 30.0
[device.achieved.spmm]
"""


def test_operations_have_speeds_and_watts_of_their_own() -> None:
    text = ACHIEVED + 'flops = 1e11\nwatts = 50.0\nbasis = "estimate"\n'
    card = files.parse(text).devices[0]
    assert card.reaches("spmm") == AchievedRate("spmm", 0.1, 50.0, "estimate")
    assert card.watts_for("spmm") == 50.0 and card.watts_for("matmul") == 200.0 and card.reaches("matmul") is None
    assert DevicePeaks(card, op="spmm").of("float64").flops == 5e10  # the same part of another type's peak
    assert DevicePeaks(card, op="matmul").of("float32").flops == 1e12
    again = files.parse(text_of(files.parse(text))).devices[0]
    assert again.achieved == card.achieved


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("flops = 2e12", "more than the peak"),
        ("flops = 1e5", "less than 1e-06 of the peak"),
        ("of_peak = 1.5", "at most 1"),
        ("of_peak = 0.5\nflops = 1e9", "either"),
        ("watts = 50.0", "either"),
        ("of_peak = 0.5\nwatts = 5.0", "less than 30 W"),
        ("of_peak = 0.5\nspeed = 1", "unknown field 'speed'"),
    ],
)
def test_speeds_of_operations_that_cannot_be_are_refused(line: str, told: str) -> None:
    assert told in str(refused(ACHIEVED + line + "\n"))


DESIGNS = ACHIEVED.replace("[device.achieved.spmm]\n", "[device.design.graph]\n")


def test_designs_have_operations_speeds_watts_and_seconds_to_load() -> None:
    spmm = "[device.design.graph.achieved.spmm]\nof_peak = 0.1\nwatts = 50.0\n"
    quick = "[device.design.spmm.achieved.spmm]\nflops = 4e11\nwatts = 60.0\n"
    text = DESIGNS + 'ops = ["relu"]\nload = 2.5\nbasis = "estimate"\n' + spmm + quick
    card = files.parse(text).devices[0]
    assert card.ops == ("relu", "spmm") and card.does("relu") and not card.does("matmul")
    graph = card.design("graph")
    assert (graph.ops, graph.load, graph.basis) == (("relu", "spmm"), 2.5, "estimate")
    assert card.reaches("spmm") == AchievedRate("spmm", 0.4, 60.0), "whichever design a call needs"
    assert card.under("graph").reaches("spmm") == AchievedRate("spmm", 0.1, 50.0)
    assert DevicePeaks(card.under("graph"), op="spmm").of("float32").flops == 1e11
    again = files.parse(text_of(files.parse(text))).devices[0]
    assert (again.configurations, again.ops) == (card.configurations, card.ops)
    with pytest.raises(UnknownName, match="design of card"):
        card.design("grpah")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("load = 1.0", "needs `ops`"),
        ("ops = 3", "a list of texts"),
        ('ops = ["relu"]\nload = -1.0', "not negative"),
        ('ops = ["relu"]\nwatts = 5.0', "unknown field 'watts'"),
        ("[device.design.graph.achieved.spmm]\nof_peak = 0.5\nwatts = 5.0", "less than 30 W"),
        ("[device.design.graph.achieved.spmm]\nof_peak = 2.0", "at most 1"),
    ],
)
def test_designs_that_cannot_be_are_refused(line: str, told: str) -> None:
    assert told in str(refused(DESIGNS + line + "\n"))
