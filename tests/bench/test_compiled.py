"""`coexec bench compile`: every case runs, has NumPy's bits and the keys that are promised."""

from __future__ import annotations

import pytest

from coexec.bench.compiled import CASES, run


def test_every_case_is_compiled_and_has_numpys_bits() -> None:
    pytest.importorskip("llvmlite")
    said: list[str] = []
    cases = run(True, said.append)["cases"]
    assert said == list(CASES)
    on_cores = [case for case in cases if case["devices"] != "opencl:0"]
    on_opencl = [case for case in cases if case["devices"] == "opencl:0"]
    ways = ("core:1", "core:2")
    assert [(case["name"], case["devices"]) for case in on_cores] == [(n, d) for n in CASES for d in ways]
    assert [case["name"] for case in on_opencl] in ([], list(CASES))
    keys = {
        "name",
        "devices",
        "numpy_ms",
        "blocked_ms",
        "compiled_ms",
        "gb_per_s",
        "triad_gb_per_s",
        "of_triad",
        "bits",
        "compile_ms",
    }
    computed = [case for case in cases if "refused" not in case]
    assert all(set(case) - {"numba_ms"} == keys for case in computed)
    assert {case["name"] for case in on_opencl if "refused" in case} <= {"nbody", "nbody_close"}
    assert {case["name"] for case in cases if "numba_ms" in case} in (
        set(),
        {"triad", "wave", "heat", "chain", "masked"},
    )
    assert {case["bits"] for case in on_cores if case["name"] != "nbody_close"} == {"equal"}
    near = {"equal", *(case["bits"] for case in cases if case["name"] == "nbody_close" and "bits" in case)}
    assert all(bits == "equal" or float(bits.removesuffix(" ulp")) < 1024 for bits in near)
    exact = ("triad", "wave", "heat", "masked", "kmeans_assign")
    assert {case["bits"] for case in on_opencl if case["name"] in exact} <= {"equal"}
