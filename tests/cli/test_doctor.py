"""`coexec doctor` names what is wrong and the fix, and is alarmed only when programs cannot run."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from coexec.backend.base import Unavailable
from coexec.backend.opencl import probe as probe_module
from coexec.backend.opencl.probe import Probe
from coexec.cli import doctor
from coexec.cli.doctor import Finding
from coexec.cluster import launching
from coexec.errors import ClusterError
from coexec.machine import cores
from tests.cli.commands import call
from tests.cli.test_devices import probed


def pretend(monkeypatch: pytest.MonkeyPatch, *found: Any, off: tuple[Unavailable, ...] = ()) -> None:
    monkeypatch.setattr(probe_module, "probe", lambda: Probe(found, off))


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)


def found(what: str, **environ: str) -> list[Finding]:
    return [finding for finding in doctor.examine(environ) if finding.what == what]


def test_a_sound_installation_passes() -> None:
    ended = call("doctor", "--json")
    assert ended.code == 0
    assert ended.data["ok"]
    states = {finding["what"]: finding["state"] for finding in ended.data["findings"]}
    assert states["Python"] == states["NumPy"] == states["CPU path"] == "ok"
    assert "programs run" in call("doctor").out.lower()


def test_a_finding_that_is_not_ok_has_a_fix() -> None:
    for finding in doctor.examine(dict(os.environ)):
        assert finding.state == "ok" or finding.fix


def test_every_wrong_variable_is_named_at_once_and_the_cpu_is_tried_all_the_same() -> None:
    ended = call("doctor", "--json", COEXEC_DEVCES="cpu", COEXEC_SYNC="maybe", COEXEC_HORIZON="9")
    assert ended.code == 1
    broken = [f for f in ended.data["findings"] if f["state"] == "broken"]
    assert [(f["text"], f["fix"]) for f in broken] == [
        ("COEXEC_DEVCES is no option of coexec", "unset COEXEC_DEVCES, or did you mean COEXEC_DEVICES?"),
        (
            "COEXEC_SYNC='maybe' must be 0, 1, true or false",
            "change or unset COEXEC_SYNC; see coexec devices --options",
        ),
    ]
    states = {f["what"]: f["state"] for f in ended.data["findings"] if f["what"] == "CPU path"}
    assert states == {"CPU path": "ok"}
    out = call("doctor", COEXEC_DEVCES="cpu").out
    assert "1 broken: programs cannot run until that is fixed." in out


def test_an_old_python_and_an_old_numpy_are_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "OLDEST_PYTHON", (99, 0))
    monkeypatch.setattr(doctor, "OLDEST_NUMPY", (99, 0))
    assert [f.state for f in found("Python") + found("NumPy")] == ["broken", "broken"]
    assert platform.python_version() in found("Python")[0].text


def test_a_missing_library_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LIBRARIES", ("rich", "a-package-nobody-has"))
    assert found("a-package-nobody-has") == [
        Finding("a-package-nobody-has", "broken", "is not installed", "pip install a-package-nobody-has")
    ]


@pytest.mark.parametrize(
    ("off", "state"),
    [
        (Unavailable("opencl", "PyOpenCL is not installed", "pip install 'coexec[opencl]'"), "hint"),
        (Unavailable("opencl", "no OpenCL driver (ICD) was found on this machine", "pip install x"), "hint"),
        (
            Unavailable("opencl:0", "PoCL needs the linker 'ld', which is not on the PATH", "install binutils"),
            "warning",
        ),
        (Unavailable("opencl:0", "the probe was killed by SIGABRT (boom)", "repair the driver"), "warning"),
    ],
)
def test_opencl_that_does_not_work_is_no_alarm(monkeypatch: pytest.MonkeyPatch, off: Unavailable, state: str) -> None:
    pretend(monkeypatch, off=(off,))
    assert found("OpenCL") == [Finding("OpenCL", state, f"{off.name}: {off.reason}", off.remedy)]  # type: ignore[arg-type]
    assert call("doctor").code == 0
    assert call("doctor", COEXEC_DEVICES="opencl:0").code == 1, "unless the environment wants it"


def test_pocl_without_a_linker_is_told_before_it_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, probed())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert [f.fix for f in found("OpenCL") if f.state == "warning"] == ["install binutils"]


def test_limits_of_the_process_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(cores, "available_cores", lambda: (3,))
    monkeypatch.setattr(cores, "cpu_quota", lambda: 0.5)
    first, second = found("cores")
    assert (first.state, second.state) == ("hint", "hint")
    assert "this process may only use core 3" in first.text
    assert "0.5 cores' worth of time" in second.text
    monkeypatch.setattr(cores, "memory_limit", lambda: 1000)
    monkeypatch.setattr(cores, "memory_capacity", lambda: 1000)
    assert "a control group allows 1.00 kB" in found("memory")[0].text


def test_libraries_kept_to_one_thread_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import threadpoolctl

    pool = {"internal_api": "openblas", "num_threads": 1}
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: [pool])
    monkeypatch.setattr(cores, "available_cores", lambda: (0, 1))
    (finding,) = found("library threads", OMP_NUM_THREADS="1")
    assert (finding.state, finding.text) == ("hint", "openblas 1: fewer than cores, set by OMP_NUM_THREADS")


@pytest.mark.parametrize(
    ("pools", "flags", "state", "says"),
    [
        (["Haswell"], doctor.WIDE | {"avx2"}, "hint", "the kernels for Haswell, and the processor has AVX-512"),
        (["Haswell"], {"avx2", "avx512f"}, "ok", "the kernels for Haswell"),
        (["SkylakeX"], doctor.WIDE, "ok", "the kernels for SkylakeX"),
        (["Haswell", "SkylakeX", "Haswell"], {"avx2"}, "ok", "the kernels for Haswell, SkylakeX"),
        ([], doctor.WIDE, "ok", "does not tell its kernels"),
    ],
)
def test_it_tells_for_which_processor_openblas_computes(
    monkeypatch: pytest.MonkeyPatch, pools: list[str], flags: set[str], state: str, says: str
) -> None:
    import threadpoolctl

    told = [{"internal_api": "openblas", "architecture": name} for name in pools]
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: [*told, {"internal_api": "openmp"}])
    monkeypatch.setattr(cores, "cpu_flags", lambda: frozenset(flags))
    (finding,) = found("BLAS")
    assert finding.state == state and finding.text.endswith(says)
    assert ("OPENBLAS_CORETYPE=SkylakeX" in finding.fix) == (state == "hint")


def test_the_architecture_is_that_of_the_library_which_is_loaded() -> None:
    import threadpoolctl

    (finding,) = found("BLAS")
    for pool in threadpoolctl.threadpool_info():
        assert pool["internal_api"] != "openblas" or pool["architecture"] in finding.text


def mpi_at(monkeypatch: pytest.MonkeyPatch, place: Path | None) -> None:
    def mpiexec() -> Path:
        if place is None:
            raise ClusterError("mpi4py is not installed here")
        return place

    monkeypatch.setattr(launching, "mpiexec", mpiexec)


def test_it_tells_what_carries_messages_between_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mpi_at(monkeypatch, tmp_path / "mpiexec")
    (finding,) = found("ranks", PMI_RANK="1", PMI_SIZE="4")
    assert finding.state == "ok"
    assert f"MPI ({tmp_path / 'mpiexec'})" in finding.text
    assert "started by mpiexec as rank 1 of 4" in finding.text


def test_without_a_carrier_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    mpi_at(monkeypatch, None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (finding,) = found("ranks")
    assert finding.state == "hint" and "coexec[mpi]" in finding.fix


def test_a_launcher_of_another_mpi_on_the_path_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mpiexec").write_text("#!/bin/sh\n")
        (tmp_path / name / "mpiexec").chmod(0o755)
    mpi_at(monkeypatch, tmp_path / "own" / "mpiexec")
    assert found("mpiexec", PATH=str(tmp_path / "own")) == []
    (finding,) = found("mpiexec", PATH=str(tmp_path / "other"))
    assert finding.state == "hint" and "its ranks would not meet" in finding.text and "coexec run -n" in finding.fix


def test_a_cache_folder_that_cannot_be_written_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked / "cache"))
    (finding,) = found("cache folder")
    assert finding.state == "warning"
    assert "XDG_CACHE_HOME" in finding.fix


def test_a_check_that_fails_itself_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def _strange(environ: object) -> Any:
        raise RuntimeError("oh")

    monkeypatch.setattr(doctor, "CHECKS", (_strange,))
    (finding,) = doctor.examine({})
    assert (finding.what, finding.state, finding.text) == ("strange", "warning", "could not be examined: oh")


def test_it_tells_which_kernels_of_a_script_are_compiled_and_why_others_are_not(tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    script = tmp_path / "app.py"
    script.write_text(
        """
import numpy as np
import coexec as cx

@cx.kernel(split=0, x=cx.read, y=cx.write)
def thrice(x, y):
    y[...] = 3 * x

@cx.kernel(split=0, x=cx.read, y=cx.write)
def ordered(x, y):
    y[...] = np.sort(x)

@cx.kernel(split=0, x=cx.read, y=cx.write)
def once(x, y):
    y[...] = x

with cx.Runtime("cpu:0"):
    x, y = cx.ones(1000), cx.zeros(1000)
    once(x, y)
    for _ in range(3):
        thrice(x, y)
        ordered(x, y)
    cx.wait()
print("printed by the script")
"""
    )
    ended = call("doctor", "--kernels", script, "--json")
    assert ended.code == 0
    states = {state["kernel"]: (state["state"], state["why"]) for state in ended.data["kernels"]}
    assert states["thrice"] == ("on", "")
    assert states["ordered"] == ("off", "np.sort is not compiled")
    assert states["once"][0] == "unknown"
    shown = call("doctor", "--kernels", script)
    assert "np.sort is not compiled" in shown.out
    assert call("doctor", "--kernels", tmp_path / "nothing.py").code != 0
