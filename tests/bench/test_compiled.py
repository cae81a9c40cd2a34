"""`coexec bench compile`: every case runs, has NumPy's bits and the keys that are promised."""

from __future__ import annotations

import pytest

from coexec.bench.compiled import CASES, run


def test_every_case_is_compiled_and_has_numpys_bits() -> None:
    pytest.importorskip("llvmlite")
    said: list[str] = []
    cases = run(True, said.append)["cases"]
    assert said == list(CASES)
    assert [(case["name"], case["devices"]) for case in cases] == [(n, d) for n in CASES for d in ("core:1", "core:2")]
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
    assert all(set(case) - {"numba_ms"} == keys for case in cases)
    assert {case["name"] for case in cases if "numba_ms" in case} in (
        set(),
        {"triad", "wave", "heat", "chain", "masked"},
    )
    assert {case["bits"] for case in cases} == {"equal"}
