"""The picture of a plan is valid, and shows every device, its copies, the limit and who is left out."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from coexec.observe.pictures.plan import plan_svg
from coexec.plan.plan import Part, Plan

SVG = "{http://www.w3.org/2000/svg}"
CPU = Part("cpu:0", "python", (0, 0), (6, 8), 0.75, 0.0, 0.03, 0.0, 0.03, 0.05, "regression")
GPU = Part("gpu:0", "opencl", (6, 0), (8, 8), 0.25, 0.005, 0.02, 0.002, 0.027, 0.1, "history")
PLAN = Plan(
    "kernel", "a<b", "", (8, 8), (CPU, GPU), 0.03, 0.1, 1.5,
    single={"cpu:0": 0.04, "gpu:0": 0.08}, left_out={"cpu:1": "it is busy & slow"}, limit_s=0.08 / 3,
)  # fmt: skip


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}text")]


def titles(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}title")]


def test_every_device_has_a_row_and_who_does_nothing_a_reason() -> None:
    found = texts(plan_svg(PLAN, {"fpga:0": "no variant of this kernel runs on it"}))
    for text in ("cpu:0", "gpu:0", "cpu:1", "fpga:0", "it is busy & slow", "no variant of this kernel runs on it"):
        assert text in found
    assert "a<b over 8 x 8" in found
    assert "predicted: 30.0 ms ±10%, 1.5 J" in found


def test_bars_tell_shares_copies_and_sources() -> None:
    picture = plan_svg(PLAN)
    assert "cpu:0: 75.0% as python, 30.0 ms ±5% by regression" in titles(picture)
    assert {"copy in: 5.00 ms", "copy out: 2.00 ms"} <= set(titles(picture))
    assert "limit 26.7 ms" in texts(picture)


def test_a_bar_ends_where_its_device_is_done() -> None:
    bars = [
        element
        for group in ET.fromstring(plan_svg(PLAN)).iter(f"{SVG}g")
        if (group.findtext(f"{SVG}title") or "").startswith(("cpu:0:", "copy out"))
        for element in group.iter(f"{SVG}rect")
    ]
    ends = [float(bar.attrib["x"]) + float(bar.attrib["width"]) - 120 for bar in bars]
    assert abs(ends[1] / ends[0] - 0.9) < 0.01


def test_a_plan_of_which_nothing_is_known_is_drawn_too() -> None:
    unknown = replace(CPU, compute_s=None, finish_s=None, share=1.0, source="unknown")
    found = texts(
        plan_svg(replace(PLAN, parts=(unknown,), seconds=None, joules=None, single={}, left_out={}, space=()))
    )
    assert {"cpu:0", "100.0%: unknown time", "predicted: unknown", "a<b over 1"} <= set(found)
