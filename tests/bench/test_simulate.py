"""The benchmark that compares simulations with real runs: what it covers, and that its figures are right."""

from __future__ import annotations

import pytest

import coexec as cx
from coexec.backend.simulated import NOTHING
from coexec.bench.apps.programs import folder
from coexec.bench.dag.harness import PROGRAMS
from coexec.bench.simulate.programs import Turns, cases
from coexec.bench.simulate.validation import Rates, Repetitions, WatchedRuns, compare, figures, spread, summary

NO_PROGRAM = {"common", "graph_stream", "window_stream", "image_stream", "streaming", "resnet"}
"""Files of examples/ that others import; streams, which `coexec bench pipeline` covers; models, which `bench dnn` does."""
RATES = Rates(20e9, 30e9)
TWICE = Repetitions(1, 1, 1, 1, rounds=2)


def test_every_example_and_every_program_of_the_dag_benchmark_is_covered() -> None:
    examples = {path.stem for path in folder().glob("*.py")} - NO_PROGRAM
    assert set(cases(small=True)) == examples | {f"dag {name}" for name in PROGRAMS}


@pytest.mark.parametrize("name", ["heat", "cg", "dag VEC"])
def test_a_program_is_measured_and_simulated(name, tmp_path) -> None:
    case = cases(small=True)[name]()
    found = compare(case, "cpu:0", TWICE, NOTHING, RATES, tmp_path / "store.sqlite")
    assert found["program"] == name
    assert found["measured_s"] > 0.0
    assert found["simulated_s"] > 0.0
    assert found["error"] == pytest.approx(found["simulated_s"] / found["measured_s"] - 1.0)
    assert found["kernels"] >= 1
    assert found["runs"] == 2
    assert sum(found["sources"].values()) == pytest.approx(1.0)


def test_only_programs_that_read_values_compute_any() -> None:
    for name, make in cases(small=True).items():
        case = make()
        with cx.Runtime(platform="laptop", execute=case.values, diagnostics="off") as runtime:
            turns = Turns(case, runtime)
            assert turns.seconds() > 0.0, name
            turns.close()


def watched(*seconds: float) -> WatchedRuns:
    return WatchedRuns(list(seconds), 4.0, 0.5, 0.1)


def test_the_error_is_that_of_the_median_relative_to_what_was_measured() -> None:
    case = cases(small=True)["heat"]()
    found = figures(case, "cpu:0", watched(1.0, 9.0, 2.0), watched(1.5, 1.8, 1.9))
    assert (found["measured_s"], found["simulated_s"]) == (2.0, 1.8)
    assert found["error"] == pytest.approx(-0.1)
    assert found["best_s"] == 1.0
    assert found["same_parts"]
    other = watched(1.0)._replace(kernels=3.0)
    assert not figures(case, "cpu:0", watched(1.0), other)["same_parts"]
    assert found["waited"] == pytest.approx(0.2)


def test_the_spread_is_what_half_of_the_runs_lie_within() -> None:
    assert spread([1.0, 2.0, 2.2, 1.9, 7.0]) == pytest.approx(0.1)


def test_the_summary_names_the_worst() -> None:
    errors = {"a": 0.02, "b": -0.3, "c": 0.04}
    found = summary([{"program": name, "error": error, "spread": 0.01} for name, error in errors.items()])
    assert (found["median_abs_error"], found["worst_abs_error"], found["worst_program"]) == (0.04, 0.3, "b")
