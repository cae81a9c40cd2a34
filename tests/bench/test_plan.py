"""The benchmark `plan`: what it compares, and what its figures say."""

from typing import Any

import coexec as cx
from coexec.bench.plan import changing, exact
from coexec.bench.plan.harness import classes, compare, is_named, named, run, sets, summary
from coexec.bench.plan.program import SizedProgram


def test_sets_are_one_of_each_class_each_class_and_every_union() -> None:
    platform = cx.Platform.load("a100x4")
    assert classes(platform) == [["cpu:0", "cpu:1"], ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]]
    assert sets(platform) == [
        ("cpu:0",),
        ("gpu:0",),
        ("cpu:0", "cpu:1"),
        ("gpu:0", "gpu:1", "gpu:2", "gpu:3"),
        ("cpu:0", "cpu:1", "gpu:0", "gpu:1", "gpu:2", "gpu:3"),
    ]
    assert named(sets(platform)[-1], platform) == "2 cpu,4 gpu"


def test_a_case_says_how_all_devices_compare_with_the_best_choice() -> None:
    wave = next(p for p in exact.programs(quick=True) if p.name == "wave_sim")
    case = compare(cx.Platform.load("laptop"), wave)
    assert case is not None
    assert case["ratio"] == case["best_set_s"] / case["period_s"]
    assert case["ratio"] > 0.0 and case["whole_run_ratio"] > 0.0 and 0.0 < case["told_ratio"] <= 1.0
    again = compare(cx.Platform.load("laptop"), wave)
    assert again == case  # virtual time repeats exactly


def test_every_program_can_be_run() -> None:
    programs: list[SizedProgram] = [*exact.programs(quick=False), *changing.programs(quick=False)]
    assert len({(p.name, p.size) for p in programs}) == len(programs)
    assert {p.exact for p in programs} == {True, False}


def test_the_summary_has_the_worst_of_each_kind() -> None:
    cases: list[dict[str, Any]] = [
        {"exact": True, "ratio": 0.9, "whole_run_ratio": 0.5, "told_ratio": 0.96},
        {"exact": True, "ratio": 1.1, "whole_run_ratio": 0.7, "told_ratio": 0.97},
        {"exact": False, "ratio": 0.3, "whole_run_ratio": 0.6, "told_ratio": 0.98},
    ]
    found = summary(cases)
    assert (found["worst_ratio"], found["mean_ratio"], found["worst_changing"]) == (0.9, 1.0, 0.3)
    assert (found["worst_whole_run"], found["worst_whole_run_told"]) == (0.5, 0.96)


def test_words_choose_cases() -> None:
    program = SizedProgram("dag VEC", "2,000,000", lambda _: lambda _: None)
    assert is_named([], "laptop", program) and is_named(["laptop", "VEC"], "laptop", program)
    assert not is_named(["laptop", "IMG"], "laptop", program) and not is_named(["lap"], "laptop", program)


def test_only_named_cases_are_run() -> None:
    told: list[str] = []
    found = run(True, told.append, only=["workstation", "matmul"])
    assert told == ["matmul 4096 x 4096 on workstation"] and len(found["cases"]) == 1
