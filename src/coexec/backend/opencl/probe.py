"""Find out which OpenCL devices work, without risk to this process.

Before: nothing.  After: runtime, cli/ (`coexec devices`, `coexec doctor`).  Never loads a driver here: a child process
does, because a broken driver may crash (PoCL aborts the whole process when `ld` is missing).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from ...machine.cores import cpu_flags
from ..base import Unavailable
from . import caches, processor_name

MARK = "coexec-probe "
"""Begins each line that is the probe's own: drivers print what they like."""
INSTALL = "pip install 'coexec[opencl]' brings PyOpenCL and a driver that runs on any x86-64 CPU"


@dataclass(frozen=True, slots=True)
class ProbedDevice:
    """An OpenCL device that compiled and ran a kernel, as plain data."""

    index: int  # the number in "opencl:0"
    name: str
    vendor: str
    platform: str
    type: str  # cpu, gpu or accelerator
    compute_units: int
    global_memory: int  # bytes
    largest_buffer: int  # bytes
    unified: bool  # shares its memory with the host
    fp64: bool
    version: str
    driver: str

    def as_dict(self) -> dict[str, object]:
        """Return it as JSON-ready data."""
        return asdict(self)


class Probe(NamedTuple):
    """What was found, and what is off and why."""

    devices: tuple[ProbedDevice, ...]
    unavailable: tuple[Unavailable, ...] = ()


class ProbeOutcome(NamedTuple):
    """How the child ended."""

    code: int | None  # None: it did not end in time
    output: str
    errors: str
    started: bool = True


_lock = threading.Lock()


def probe(timeout: float = 30.0) -> Probe:
    """Return the OpenCL devices that work, found once per process in a child that may take `timeout` seconds."""
    if find_spec("pyopencl") is None:
        return Probe((), (Unavailable("opencl", "PyOpenCL is not installed", INSTALL),))
    with _lock:
        return _probed(timeout)


@cache
def _probed(timeout: float) -> Probe:
    trouble = caches.prepare()
    return understand(run_child(timeout), has_linker=shutil.which("ld") is not None, trouble=trouble)


def run_child(timeout: float, environ: Mapping[str, str] | None = None) -> ProbeOutcome:
    """Run the probe in a child process, with this process's module path."""
    environ = os.environ if environ is None else environ
    try:
        done = subprocess.run(  # noqa: S603  our own interpreter and our own text
            [sys.executable, "-c", CHILD],
            input=json.dumps([sys.path, processor_name.__file__, sorted(cpu_flags())]),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=dict(environ),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return ProbeOutcome(None, _text(late.stdout), _text(late.stderr))
    except OSError as error:
        return ProbeOutcome(-1, "", f"{sys.executable}: {error}", started=False)
    return ProbeOutcome(done.returncode, done.stdout, done.stderr)


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def understand(outcome: ProbeOutcome, *, has_linker: bool, trouble: caches.CacheTrouble | None = None) -> Probe:
    """Turn what the child said, and how it ended, into devices and reasons; `trouble`: what hides PoCL's devices."""
    said = [row for line in outcome.output.splitlines() if (row := _row(line)) is not None]
    known = {field.name for field in fields(ProbedDevice)}
    works = tuple(ProbedDevice(**{k: row["device"][k] for k in known}) for row in said if "device" in row)
    off = [
        Unavailable(row["name"], row["failed"], _driver_remedy(row.get("type", ""))) for row in said if "failed" in row
    ]
    trying = next((row["name"] for row in reversed(said) if "trying" in row), "opencl")
    if not any("over" in row for row in said):
        off.append(_interrupted(outcome, trying, has_linker=has_linker))
    elif not works and trouble is not None:
        off.append(Unavailable("opencl", trouble.reason, trouble.remedy))
    elif not works and not off:
        off.append(Unavailable("opencl", "no OpenCL driver (ICD) was found on this machine", INSTALL))
    return Probe(works, tuple(off))


def _row(line: str) -> dict[str, Any] | None:
    if not line.startswith(MARK):
        return None
    try:
        row = json.loads(line[len(MARK) :])
    except json.JSONDecodeError:  # cut off by a crash
        return None
    return row if isinstance(row, dict) else None


def _interrupted(outcome: ProbeOutcome, trying: str, *, has_linker: bool) -> Unavailable:
    """Return why the child never came to its end."""
    last = next((line.strip() for line in reversed(outcome.errors.splitlines()) if line.strip()), "no message")
    if not outcome.started:
        return Unavailable(trying, f"the probe could not be started ({last})", "let this user run Python itself")
    if outcome.code is None:
        return Unavailable(trying, "the driver did not answer in time", "restart the machine or remove the driver")
    if not has_linker or 'Executable "ld"' in outcome.errors:
        return Unavailable(trying, "PoCL needs the linker 'ld', which is not on the PATH", "install binutils")
    killed = outcome.code < 0
    how = f"was killed by {_signal_name(-outcome.code)}" if killed else f"ended with exit code {outcome.code}"
    return Unavailable(
        trying, f"the probe {how} ({last})", "repair or remove the OpenCL driver, or leave the device out"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _driver_remedy(type: str) -> str:
    return "update the driver of the graphics card" if type == "gpu" else "repair or remove the OpenCL driver"


CHILD = """
import json, sys
sys.path[:], processor_name, able = json.load(sys.stdin)

def say(**row):
    print("\\ncoexec-probe " + json.dumps(row), flush=True)

import os, runpy, time
import numpy as np
import pyopencl as cl

name_processor = runpy.run_path(processor_name)["name_processor"]

def describe(index, device, platform):
    kinds = ((cl.device_type.CPU, "cpu"), (cl.device_type.GPU, "gpu"))
    return dict(
        index=index, name=" ".join(device.name.split()), vendor=device.vendor.strip(), platform=platform.name.strip(),
        type=next((name for bit, name in kinds if device.type & bit), "accelerator"),
        compute_units=int(device.max_compute_units), global_memory=int(device.global_mem_size),
        largest_buffer=int(device.max_mem_alloc_size), unified=bool(device.host_unified_memory),
        fp64="cl_khr_fp64" in device.extensions.split(), version=device.version.strip(), driver=device.driver_version.strip(),
    )

def attempt(device):
    name_processor(device, able)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    fresh = time.time_ns() ^ (os.getpid() << 20)  # not from any cache: the compiler and the linker must run
    source = "__kernel void probe(__global long *x) { x[get_global_id(0)] = get_global_id(0) + %dL; }" % (fresh & (2**62 - 1))
    kernel = cl.Kernel(cl.Program(context, source).build(), "probe")
    found = np.zeros(4, np.int64)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, found.nbytes)
    kernel.set_args(buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (4,), None)
    cl.enqueue_copy(queue, found, buffer)
    if (np.diff(found) != 1).any():
        raise RuntimeError("a test kernel gave a wrong result")

try:
    platforms = cl.get_platforms()
except cl.Error as error:
    if "PLATFORM_NOT_FOUND" not in str(error):
        raise
    platforms = []
index = 0
for platform in platforms:
    try:
        devices = platform.get_devices()
    except cl.Error as error:
        say(name="opencl", failed="%s has no usable device: %s" % (platform.name, error))
        continue
    for device in devices:
        name = "opencl:%d" % index
        say(trying=True, name=name)
        row = describe(index, device, platform)
        try:
            attempt(device)
        except Exception as error:
            say(name=name, type=row["type"], failed=(str(error).strip().splitlines() or [type(error).__name__])[0])
        else:
            say(device=row)
        index += 1
say(over=True)
"""
