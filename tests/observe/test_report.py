"""The summary of small runs with known answers."""

from __future__ import annotations

import json

import pytest

from coexec.observe.report import LISTED, summary
from coexec.observe.trace import Trace
from tests.observe.stories import Story, heat


def small() -> Story:
    """Return: a copy of 1 s to the device, a kernel of 2 s there, one of 4 s on a core beside it, a failed one."""
    story = Story((("cpu:0", [0]), ("gpu:0", [])))
    task = story.task("axpy", scheduling=0.25)
    copy = story.run("copy", "x", "gpu:0", 1.0, lane=1, task=task, link=("host", "gpu:0"), nbytes=1000)
    story.run("kernel", "axpy", "gpu:0", 2.0, task=task, needs=(copy,), predicted=1.0)
    story.run("kernel", "axpy", "cpu:0", 4.0, task=task, waited=1.0, predicted=2.0)
    bad = story.task("bad", submitted=1.0, scheduling=0.75)
    story.run("kernel", "bad", "gpu:0", 1.0, task=bad, state="failed")
    story.run("fill", "y", "cpu:0", 0.5, nbytes=64)
    story.rows.append({"row": "ran", "id": 99, "kind": "kernel", "name": "later", "task": bad, "device": "cpu:0"})
    story.rows[-1].update(start=None, stop=None, state="cancelled", lane=0)
    story.wait(1.0, 3.0, "np.asarray(y)")
    story.wait(2.0, 4.0, "np.asarray(y)")
    story.rows.append({"row": "note", "t": 1.0, "text": "variant off"})
    return story


def test_times_of_the_run_and_its_devices() -> None:
    report = summary(small().trace())
    assert report["makespan"] == report["duration"] == 4.5
    cpu, gpu = report["devices"]["cpu:0"], report["devices"]["gpu:0"]
    assert (cpu["busy"], cpu["idle"], cpu["utilisation"], cpu["kernels"]) == (4.5, 0.0, 1.0, 1)
    assert (gpu["busy"], gpu["idle"], gpu["copying"], gpu["kernels"]) == (3.0, 1.5, 1.0, 2)
    assert gpu["idle_by_cause"]["waiting for copy"] == 1.0 and gpu["idle_by_cause"]["end of program"] == 0.5
    assert gpu["idle_details"] == [{"cause": "waiting for copy", "detail": "host -> gpu:0", "seconds": 1.0}]
    assert report["busy"] == 7.5 and report["parallelism"] == pytest.approx(7.5 / 4.5)
    assert [(lane["device"], lane["lane"], lane["busy"]) for lane in report["lanes"]] == [
        ("cpu:0", 0, 4.5),
        ("gpu:0", 0, 3.0),
        ("gpu:0", 1, 1.0),
    ]


def test_kernel_times_leave_the_interpreter_lock_out_and_predictions_are_judged() -> None:
    report = summary(small().trace())
    axpy = report["kernels"]["axpy"]
    assert (axpy["count"], axpy["total"], axpy["mean"], axpy["median"]) == (2, 5.0, 2.5, 2.5)
    assert (axpy["min"], axpy["max"], axpy["waited"]) == (2.0, 3.0, 1.0)
    assert axpy["predicted"] == 3.0 and axpy["bias"] == pytest.approx(5 / 3 - 1)
    assert axpy["error"] == pytest.approx((1.0 + 0.5) / 2)
    assert report["gil_wait"] == {"total": 1.0, "kernels": {"axpy": 1.0}}
    assert report["kernels"]["bad"]["count"] == 0 and report["kernels"]["bad"]["mean"] is None


def test_copies_fills_waits_and_scheduling() -> None:
    report = summary(small().trace())
    link = report["copies"]["links"]["host -> gpu:0"]
    assert link.pop("reasons") == {"coherence": 1}
    assert link == {"over": "", "count": 1, "bytes": 1000, "seconds": 1.0, "bytes_per_second": 1000.0}
    assert (report["copies"]["count"], report["copies"]["bytes"]) == (1, 1000)
    assert report["fills"] == {"y": {"count": 1, "bytes": 64}}
    assert report["user_wait"] == {"total": 3.0, "count": 2, "what": {"np.asarray(y)": 4.0}}
    assert (report["scheduling"]["total"], report["scheduling"]["per_task"], report["scheduling"]["max"]) == (
        1.0,
        0.5,
        0.75,
    )
    assert report["scheduling"]["tasks"]["bad"]["mean"] == 0.75


def test_failures_cancellations_overlap_and_critical_path() -> None:
    report = summary(small().trace())
    assert report["failures"]["first"] == [{"id": 4, "kind": "kernel", "what": "T2 bad", "device": "gpu:0"}]
    assert report["cancelled"] == {
        "count": 1,
        "first": [{"id": 99, "kind": "kernel", "what": "T2 bad", "device": "cpu:0"}],
    }
    assert report["overlap"] == pytest.approx({"ct": 1 / 7, "tc": 1.0, "cc": 3 / 7, "tot": 4 / 8})
    path = report["critical_path"]
    assert path["length"] == 4.0 and path["names"] == {"axpy": 4.0} and path["share"] == pytest.approx(4 / 4.5)
    assert report["counts"]["failed"] == report["counts"]["cancelled"] == 1
    assert report["notes"]["first"] == [{"t": 1.0, "text": "variant off"}]


def test_a_copy_on_the_critical_path_is_named_by_its_link() -> None:
    story = Story()
    copy = story.run("copy", "x", "opencl:0", 2.0, link=("host", "opencl:0"))
    story.run("kernel", "k", "opencl:0", 1.0, needs=(copy,))
    assert list(summary(story.trace())["critical_path"]["names"]) == ["copy host -> opencl:0", "k"]


def test_long_lists_are_cut_and_still_counted() -> None:
    story = Story()
    for _ in range(LISTED + 5):
        story.run("kernel", "bad", "cpu:0", 1.0, state="failed")
    failures = summary(story.trace())["failures"]
    assert failures["count"] == LISTED + 5 and len(failures["first"]) == LISTED


@pytest.mark.parametrize("trace", [Trace([]), Trace([{"row": "header", "version": 1}]), heat(5)])
def test_the_summary_is_plain_json_whatever_ran(trace: Trace) -> None:
    assert json.loads(json.dumps(summary(trace), allow_nan=False))["counts"]["tasks"] == len(trace.tasks)
