"""`coexec plan` says who would do what, how long it would take, and why; nothing is computed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from coexec.plan.plan import Plan
from tests.cli.commands import Ended, call
from tests.devices import MIXED, TWO

MATMUL = ("plan", "matmul", "--m", 1200, "--n", 1000, "--k", 800)
HUGE = ("plan", "matmul", "--m", 200_000, "--n", 200_000, "--k", 200_000)  # 480 GB, if anything were allocated


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("store") / "measured.sqlite")
    measured = call(
        "calibrate", "--devices", MIXED, "--seconds", 3, "--ops", "matmul,reduce", "--json", COEXEC_STORE=path
    )
    assert measured.code == 0
    return path


def plan(store: str, *arguments: object) -> Ended:
    return call(*arguments, COEXEC_STORE=store)


def test_every_figure_of_the_plan_is_in_the_json(store: str) -> None:
    data = plan(store, *MATMUL, "--devices", MIXED, "--json").data
    assert (data["name"], data["space"], data["objective"]) == ("matmul_float32", [1200, 1000], "time")
    assert sum(part["share"] for part in data["parts"]) == pytest.approx(1.0)
    assert {part["source"] for part in data["parts"]} <= {"history", "regression"}
    assert data["limit_seconds"] > 0
    assert data["seconds"] == pytest.approx(max(part["finish_s"] for part in data["parts"]))
    assert data["speedup"] == pytest.approx(data["single"][data["best_single"]] / data["seconds"])
    assert {part["device"] for part in data["parts"]} | data["left_out"].keys() == {"cpu:0", "opencl:0"}
    assert data["hint"] == ""


def test_the_table_and_the_sentences_say_the_same(store: str) -> None:
    out = plan(store, *MATMUL, "--devices", MIXED, "--explain").out
    for text in (
        "matmul_float32 over 1200x1000",
        "share",
        "copy in",
        "predicted:",
        "limit:",
        "times as fast as",
        "alone:",
    ):
        assert text in out


def test_arrays_larger_than_the_memory_are_planned_without_one(store: str) -> None:
    data = plan(store, *HUGE, "--devices", TWO, "--json").data
    assert data["seconds"] > 1.0


def test_inputs_count_as_being_on_the_host(store: str) -> None:
    data = plan(store, *MATMUL, "--devices", MIXED.split(",")[1], "--json").data
    assert data["single"]["opencl:0"] > data["parts"][0]["compute_s"]


def test_a_machine_that_was_not_calibrated_is_told_to_be() -> None:
    ended = call(*MATMUL, "--devices", TWO, COEXEC_STORE="off")
    assert ended.code == 0
    assert "predicted: unknown" in ended.out
    assert "run `coexec calibrate` first" in ended.err
    assert call(*MATMUL, "--devices", TWO, "--json", COEXEC_STORE="off").data["seconds"] is None


def test_a_picture_and_a_file_that_loads_again_are_written(store: str, tmp_path: Path) -> None:
    picture, saved = tmp_path / "plan.svg", tmp_path / "plan.json"
    data = plan(store, *MATMUL, "--devices", MIXED, "--plot", picture, "--save", saved, "--json").data
    assert ET.parse(picture).getroot().tag.endswith("svg")
    assert all(name in picture.read_text(encoding="utf-8") for name in ("cpu:0", "opencl:0"))
    assert Plan.load(saved).seconds == data["seconds"]


@pytest.mark.parametrize(
    ("op", "options", "space"),
    [
        ("conv2d", ("--shape", "4,16,32,32", "--filters", 24, "--kernel", "3,5", "--padding", 1), [4, 24, 32, 30]),
        ("conv2d", ("--shape", "1,8,9,9", "--filters", 4, "--kernel", 3, "--stride", 2, "--groups", 2), [1, 4, 4, 4]),
        ("exp", ("--size", 1000, "--dtype", "float64"), [1000]),
        ("add", ("--size", 1000), [1000]),
        ("max", ("--size", 100), []),
    ],
)
def test_other_operations_are_planned_too(op: str, options: tuple[object, ...], space: list[int]) -> None:
    ended = call("plan", op, *options, "--devices", "cpu:0", "--json", COEXEC_STORE="off")
    assert (ended.code, ended.data["space"]) == (0, space)


def test_a_reduction_is_planned_by_its_blocks(store: str) -> None:
    data = plan(store, "plan", "sum", "--size", 20_000_000, "--devices", TWO, "--json").data
    assert data["name"] == "add_blocks"
    assert sum(part["share"] for part in data["parts"]) == pytest.approx(1.0)


def test_the_policy_is_followed(store: str) -> None:
    data = plan(store, *MATMUL, "--devices", MIXED, "--policy", "even", "--json").data
    assert (data["policy"], [part["share"] for part in data["parts"]]) == ("even", [0.5, 0.5])


def test_for_energy_the_frugal_device_does_more(store: str) -> None:
    def shares(watts: str, *more: object) -> dict[str, float]:
        data = plan(store, *MATMUL, "--devices", MIXED, "--watts", watts, "--json", *more).data
        assert data["joules"] > 0
        return {part["device"]: part["share"] for part in data["parts"]}

    assert shares("cpu:0=10,opencl:0=10000", "--objective", "energy") == {"cpu:0": 1.0}
    assert shares("cpu:0=10000,opencl:0=1", "--objective", "energy") == {"opencl:0": 1.0}


def test_a_cap_of_joules_is_kept_or_said_to_be_too_low(store: str) -> None:
    arguments = (*MATMUL, "--devices", MIXED, "--watts", "cpu:0=10/1,opencl:0=40/1", "--json")
    free = plan(store, *arguments).data
    data = plan(store, *arguments, "--energy-cap", free["joules"]).data
    assert data["joules"] <= free["joules"] * (1 + 1e-6)
    ended = plan(store, *arguments, "--energy-cap", free["joules"] / 1e6)
    assert ended.code == 1
    assert "J" in ended.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("matmull",), "did you mean 'matmul'"),
        (("matmul", "--m", 3), "matmul needs --n, --k"),
        (("matmul", "--m", 3, "--n", 3, "--k", 3, "--size", 4), "--size is no option of matmul"),
        (("sum", "--size", 3, "--dtype", "flaot32"), "did you mean 'float32'"),
        (("conv2d", "--shape", "1,2,3", "--filters", 1, "--kernel", "3"), "--shape '1,2,3' must be 4 whole numbers"),
        (("conv2d", "--shape", "1,2,3,-4", "--filters", 1, "--kernel", "3"), "whole numbers from 1"),
        (("conv2d", "--shape", "1,3,9,9", "--filters", 4, "--kernel", 3, "--groups", 2), "does not divide"),
        (("sum", "--size", 9, "--objective", "energy"), "give it as --watts"),
        (("sum", "--size", 9, "--energy-cap", 5), "give it as --watts"),
        (("sum", "--size", 9, "--objective", "speed"), "unknown objective 'speed'"),
        (("sum", "--size", 9, "--policy", "evn"), "did you mean 'even'"),
        (("sum", "--size", 9, "--watts", "cpu:0=x"), "device=busy/idle"),
        (("sum", "--size", 9, "--plot", "plan.png"), "end the name in .svg"),
        (("sum", "--size", 9, "--devices", "cup:0"), "did you mean 'cpu'"),
    ],
)
def test_a_wrong_call_is_answered_in_one_sentence(arguments: tuple[object, ...], text: str) -> None:
    ended = call("plan", *arguments)
    assert ended.code == 2
    assert text in ended.err
    assert not ended.out


def test_watts_of_the_environment_count_too(store: str) -> None:
    watts = {"COEXEC_STORE": store, "COEXEC_WATTS": "cpu:0=10,opencl:0=10000"}
    data = call(*MATMUL, "--devices", MIXED, "--objective", "energy", "--json", **watts).data
    assert [part["device"] for part in data["parts"]] == ["cpu:0"]


@pytest.mark.parametrize("option", ["--plot", "--save"])
def test_a_file_that_cannot_be_written_is_said(option: str, tmp_path: Path) -> None:
    target = tmp_path / "missing" / ("plan.svg" if option == "--plot" else "plan.json")
    ended = call("plan", "sum", "--size", 9, "--devices", "cpu:0", option, target)
    assert ended.code == 2
    assert "cannot write" in ended.err


def test_numbers_below_one_are_refused() -> None:
    assert call("plan", "matmul", "--m", 0, "--n", 1, "--k", 1).code == 2
