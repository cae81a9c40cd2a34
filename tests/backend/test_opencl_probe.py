from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from coexec.backend.opencl import caches, probe as probe_module
from coexec.backend.opencl.probe import MARK, ProbeOutcome, probe, run_child, understand
from tests.backend.opencl_parts import needs_opencl

DEVICE = {
    "index": 0,
    "name": "Fast",
    "vendor": "V",
    "platform": "P",
    "type": "gpu",
    "compute_units": 8,
    "global_memory": 2**30,
    "largest_buffer": 2**28,
    "unified": False,
    "fp64": True,
    "version": "OpenCL 3.0",
    "driver": "1",
}


def said(*rows):
    return "".join(f"noise\n{MARK}{json.dumps(row)}\n" for row in rows)


TRYING = {"trying": True, "name": "opencl:0"}


def test_a_device_that_works_is_plain_data():
    found = understand(ProbeOutcome(0, said(TRYING, {"device": DEVICE}, {"over": True}), ""), has_linker=True)
    assert found.unavailable == ()
    assert found.devices[0].as_dict() == DEVICE


def test_a_machine_without_a_driver_is_told_what_to_install():
    found = understand(ProbeOutcome(0, said({"over": True}), ""), has_linker=True)
    assert found.devices == ()
    assert "no OpenCL driver" in found.unavailable[0].reason and "pip install" in found.unavailable[0].remedy


def test_a_device_that_fails_its_kernel_is_off_and_the_others_are_not():
    failed = {"name": "opencl:1", "type": "gpu", "failed": "OUT_OF_RESOURCES"}
    found = understand(ProbeOutcome(0, said(TRYING, {"device": DEVICE}, failed, {"over": True}), ""), has_linker=True)
    assert [device.name for device in found.devices] == ["Fast"]
    assert found.unavailable[0][:2] == ("opencl:1", "OUT_OF_RESOURCES") and "driver" in found.unavailable[0].remedy


@pytest.mark.parametrize(
    ("outcome", "linker", "reason"),
    [
        (ProbeOutcome(-6, said(TRYING), "Aborted"), False, "needs the linker 'ld'"),
        (ProbeOutcome(-6, said(TRYING), 'Executable "ld" doesn\'t exist!\nfailed'), True, "needs the linker 'ld'"),
        (ProbeOutcome(-11, said(TRYING), "boom\n\n"), True, r"killed by SIGSEGV \(boom\)"),
        (ProbeOutcome(-250, said(TRYING), ""), True, "killed by signal 250"),
        (ProbeOutcome(1, said(TRYING), "Traceback\nImportError: x"), True, r"exit code 1 \(ImportError: x\)"),
        (ProbeOutcome(None, said(TRYING), ""), True, "in time"),
        (ProbeOutcome(-6, f"{MARK}[1]\n{said(TRYING)}{MARK}{{cut of", ""), True, "SIGABRT"),
    ],
)
def test_a_crash_names_the_device_the_cause_and_the_remedy(outcome, linker, reason):
    (off,) = understand(outcome, has_linker=linker).unavailable
    assert off.name == "opencl:0" and off.remedy
    assert re.search(reason, off.reason)


def test_without_pyopencl_the_answer_is_quick_and_starts_no_child(monkeypatch):
    monkeypatch.setattr(probe_module, "find_spec", lambda name: None)
    monkeypatch.setattr(probe_module, "run_child", lambda timeout: pytest.fail("started a child"))
    (off,) = probe().unavailable
    assert off.reason == "PyOpenCL is not installed" and "pip install" in off.remedy


def test_a_child_that_cannot_start_is_a_reason_not_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (off,) = understand(run_child(5.0), has_linker=True).unavailable
    assert "/nowhere/python" in off.reason


def test_a_child_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(probe_module, "CHILD", "import threading; threading.Event().wait()")
    assert run_child(0.2).code is None


@needs_opencl
def test_the_probe_is_made_once_per_process():
    assert probe() is probe()


@needs_opencl
def test_a_missing_linker_is_found_out_without_harm(tmp_path):
    if probe().devices[0].platform != "Portable Computing Language":
        pytest.skip("only PoCL needs a linker")
    outcome = run_child(60.0, {**os.environ, "PATH": str(tmp_path)})
    found = understand(outcome, has_linker=False)
    assert found.devices == () and found.unavailable[0].remedy == "install binutils"


@needs_opencl
def test_where_the_usual_folder_cannot_be_written_kernels_are_kept_in_a_temporary_one(tmp_path):
    (tmp_path / "home").write_text("")  # a file: nobody can make a folder in it, not even root
    script = (
        "import os, numpy as np, coexec as cx\n"
        "with cx.Runtime('opencl:0'):\n"
        "    assert np.asarray(cx.ones(3) + 1).tolist() == [2, 2, 2]\n"
        "print(os.environ['POCL_CACHE_DIR'])\n"
    )
    environ = {k: v for k, v in os.environ.items() if k not in ("XDG_CACHE_HOME", "POCL_CACHE_DIR")}
    environ |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["home"]  # it goes with the process


def test_a_folder_of_the_users_own_choice_is_left_alone_and_blamed_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    environ = {"POCL_CACHE_DIR": str(tmp_path / "file" / "kernels")}
    trouble = caches.prepare(environ)
    assert trouble is not None and f"POCL_CACHE_DIR={tmp_path}" in trouble.reason and "unset" in trouble.remedy
    assert list(environ) == ["POCL_CACHE_DIR"]
    (off,) = understand(ProbeOutcome(0, said({"over": True}), ""), has_linker=True, trouble=trouble).unavailable
    assert off.reason == trouble.reason and off.remedy == trouble.remedy
    found = understand(ProbeOutcome(0, said({"device": DEVICE}, {"over": True}), ""), has_linker=True, trouble=trouble)
    assert found.devices and not found.unavailable  # another driver does without


def test_without_any_writable_folder_the_reason_says_so(tmp_path, monkeypatch):
    def refuse(**options):
        raise PermissionError(13, "Permission denied", options["prefix"])

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    trouble = caches.prepare({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert trouble is not None and "neither" in trouble.reason and "Permission denied" in trouble.reason
    assert caches.prepare({"XDG_CACHE_HOME": str(tmp_path)}) is None
    assert caches.prepare({}) is None  # PoCL itself uses the temporary folder then


def test_a_child_that_cannot_be_started_is_no_drivers_fault(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (off,) = understand(run_child(1.0), has_linker=True).unavailable
    assert "could not be started" in off.reason and "driver" not in off.remedy
