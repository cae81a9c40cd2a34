"""`coexec calibrate` measures, lists and forgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from coexec.calibrate import calibration
from coexec.cli import calibrate as command
from tests.cli.commands import Ended, call


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store") / "measured.sqlite"


def measure(store: Path, *arguments: object) -> Ended:
    return call(
        "calibrate", "--devices", "cpu:0", "--seconds", 1, "--ops", "matmul", *arguments, COEXEC_STORE=str(store)
    )


def test_a_calibration_says_how_well_predictions_fit_and_is_listed_and_forgotten(store: Path) -> None:
    environ = {"COEXEC_STORE": str(store)}
    ended = call("calibrate", "--devices", "cpu:0", "--seconds", 1, "--ops", "matmul", "--json", **environ)
    assert ended.code == 0
    assert ended.data["devices"] == ["cpu:0"]
    assert ended.data["store"] == str(store)
    assert {model["kernel"] for model in ended.data["models"]} == {"matmul_float32"}
    assert 0 < ended.data["seconds"] < 30
    listed = call("calibrate", "--list", "--json", **environ).data
    assert listed["models"][0]["kernel"] == "matmul_float32"
    assert "matmul_float32" in call("calibrate", "--list", **environ).out
    assert call("calibrate", "--clear", "--json", **environ).data["cleared"]
    assert call("calibrate", "--list", "--json", **environ).data["models"] == []
    assert "nothing yet" in call("calibrate", "--list", **environ).out
    assert "forgot 0 models" in call("calibrate", "--clear", **environ).err


def test_tables_name_kernels_and_what_there_was_no_time_for(store: Path) -> None:
    ended = call(
        "calibrate", "--devices", "cpu:0", "--seconds", 0.5, "--ops", "matmul,elementwise", COEXEC_STORE=str(store)
    )
    assert ended.code == 0
    for text in ("Kernels", "matmul_float32", "cpu:0", "median error", "Not measured", "no time was left"):
        assert text in ended.out
    assert f"kept in {store}" in ended.err


REPORT = calibration.Calibration(
    ("cpu:0", "gpu:0"),
    3.0,
    12,
    None,
    links=(calibration.LinkRate("host", "gpu:0", 5e-6, 8e9),),
    rates=(calibration.PeakRate("gpu:0", 5e11, 1e11),),
)


def test_links_and_rates_have_their_tables(capsys: pytest.CaptureFixture[str]) -> None:
    command._print(REPORT)
    shown = capsys.readouterr()
    for text in ("host to gpu:0", "5.00 µs", "8.00 GB/s", "500 Gflop/s", "100 GB/s"):
        assert text in shown.out
    assert "12 calls in 3.0 s, kept nowhere" in shown.err


def test_an_interrupted_calibration_leaves_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = calibration.Calibration(("cpu:0",), 0.1, 1, None, interrupted=True)
    monkeypatch.setattr(command, "_measure", lambda *_: interrupted)
    ended = call("calibrate", "--json")
    assert (ended.code, ended.data["interrupted"]) == (130, True)
    assert "what was measured until then is kept" in ended.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--ops", "matmull"), "did you mean 'matmul'"),
        (("--ops", ","), "names no operation"),
        (("--list", "--clear"), "exclude each other"),
        (("--devices", "cpu:x"), "cpu:x"),
    ],
)
def test_a_wrong_call_is_answered_in_one_sentence(arguments: tuple[str, ...], text: str) -> None:
    ended = call("calibrate", *arguments)
    assert ended.code == 2
    assert text in ended.err


def test_a_time_out_of_range_is_refused() -> None:
    assert call("calibrate", "--seconds", "-3").code == 2


def test_a_store_that_cannot_be_written_is_said_and_the_work_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    ended = measure(tmp_path / "file" / "measured.sqlite", "--json")
    assert ended.code == 0
    assert "cannot keep measurements" in ended.err
    assert ended.data["calls"] > 3
