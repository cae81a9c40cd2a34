"""`coexec plan MODEL` and `coexec run-model`: tables, JSON, pages, files, and errors of one sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import html5lib
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import coexec as cx
from coexec.cli.model_page import model_page
from coexec.models.onnx_annotations import read_annotations
from coexec.plan.plan import Part, Plan
from tests.cli.commands import call
from tests.models.test_model_plans import small_net
from tests.models.test_onnx_files import floats, model as onnx_model

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    small_net().save(path)
    return path


def test_a_model_is_planned_for_a_platform_and_everything_is_written(file: Path, tmp_path: Path) -> None:
    page, saved, notes = tmp_path / "plan.html", tmp_path / "plan.json", tmp_path / "annotated.onnx"
    ended = call(
        "plan", file, "--platform", "f1.16xlarge", "--budget", "20min", "--plot", page, "--save", saved, "--annotate", notes, "--explain",
    )  # fmt: skip
    assert ended.code == 0
    assert "conv1" in ended.out and "% less" in ended.out and "gap 0.00%" in ended.out
    plan = Plan.load(saved)
    assert read_annotations(notes, cx.Model.from_onnx(file)) == plan
    check_page(page.read_text(encoding="utf-8"), plan)


class Counted(HTMLParser):
    """Counts elements, and notes what would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.foreign += [value for name, value in attrs if name in ("src", "href") and value]


def check_page(text: str, plan: Plan) -> None:
    layers = [layer for group in plan.children for layer in group.children]
    seen = Counted()
    seen.feed(text)
    assert seen.foreign == [] and "script" not in seen.tags
    assert all(layer.name in text for layer in layers)
    assert seen.tags["rect"] >= sum(len(layer.parts) for layer in layers)
    assert seen.tags["tr"] == 3 + len(plan.considered) + len(plan.children) + len(layers)


def test_the_page_is_html_without_a_single_error() -> None:
    """Parsed as browsers do it, by a parser that raises where they would guess: all pieces lie where they belong."""
    plan = small_net().plan("f1.16xlarge", budget="20min")
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(model_page(plan))
    layers = [layer for group in plan.children for layer in group.children]
    rows = ["".join(row.itertext()) for row in tree.iter("tr")]
    assert all(any(layer.name in row for row in rows) for layer in layers)
    drawn = [one for one in tree.iter() if str(one.tag).endswith("svg")]
    assert len(drawn) == 1
    boxes = [one for one in drawn[0].iter() if str(one.tag).endswith("rect")]
    assert len(boxes) >= sum(len(layer.parts) for layer in layers)
    width = float(drawn[0].attrib["viewBox"].split()[2])
    for box in boxes:
        left, wide = float(box.attrib["x"]), float(box.attrib["width"])
        assert left >= 0 and wide >= 0 and left + wide <= width + 1e-6, "nothing is drawn outside of the picture"


def test_branches_that_run_side_by_side_are_drawn_side_by_side() -> None:
    def layer(name: str, device: str, begin: float, end: float) -> Plan:
        part = Part(device, "whole", (0,), (1,), 1.0, compute_s=end - begin, finish_s=end)
        return Plan("layer", name, "", (1,), (part,), end - begin)

    sets = [layer("left", "a:0", 0.0, 2.0), layer("right", "b:0", 0.0, 1.0), layer("joined", "a:0", 2.0, 4.0)]
    children = tuple(Plan("set", f"set {n}", "", (1,), (), one.seconds, children=(one,)) for n, one in enumerate(sets))
    plan = Plan("model", "net", "", (3,), (), 4.0, objective="latency", children=children, considered={"single": 5.0})
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(model_page(plan))
    drawn = next(one for one in tree.iter() if str(one.tag).endswith("svg"))
    bars = [[float(box.attrib[at]) for at in ("x", "width")] for box in drawn.iter() if str(box.tag).endswith("rect")]
    unit = bars[1][1]
    assert [[(x - bars[0][0]) / unit, wide / unit] for x, wide in bars] == [
        pytest.approx([0, 2], abs=0.01), pytest.approx([0, 1]), pytest.approx([2, 2], abs=0.01)
    ]  # fmt: skip


def test_long_names_of_accelerators_leave_room_for_the_bars_and_more_is_not_less() -> None:
    name = "n3/accelerator-in-the-cellar:12"
    part = Part(name, "whole", (0,), (1,), 1.0, compute_s=1.0, finish_s=1.0)
    layer = Plan("layer", "only", "", (1,), (part,), 1.0)
    group = Plan("set", "set 0", "", (0, 1), (), 1.0, children=(layer,))
    text = model_page(
        Plan("model", "net", "", (1,), (), 1.0, objective="latency", children=(group,), considered={"h2h": 0.8})
    )
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    (bar,) = [one for one in tree.iter() if str(one.tag).endswith("rect")]
    assert float(bar.attrib["x"]) >= 7 * len(name)
    assert "25.0% more" in text and "-25.0%" not in text


def browser() -> list[str]:
    """Return the command that prints a page as a browser has it, or nothing."""
    found = [path for name in BROWSERS if (path := shutil.which(name))]
    if found:
        return [found[0], "--headless", "--no-sandbox", "--dump-dom"]
    spec = find_spec("lightpanda")  # a browser without a screen, as a package
    return [str(Path(str(spec.origin)).parent / "lightpanda"), "fetch", "--dump", "html"] if spec else []


class Quiet(SimpleHTTPRequestHandler):
    """Serves files of a folder, and says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_the_page_is_taken_by_a_real_browser(tmp_path: Path) -> None:
    command = browser()
    if not command:
        pytest.skip(f"there is no browser: none of {', '.join(BROWSERS)} is installed, nor coexec[browser]")
    plan = small_net().plan("f1.16xlarge", budget="20min")
    (tmp_path / "plan.html").write_text(model_page(plan), encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        quiet = os.environ | {"LIGHTPANDA_DISABLE_TELEMETRY": "true"}
        address = f"http://127.0.0.1:{server.server_address[1]}/plan.html"
        drawn = subprocess.run(
            [*command, address], capture_output=True, text=True, timeout=120, check=True, env=quiet
        ).stdout
        server.shutdown()
    check_page(drawn, plan)


def test_a_plan_as_json_has_all_that_the_table_has(file: Path) -> None:
    asked = ("--baseline", "cp", "--baseline", "h2h")
    data = call("plan", file, "--platform", "f1.16xlarge", "--budget", "20min", *asked, "--json").data
    assert data["gap"] == pytest.approx(0.0, abs=1e-9)
    assert list(data["reduction"]) == ["cp", "h2h"] and min(data["reduction"].values()) > 0
    assert data["plan"]["children"]


def test_a_model_runs_as_planned_and_tells_both_times(file: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 17, 13)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    saved, out = tmp_path / "plan.json", tmp_path / "y.npy"
    assert call("plan", file, "--devices", "cpu:0,cpu:1", "--save", saved).code == 0
    arguments = ("run-model", file, "--input", tmp_path / "x.npy", "--output", out, "--devices", "cpu:0,cpu:1")
    data = call(*arguments, "--plan", saved, "--json").data
    assert data["seconds"] > 0 and data["predicted_s"] > 0
    np.testing.assert_allclose(np.load(out), np.asarray(small_net()(x)), rtol=1e-4, atol=1e-5)
    assert "for the first call, which gets everything ready" in " ".join(call(*arguments).out.split())
    assert "everything ready" not in " ".join(call(*arguments, "--repeat", "2").out.split())


@pytest.fixture
def reshaped(tmp_path: Path) -> Path:
    """A file whose second input decides about shapes, and whose third has one element."""
    number = helper.make_tensor_value_info("to", TensorProto.INT64, (2,))
    scale = helper.make_tensor_value_info("scale", TensorProto.FLOAT, (1,))
    nodes = [helper.make_node("Reshape", ["x", "to"], ["r"]), helper.make_node("Mul", ["r", "scale"], ["y"])]
    path = tmp_path / "reshaped.onnx"
    onnx.save(onnx_model(nodes, [floats("x", 6), number, scale], ["y"], shape=(2, 3)), path)
    return path


@pytest.mark.parametrize("to", ["2,3", "2, 3", "FILE"])
def test_inputs_that_must_be_constants_are_given_as_values(reshaped: Path, tmp_path: Path, to: str) -> None:
    x, out = np.arange(6, dtype=np.float32), tmp_path / "y.npy"
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "to.npy", np.array([2, 3]))
    values = ("--value", f"to={tmp_path / 'to.npy' if to == 'FILE' else to}", "--value", "scale=0.1,")
    ended = call("run-model", reshaped, *values, "--input", tmp_path / "x.npy", "--output", out)
    assert ended.code == 0, ended.err
    np.testing.assert_array_equal(np.load(out), (x * np.float32(0.1)).reshape(2, 3))


def test_a_model_with_values_is_planned(tmp_path: Path) -> None:
    number = helper.make_tensor_value_info("to", TensorProto.INT64, (2,))
    nodes = [helper.make_node("Reshape", ["x", "to"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    onnx.save(
        onnx_model(nodes, [floats("x", 6), number, floats("w", 3, 4)], ["y"], shape=(2, 4)), tmp_path / "product.onnx"
    )
    asked = ("plan", tmp_path / "product.onnx", "--platform", "f1.16xlarge", "--budget", "20min", "--json")
    assert call(*asked, "--value", "to=2,3").data["macs"] == 2 * 3 * 4
    ended = call(*asked)
    assert ended.code != 0 and "on the command line as --value name=2,3" in ended.err


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("to", "--value 'to' must be name=16000"),
        ("to=", "--value 'to=' must be name=16000"),
        ("=2,3", "must be name=16000"),
        ("to=two", "must be a number, numbers separated by commas"),
        ("to=2,,3", "must be a number, numbers separated by commas"),
        ("to=none.npy", "give a .npy file of numbers"),
        ("q=1", "'q', which is no input of the model"),
        ("to=2", "the shape (), and the model says (2)"),
        ("to=2.5,3", "'to' float64, and the model takes int64"),
    ],
)
def test_a_wrong_value_is_one_sentence(reshaped: Path, value: str, says: str) -> None:
    ended = call("run-model", reshaped, "--value", value)
    assert ended.code in (1, 2) and says in ended.err
    assert "Traceback" not in ended.err
    twice = call("run-model", reshaped, "--value", "to=2,3", "--value", "to=3,2")
    assert "'to' is given twice" in twice.err
    for command in (("plan", "matmul"), ("plan", "resnet18"), ("run-model", "resnet18")):
        assert "is for inputs of ONNX files" in call(*command, "--value", "to=2,3").err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("plan", "none.onnx"), "there is no file none.onnx"),
        (("plan", "FILE", "--platform", "f2"), "f2"),
        (("plan", "FILE", "--platform", "f1.16xlarge", "--objective", "speed"), "unknown objective 'speed'"),
        (("plan", "FILE", "--platform", "f1.16xlarge", "--baseline", "cpp"), "did you mean 'cp'"),
        (("plan", "FILE", "--platform", "f1.16xlarge", "--budget", "soon"), "is no time"),
        (("plan", "FILE", "--platform", "f1.16xlarge", "--plot", "plan.svg"), "end the name in .html"),
        (("plan", "FILE", "--shape", "x=a,b"), "must be name=1,3,224,224"),
        (("plan", "resnet51", "--platform", "f1.16xlarge"), "unknown operation or model 'resnet51'; did you mean 'resnet50'"),
        (("plan", "folder", "--platform", "f1.16xlarge"), "FILE.onnx"),
        (("run-model", "FILE", "--input", "x=a.npy", "--input", "x=b.npy"), "'x' is given twice"),
        (("run-model", "FILE"), "needs the input 'x'"),
        (("run-model", "FILE", "--input", "FILE"), "give a .npy file"),
        (("run-model", "FILE", "--input", "q=x.npy"), "the model has x"),
        (("run-model", "facebag"), "planned but not run"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(file: Path, arguments: tuple[str, ...], says: str) -> None:
    ended = call(*(file if argument == "FILE" else argument for argument in arguments))
    assert ended.code in (1, 2) and says in ended.err
    assert "Traceback" not in ended.err
