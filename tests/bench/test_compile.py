"""`coexec bench compile`: every case runs, has NumPy's bits and the keys that are promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coexec.bench.compile import by_numba, harness as compiled
from coexec.bench.compile.apps import app_case
from coexec.bench.compile.harness import CASES, elements, run
from coexec.bench.compile.peers import PEERS, OutputStandIn, by_peer, in_namespace

KEYS = {
    "name", "devices", "numpy_ms", "blocked_ms", "compiled_ms", "gb_per_s", "triad_gb_per_s", "of_triad", "bits",
    "compile_ms",
}  # fmt: skip


def test_every_case_is_compiled_and_has_numpys_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(by_numba, "_LOOPS", {"triad": by_numba._LOOPS["triad"]})  # compiling them takes Numba seconds
    monkeypatch.setattr(compiled, "APPS", ())
    said: list[str] = []
    cases = run(True, said.append)["cases"]
    assert said == list(CASES)
    on_cores = [case for case in cases if case["devices"] != "opencl:0"]
    on_opencl = [case for case in cases if case["devices"] == "opencl:0"]
    ways = ("core:1", "core:2")
    assert [(case["name"], case["devices"]) for case in on_cores] == [(n, d) for n in CASES for d in ways]
    assert [case["name"] for case in on_opencl] in ([], list(CASES))
    computed = [case for case in cases if "refused" not in case]
    assert all(set(case) - {"numba_ms", "jax_ms", "dask_ms", "numexpr_ms"} == KEYS for case in computed)
    assert {case["name"] for case in on_opencl if "refused" in case} <= {"nbody", "nbody_close"}
    by_loops = [(case["name"], case["devices"]) for case in cases if "numba_ms" in case]
    assert by_loops in ([], [("triad", "core:1"), ("triad", "core:2")])
    rates = {(case["name"], case["devices"]): case["gb_per_s"] for case in on_cores}
    assert all(case["triad_gb_per_s"] == rates[CASES[case["name"]].triad, case["devices"]] for case in on_cores)
    assert {case["bits"] for case in on_cores if case["name"] != "nbody_close"} == {"equal"}
    near = {"equal", *(case["bits"] for case in cases if case["name"] == "nbody_close" and "bits" in case)}
    assert all(bits == "equal" or float(bits.removesuffix(" ulp")) < 1024 for bits in near)
    exact = ("triad", "wave", "heat", "masked", "kmeans_assign")
    assert {case["bits"] for case in on_opencl if case["name"] in exact} <= {"equal"}


def computed(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a small case, and what NumPy makes of them."""
    case = CASES[name]
    arguments = case.make(4000, np.random.default_rng(0))
    wanted = {key: value.copy() if key in case.writes else value for key, value in arguments.items()}
    case.body(**wanted)
    return arguments, wanted


@pytest.mark.parametrize("name", CASES)
def test_loops_by_hand_compute_what_the_body_does(name: str) -> None:
    arguments, wanted = computed(name)
    by_numba._LOOPS[name](**arguments)
    for key in CASES[name].writes:
        np.testing.assert_allclose(arguments[key], wanted[key], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("peer", PEERS)
def test_peers_compute_what_the_body_does(peer: str) -> None:
    pytest.importorskip(peer)
    for name, case in CASES.items():
        arguments, wanted = computed(name)
        work = by_peer(peer, name, case.body, arguments, case.writes)
        for key, result in zip(case.writes, work() if work else (), strict=False):
            np.testing.assert_allclose(np.asarray(result), wanted[key], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_body_computes_the_same_where_results_are_kept(name: str) -> None:
    arguments, wanted = computed(name)
    case = CASES[name]
    kept = {key: OutputStandIn(arguments[key]) for key in case.writes}
    in_namespace(case.body, np)(**arguments | kept)
    assert all(np.array_equal(kept[key].value, wanted[key]) for key in case.writes)


def test_an_application_has_the_figures_of_a_case() -> None:
    pytest.importorskip("llvmlite")
    case = app_case("wave_sim", (1, 1), 0.0, quick=True)
    assert case["name"] == "app_wave_sim"
    assert set(case) | {"triad_gb_per_s", "of_triad"} == KEYS or set(case) == {"name", "devices", "refused"}
    assert case.get("bits", "equal") == "equal"


@pytest.mark.parametrize("name", ["triad", "wave", "heat", "chain", "masked", "softmax"])
def test_what_memory_bounds_fills_at_least_four_last_caches(name: str) -> None:
    cache = 1 << 18
    made = CASES[name].make(elements(CASES[name], cache), np.random.default_rng(0))
    sizes = [made[key].nbytes for key in CASES[name].streams]
    assert min(sizes) >= 4 * cache


def test_chosen_cases_come_with_the_triad_that_they_are_compared_with() -> None:
    found = run(True, lambda _: None, only=["masked"])
    assert {case["name"] for case in found["cases"]} == {"triad_in_place", "masked"}
    assert all(case["of_triad"] > 0 for case in found["cases"] if "refused" not in case)
