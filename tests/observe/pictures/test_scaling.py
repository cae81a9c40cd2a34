"""Pictures of sweeps parse, have a mark for each point, and survive points that failed."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from coexec.observe.pictures.scaling import SweepAxis, counts_devices, scaling_svg

SVG = "{http://www.w3.org/2000/svg}"


def sweep(what: str, seconds: list[float | None], joules: float | None = 5.0) -> dict[str, Any]:
    points = []
    for i, s in enumerate(seconds):
        gain = None if s is None or seconds[0] is None else seconds[0] / s
        share = None if gain is None else gain / 2**i
        made = {"value": str(2**i), "devices": 2**i, "seconds": s, "speed_up": gain, "efficiency": share}
        points.append({**made, "joules": joules, "longest": "kernel <a> 90%"})
    return {"what": what, "points": points}


def drawn(svg: str, tag: str) -> list[ET.Element]:
    return ET.fromstring(svg).findall(f".//{SVG}{tag}")


def words(svg: str) -> str:
    return " ".join("".join(text.itertext()) for text in drawn(svg, "text"))


def test_strong_scaling_has_a_point_for_each_number_of_devices_and_the_ideal_line() -> None:
    svg = scaling_svg([sweep("devices", [4.0, 2.2, 1.5])], "app.py on <a100x4>")
    assert len(drawn(svg, "circle")) == 3
    assert len(drawn(svg, "polyline")) == 1
    for text in ("app.py on <a100x4>", "Strong scaling", "ideal", "4.00 s", "91%", "speed-up"):
        assert text in words(svg)
    assert "prefers-color-scheme:dark" in svg


def test_other_sweeps_are_bars_with_time_and_energy() -> None:
    svg = scaling_svg([sweep("link pcie bandwidth", [0.004, 0.002])])
    assert len(drawn(svg, "rect")) == 3, "the background, and two bars"
    for text in ("Time by link pcie bandwidth", "4.00 ms", "5.00 J"):
        assert text in words(svg)


def test_several_sweeps_are_one_below_the_other() -> None:
    one, two = (scaling_svg([sweep("devices", [2.0, 1.0])] * n) for n in (1, 2))
    assert 2 * float(ET.fromstring(one).get("height", 0)) == float(ET.fromstring(two).get("height", 0))


@pytest.mark.parametrize("seconds", [[None, None], [2.0], [2.0, None, 1.0], [1.0, 3.0], [1.0, 1.0], [1e-9, 1e-12]])
@pytest.mark.parametrize("what", ["devices", "nodes", "network latency"])
def test_points_that_failed_or_got_slower_are_no_trouble(what: str, seconds: list[float | None]) -> None:
    svg = scaling_svg([sweep(what, seconds, joules=None)])
    marks = len(drawn(svg, "circle")) + len(drawn(svg, "rect")) - 1
    assert marks == sum(s is not None for s in seconds)


def test_an_axis_has_its_powers_of_two() -> None:
    axis = SweepAxis(0.9, 9.0)
    assert axis.powers() == [1.0, 2.0, 4.0, 8.0]
    assert (axis.share(0.9), axis.share(9.0)) == (0.0, 1.0)


def test_numbers_of_devices_are_strong_scaling() -> None:
    assert [counts_devices(what) for what in ("devices", "nodes", "device gpu count", "network latency")] == [
        *[True] * 3,
        False,
    ]
