"""The picture of a run is valid, complete and bounded."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from coexec.errors import ConfigError
from coexec.observe.pictures.gantt import gantt_svg
from coexec.observe.trace import Trace
from tests.observe.stories import Story, heat

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}text")]


def titles(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}title")]


def test_it_names_devices_lanes_kernels_and_the_figures() -> None:
    found = texts(gantt_svg(heat(8)))
    for expected in ("8 tasks in 10.6 ms", "program", "cpu:0", "cpu:1", "opencl:0", "lane 2", "heat", "copy back"):
        assert expected in found
    figures = next(text for text in found if "parallelism" in text)
    assert figures.startswith("parallelism 1.88 on 3 devices") and "56% of their time behind earlier ones" in figures
    assert "16 copies of 23.0 MB, 70% of their time behind kernels" in figures
    assert {"idle because:", "waiting for copy", "nothing submitted"} <= set(found)


def test_every_instruction_has_a_tooltip_when_there_is_room() -> None:
    trace = heat(8)
    found = titles(gantt_svg(trace, width=4000))
    assert sum(title.startswith("I") for title in found) == len(trace.work)
    copy = next(title for title in found if title.startswith("I3 copy"))
    assert copy == "I3 copy u: 1.40 ms\nT1 heat on opencl:0, lane 1\nhost -> opencl:0, 8.00 MB"
    assert any(title.startswith("idle ") and "(opencl:0 -> host)" in title for title in found)
    assert any(title.startswith("program waits") for title in found)


def test_bars_stay_inside_the_plot_in_proportion_to_time() -> None:
    story = Story((("cpu:0", [0]),))
    story.run("kernel", "a", "cpu:0", 1.0)
    story.run("kernel", "b", "cpu:0", 3.0)
    root = ET.fromstring(gantt_svg(story.trace(), width=1000))
    bars = [g.find(f"{SVG}rect") for g in root.iter(f"{SVG}g")]
    (a, b) = [bar for bar in bars if bar is not None][:2]
    assert float(b.get("x", 0)) + float(b.get("width", 0)) == pytest.approx(1000 - 28, abs=1)
    assert float(b.get("width", 0)) / float(a.get("width", 1)) == pytest.approx(3, abs=0.02)


def test_copies_are_hatched_by_direction() -> None:
    story = Story((("gpu:0", []),))
    story.run("copy", "x", "gpu:0", 1.0, link=("host", "gpu:0"))
    story.run("copy", "x", "gpu:0", 1.0, link=("gpu:0", "host"))
    root = ET.fromstring(gantt_svg(story.trace()))
    bars = [g.find(f"{SVG}rect") for g in root.iter(f"{SVG}g")]
    assert [bar.get("fill") for bar in bars if bar is not None][:2] == ["url(#to)", "url(#from)"]


def test_a_hundred_thousand_records_give_a_small_picture() -> None:
    ran = {"row": "ran", "kind": "kernel", "lane": 0, "waited": 0.0, "predicted": None, "state": "done"}
    rows = [
        {
            **ran,
            "id": i,
            "name": f"k{i // 9000}",
            "device": f"cpu:{i % 2}",
            "start": i * 1e-5,
            "stop": i * 1e-5 + 1.5e-5,
        }
        for i in range(100_000)
    ]
    picture = gantt_svg(Trace(rows))
    ET.fromstring(picture)
    assert len(picture) < 400_000


@pytest.mark.parametrize("trace", [Trace([]), Trace([{"row": "header", "version": 1, "devices": [{"name": "cpu:0"}]}])])
def test_an_empty_run_is_still_a_picture(trace: Trace) -> None:
    assert "0 tasks" in texts(gantt_svg(trace))[0]


def test_names_that_would_break_xml_do_not() -> None:
    story = Story()
    story.run("kernel", '<lambda> & "co" \x00', "cpu:0", 1.0, task=story.task("<lambda>"), state="failed")
    story.wait(0.0, 1.0, "a < b")
    picture = gantt_svg(story.trace())
    assert '<lambda> & "co" ?' in texts(picture) and 'class="bad"' in picture


def test_many_lanes_devices_and_kernels_stay_readable() -> None:
    story = Story(tuple((f"gpu:{n}", []) for n in range(4)))
    for lane in range(40):
        story.run("kernel", f"kernel{lane}", f"gpu:{lane % 3}", 1.0, lane=lane)
    found = texts(gantt_svg(story.trace()))
    assert "and 16 more" in found
    assert any("not used: gpu:3" in text for text in found)


def test_a_cut_off_trace_says_so() -> None:
    assert any("trace cut off" in text for text in texts(gantt_svg(Trace(heat(3).rows, complete=False))))


def test_it_needs_nothing_from_the_network_and_knows_dark_pages() -> None:
    picture = gantt_svg(heat(3))
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in picture


def test_it_is_written_where_asked(tmp_path: Path) -> None:
    picture = gantt_svg(heat(3), tmp_path / "run.svg")
    assert (tmp_path / "run.svg").read_text(encoding="utf-8") == picture
    with pytest.raises(ConfigError, match="cannot write the picture"):
        gantt_svg(heat(3), tmp_path)


def test_lanes_that_never_work_at_the_same_time_share_a_row() -> None:
    story = Story((("cpu:0", [0]), ("gpu:0", [])))
    previous = 0
    for lane in range(9):
        needs = (previous,) if previous else ()
        previous = story.run("kernel", "k", "cpu:0", 1e-3, lane=lane, needs=needs)
        story.run("kernel", "k", "gpu:0", 1e-3, lane=lane % 2)
    found = texts(gantt_svg(story.trace()))
    assert [text for text in found if text.startswith("lane ")] == ["lane 0", "lane 1"]  # of gpu:0


def test_the_hosts_bookkeeping_is_left_out_and_its_work_is_not() -> None:
    story = Story((("cpu:0", [0]),))
    story.run("kernel", "k", "cpu:0", 1.0)
    story.run("alloc", "alloc", "host", 0.5)
    assert "host" not in texts(gantt_svg(story.trace()))
    story.run("host task", "save", "host", 0.5)
    assert "host" in texts(gantt_svg(story.trace()))
