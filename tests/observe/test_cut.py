"""One stretch of a run as a trace of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from coexec.observe.cut import cut, save
from coexec.observe.report import summary
from coexec.observe.trace import Trace
from tests.observe.stories import Story


def two_turns() -> Trace:
    story = Story()
    last: tuple[int, ...] = ()
    for turn in range(2):
        task = story.task("step", 1.0 + 10.0 * turn, after=(turn,) if turn else ())
        story.command(task, ("cpu:0",), after=(turn,) if turn else ())
        last = (story.run("kernel", "step", "cpu:0", 0.5, task=task, needs=last),)
        story.wait(1.1 + 10.0 * turn, 1.5 + 10.0 * turn, "read")
    return story.trace()


def test_a_cut_holds_one_stretch_with_times_from_its_start() -> None:
    part = cut(two_turns(), 11.0, 20.0)
    assert [(t["id"], t["submitted"], t["after"]) for t in part.tasks] == [(2, 0.0, [])]
    assert [c["after"] for c in part.commands] == [[]]
    assert [(i["id"], i["needs"]) for i in part.instructions] == [(2, [])]
    assert [(r["id"], r["start"], r["stop"]) for r in part.ran] == [(2, 0.0, 0.5)]
    assert [(w["start"], w["stop"]) for w in part.waits] == [(pytest.approx(0.1), 0.5)]
    assert part.header["devices"]
    assert part.duration == 0.5


def test_a_cut_that_is_saved_can_be_loaded_and_reported(tmp_path: Path) -> None:
    part = cut(two_turns(), 0.0, 11.0)
    save(part, tmp_path / "part.json")
    loaded = Trace.load(tmp_path / "part.json")
    assert loaded.complete
    assert loaded.rows == part.rows
    assert summary(loaded)["counts"]["tasks"] == 1
