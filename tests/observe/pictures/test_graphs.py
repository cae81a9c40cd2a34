"""The three graphs of a run as text, picture and page."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from coexec.errors import UnknownName
from coexec.observe.pictures.graphs import graph_dot, graph_html, graph_svg
from coexec.observe.pictures.nodes import LEVELS, Arrow, graph
from coexec.observe.trace import Trace
from tests.observe.stories import Story, heat

SVG = "{http://www.w3.org/2000/svg}"


def small() -> Trace:
    story = Story((("cpu:0", [0]), ("gpu:0", [])))
    first, second = story.task("make"), story.task("use", after=(1,))
    story.command(first, ("cpu:0",))
    story.command(second, ("cpu:0", "gpu:0"), after=(1,))
    make = story.run("kernel", "make", "cpu:0", 1e-3, task=first)
    copy = story.run("copy", "x", "gpu:0", 2e-3, task=second, needs=(make,), link=("host", "gpu:0"))
    story.run("kernel", "use", "gpu:0", 1e-3, task=second, needs=(copy,), after=(make, copy))
    return story.trace()


def test_task_graph_as_text() -> None:
    assert graph_dot(small(), "task").splitlines() == [
        "digraph tasks {",
        "  rankdir=TB; node [shape=box, style=rounded, fontname=Helvetica, fontsize=10];",
        '  subgraph cluster_0 { label="cpu:0"; color="#d0d7de"; fontname=Helvetica;',
        '    T1 [label="T1 make\\napp.py:1", color="#4477AA"];',
        "  }",
        '  subgraph cluster_1 { label="cpu:0, gpu:0"; color="#d0d7de"; fontname=Helvetica;',
        '    T2 [label="T2 use\\napp.py:2", color="#4477AA"];',
        "  }",
        "  T1 -> T2;",
        "}",
    ]


def test_commands_show_their_chunks() -> None:
    nodes, arrows = graph(small(), "command")
    assert [(n.name, n.label, n.detail) for n in nodes] == [("C1", "make", "cpu:0 [0:100]"), ("C2", "use", "2 chunks")]
    assert nodes[1].devices == ("cpu:0", "gpu:0") and "gpu:0 [100:200]" in nodes[1].title
    assert arrows == [Arrow(1, 2, solid=True)]


def test_needs_are_solid_and_after_is_dashed() -> None:
    dot = graph_dot(small(), "instruction")
    assert "  I1 -> I2;" in dot and "  I2 -> I3;" in dot and "  I1 -> I3 [style=dashed];" in dot
    picture = graph_svg(small(), "instruction")
    edges = [e for e in ET.fromstring(picture).iter(f"{SVG}path") if e.get("marker-end")]
    assert sorted("stroke-dasharray" in e.attrib for e in edges) == [False, False, True]


def test_instructions_name_kind_device_time_and_link() -> None:
    copy = graph(small(), "instruction").nodes[1]
    assert (copy.name, copy.label, copy.detail, copy.devices) == ("I2", "copy x", "gpu:0 · 2.00 ms", ("gpu:0",))
    assert "host -> gpu:0" in copy.title and "T2" in copy.title


def test_an_instruction_that_never_ran_says_so() -> None:
    row = {"row": "instruction", "id": 4, "kind": "horizon", "device": "", "needs": [], "after": []}
    node = graph(Trace([row]), "instruction").nodes[0]
    assert (node.label, node.detail, node.devices) == ("horizon", "not run", ())
    assert "cluster" not in graph_dot(Trace([row]), "instruction")


@pytest.mark.parametrize("level", LEVELS)
def test_every_node_is_in_the_picture(level: str) -> None:
    trace = heat(6)
    picture = graph_svg(trace, level)
    names = {tspan.text for tspan in ET.fromstring(picture).iter(f"{SVG}tspan")}
    assert names == {node.name for node in graph(trace, level).nodes}
    assert "left out" not in picture


def test_a_large_graph_shows_its_beginning_and_says_what_is_missing() -> None:
    trace = heat(200)
    picture = graph_svg(trace, "instruction", most=50)
    assert len(list(ET.fromstring(picture).iter(f"{SVG}tspan"))) == 50
    total = len(trace.instructions)
    assert f"Only I1 to I50: {total - 50:,} instructions and " in picture and "are left out" in picture
    assert graph_dot(trace, "instruction").count("label=") == total + len(trace.devices)


def test_an_unknown_level_is_answered_with_the_right_one() -> None:
    with pytest.raises(UnknownName, match="did you mean 'task'"):
        graph_svg(small(), "tasks")


def test_quotes_and_angles_in_names_are_harmless() -> None:
    story = Story()
    story.task('<lambda> "x" \\ ')
    trace = story.trace()
    assert 'label="T1 <lambda> \\"x\\" \\\\ \\n' in graph_dot(trace, "task")
    ET.fromstring(graph_svg(trace, "task"))


def test_an_empty_run_has_empty_graphs() -> None:
    for level in LEVELS:
        assert f"0 {level}s" in graph_svg(Trace([]), level)
        assert "->" not in graph_dot(Trace([]), level)


def test_the_page_has_three_tabs_and_needs_no_network() -> None:
    page = graph_html(heat(6))
    assert [f'data-tab="{level}"' in page for level in LEVELS] == [True] * 3
    assert page.count("<svg") == page.count('role="tabpanel"') == 3
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "src=" not in page and "@import" not in page
    ids = [f'id="tip-{level}"' for level in LEVELS]
    assert all(page.count(id) == 1 for id in ids), "markers of the three pictures do not collide"
