"""`coexec simulate` runs programs with streams: on the virtual clock, with what each stage did."""

from __future__ import annotations

from pathlib import Path

import pytest

from coexec.observe.trace import Trace
from tests.cli.commands import call

STREAM = """
import sys
import numpy as np
import coexec as cx

def two_products(x, w):
    return cx.matmul(cx.relu(cx.matmul(x, w)), w)

w = np.eye(512, dtype=np.float32)
with cx.Pipeline(two_products, w=w) as pipe:
    count = 0
    for number, result in enumerate(pipe.stream(np.full((512, 512), n, np.float32) for n in range(12))):
        assert result.shape == (512, 512)
        if "--look" in sys.argv:
            assert float(result[0, 0]) == number
        count += 1
print(count, "items")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "app.py").write_text(STREAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COEXEC_STORE", "off")
    return tmp_path


def test_a_stream_without_values_comes_to_its_end_and_every_stage_is_told(here: Path) -> None:
    ended = call("simulate", "app.py", "--platform", "workstation", "--json")
    data = ended.data
    assert (data["exit_code"], data["until"], data["summary"]["failures"]["count"]) == (0, None, 0)
    assert "reads values" not in ended.err
    (stream,) = data["streams"]
    assert (stream["name"], stream["items"], stream["failed"]) == ("two_products", 12, 0)
    assert 0.0 < stream["planning_s"] < stream["seconds"] <= data["seconds"]
    assert stream["items_per_s"] == pytest.approx(12 / (stream["seconds"] - stream["planning_s"]))
    for stage in stream["stages"]:
        assert stage["seconds_per_item"] == pytest.approx(stage["predicted_compute"], abs=10e-6)  # which has the launch
    assert stream["joules_per_item"] > 0.0
    assert Trace.load(here / "simulated.json").streams[0]["items"] == 12
    assert "Stream two_products: 12 items in " in call("trace", "simulated.json", COLUMNS="160").out


def test_a_program_that_looks_at_results_has_them_computed(here: Path) -> None:
    ended = call("simulate", "app.py", "--platform", "workstation", "--execute", "--look", COLUMNS="160")
    assert ended.code == 0, ended.err
    assert "Stream two_products: 12 items in " in ended.out and "stage 0" in ended.out
