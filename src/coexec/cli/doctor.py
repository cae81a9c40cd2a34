"""`coexec doctor`: what is wrong with this installation, and the fix.

Before: devices.py, backend/opencl/probe.py, machine/.  After: app.py.  Changes nothing; a driver runs in a child only.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal

from ..config import BUILDING, PREFIX, Config, convert
from ..errors import ClusterError, CoexecError, ConfigError
from ..observe.pictures.svg import bytes_text
from .output import FAILURE, console, emit, table

State = Literal["ok", "hint", "warning", "broken"]
OLDEST_PYTHON = (3, 11)
OLDEST_NUMPY = (2, 0)
LIBRARIES = ("threadpoolctl", "psutil", "platformdirs", "typer", "rich")
WIDE = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
"""What a processor must be able to do for OpenBLAS's kernels named SkylakeX."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State  # hint = could be better; warning = something does not work; broken = programs cannot run
    text: str
    fix: str = ""


Check = Callable[[Mapping[str, str]], Iterator[Finding]]


def show(*, json: bool) -> None:
    """Print every finding; leave with exit code 1 if one is broken."""
    found = examine(os.environ)
    broken = [finding for finding in found if finding.state == "broken"]
    if json:
        emit({"ok": not broken, "findings": [asdict(finding) for finding in found]})
    else:
        _print(found, broken)
    if broken:
        raise SystemExit(FAILURE)


def examine(environ: Mapping[str, str]) -> list[Finding]:
    """Run every check; one that fails itself is a finding, too."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check(environ)
        except Exception as error:  # noqa: BLE001 - a doctor who faints helps nobody
            name = check.__name__.strip("_").replace("_", " ")
            found.append(Finding(name, "warning", f"could not be examined: {error}", "report it with this line"))
    return found


def _print(found: list[Finding], broken: list[Finding]) -> None:
    from rich.text import Text

    style = {"ok": "green", "hint": "cyan", "warning": "yellow", "broken": "bold red"}
    rows = []
    for finding in found:
        text = finding.text + (f"\n-> {finding.fix}" if finding.fix else "")
        rows.append((Text(finding.state, style=style[finding.state]), finding.what, text))
    screen = console()
    screen.print(table("", ["", "what", "found"], rows, numbers="llw"))
    warnings = [finding for finding in found if finding.state == "warning"]
    if broken:
        verdict = f"{len(broken)} broken: programs cannot run until that is fixed."
    elif warnings:
        verdict = "Programs run. Something optional does not work; the lines marked 'warning' say how to mend it."
    else:
        verdict = "All is well: programs run."
    screen.print(verdict, soft_wrap=True)


# Checks -----------------------------------------------------------------------------------------------------------------


def _python(environ: Mapping[str, str]) -> Iterator[Finding]:
    del environ
    text = f"{sys.version.split()[0]} ({sys.executable})"
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield Finding("Python", "broken", text, "install Python 3.11 or newer")
    else:
        yield Finding("Python", "ok", text)


def _numpy(environ: Mapping[str, str]) -> Iterator[Finding]:
    del environ
    import numpy as np

    if tuple(map(int, np.__version__.split(".")[:2])) < OLDEST_NUMPY:
        yield Finding("NumPy", "broken", np.__version__, "pip install 'numpy>=2.0'")
    else:
        yield Finding("NumPy", "ok", np.__version__)


def _libraries(environ: Mapping[str, str]) -> Iterator[Finding]:
    del environ
    from importlib.metadata import PackageNotFoundError, version

    present = []
    for name in LIBRARIES:
        try:
            present.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding(name, "broken", "is not installed", f"pip install {name}")
    yield Finding("libraries", "ok", ", ".join(present))


def _core(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Tell whether the modules that every task goes through are compiled."""
    del environ
    from importlib.machinery import EXTENSION_SUFFIXES

    from ..graph import tracker

    if (tracker.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES)):
        yield Finding("core", "ok", "compiled")
    else:
        yield Finding("core", "ok", "interpreted (COEXEC_COMPILE=1 pip install . compiles it)")


def _options(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at each COEXEC_ variable on its own, so that all mistakes are told at once."""
    from dataclasses import fields
    from difflib import get_close_matches

    known = {PREFIX + field.name.upper(): field for field in fields(Config)}
    given = sorted(name for name in environ if name.startswith(PREFIX))
    good = []
    for name in given:
        if name.removeprefix(PREFIX) in BUILDING:
            continue
        if name not in known:
            near = get_close_matches(name, known, n=1)
            fix = f"unset {name}" + (f", or did you mean {near[0]}?" if near else "; see coexec devices --options")
            yield Finding("options", "broken", f"{name} is no option of coexec", fix)
            continue
        try:
            convert(name, environ[name], known[name].default)
        except ConfigError as error:
            yield Finding("options", "broken", str(error), f"change or unset {name}; see coexec devices --options")
        else:
            good.append(f"{name}={environ[name]}")
    if good or not given:
        yield Finding("options", "ok", ", ".join(good) or f"no {PREFIX} variable is set")


def _cores(environ: Mapping[str, str]) -> Iterator[Finding]:
    del environ
    from ..machine.cores import available_cores, cpu_model, cpu_quota

    cores, machine, quota = available_cores(), os.cpu_count() or 1, cpu_quota()
    text = f"{len(cores)} of {machine} ({cpu_model()})"
    if len(cores) < machine:
        fix = "start the program without taskset, or ask the batch system for more cores"
        yield Finding("cores", "hint", f"{text}: this process may only use {_list(cores)}", fix)
    elif len(cores) == 1:
        yield Finding("cores", "hint", f"{text}: nothing runs beside anything else on the CPU", "use a larger machine")
    else:
        yield Finding("cores", "ok", text)
    if quota is not None and quota < len(cores):
        text = f"a control group allows {quota:g} cores' worth of time, and pauses what uses more"
        yield Finding("cores", "hint", text, "raise the container's CPU limit, or name fewer devices")


def _list(numbers: tuple[int, ...]) -> str:
    return ("core " if len(numbers) == 1 else "cores ") + ", ".join(map(str, numbers))


def _memory(environ: Mapping[str, str]) -> Iterator[Finding]:
    del environ
    from ..machine.cores import memory_capacity, memory_limit

    capacity, limit = memory_capacity(), memory_limit()
    if capacity is None:
        yield Finding("memory", "hint", "its size is unknown", "set COEXEC_MEMORY=host=SIZE")
    elif limit is not None and limit <= capacity:
        text = f"a control group allows {bytes_text(limit)}; the system ends programs that use more"
        yield Finding("memory", "hint", text, "raise the container's memory limit if arrays do not fit")
    else:
        yield Finding("memory", "ok", bytes_text(capacity))


def _library_threads(environ: Mapping[str, str]) -> Iterator[Finding]:
    import numpy as np  # noqa: F401 - loads the BLAS that is asked about
    from threadpoolctl import threadpool_info

    from ..machine.cores import available_cores

    pools = threadpool_info()
    text = ", ".join(f"{p['internal_api']} {p['num_threads']}" for p in pools) or "NumPy's BLAS is not adjustable"
    fewest = min((int(pool["num_threads"]) for pool in pools), default=0)
    named = [name for name in THREAD_VARIABLES if environ.get(name)]
    if pools and fewest < len(available_cores()) and named:
        fix = f"unset {named[0]}; coexec itself limits the libraries while single cores work"
        yield Finding("library threads", "hint", f"{text}: fewer than cores, set by {', '.join(named)}", fix)
    else:
        yield Finding("library threads", "ok", text)


def _blas(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Tell for which processor NumPy's OpenBLAS computes: it chooses when it is loaded, and not always well."""
    del environ
    import numpy as np  # noqa: F401 - loads the BLAS that is asked about
    from threadpoolctl import threadpool_info

    from ..machine.cores import cpu_flags

    pools = [pool for pool in threadpool_info() if pool["internal_api"] == "openblas"]
    chosen = sorted({str(pool["architecture"]) for pool in pools if pool.get("architecture")})
    text = f"OpenBLAS computes with the kernels for {', '.join(chosen)}"
    if "Haswell" in chosen and cpu_flags() >= WIDE:
        fix = "set OPENBLAS_CORETYPE=SkylakeX before the program starts: it may be quicker"
        yield Finding("BLAS", "hint", f"{text}, and the processor has AVX-512", fix)
    else:
        yield Finding("BLAS", "ok", text if chosen else "NumPy's is not OpenBLAS, or does not tell its kernels")


def _cpu(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Run a divided kernel on every core and compare, whatever the environment says."""
    del environ
    import numpy as np

    from .self_test import double

    import coexec as cx  # isort: skip  # as a user's program does

    x = np.arange(1 << 16, dtype=float)
    try:
        with _without_options(), cx.Runtime("cpu"):
            y = np.asarray(double(cx.array(x)))
    except CoexecError as error:
        yield Finding("CPU path", "broken", str(error), "report it with the output of coexec doctor --json")
        return
    if np.array_equal(y, 2 * x):
        yield Finding("CPU path", "ok", "a divided kernel ran on every core and gave NumPy's result")
    else:
        fix = "report it with the output of coexec doctor --json"
        yield Finding("CPU path", "broken", "a divided kernel gave a wrong result", fix)


@contextmanager
def _without_options() -> Iterator[None]:
    """Hide every COEXEC_ variable for a moment."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _opencl(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report the devices that work and those that do not; broken only if the environment names one of these."""
    from ..backend.opencl.probe import probe

    probed = probe()
    wanted = "opencl" in environ.get(f"{PREFIX}DEVICES", "")
    for device in probed.devices:
        text = f"opencl:{device.index} works: {device.name} ({device.platform}, driver {device.driver})"
        yield Finding("OpenCL", "ok", text)
    for entry in probed.unavailable:
        missing = entry.name == "opencl" and not probed.devices
        state: State = "broken" if wanted and not probed.devices else "hint" if missing else "warning"
        yield Finding("OpenCL", state, f"{entry.name}: {entry.reason}", entry.remedy)
    if any("Portable" in device.platform for device in probed.devices) and shutil.which("ld") is None:
        yield Finding("OpenCL", "warning", "PoCL needs the linker 'ld', which is not on the PATH", "install binutils")


def _torch(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report torch's devices; that there is none is broken only if the environment names one."""
    from ..backend.torch.driver import listing

    listed, missing = listing()
    for device in listed:
        yield Finding("torch", "ok", f"{device.name} works: {device.description}")
    for entry in missing:
        wanted = "torch" in environ.get(f"{PREFIX}DEVICES", "")
        yield Finding("torch", "broken" if wanted else "hint", f"{entry.name}: {entry.reason}", entry.remedy)


def _cache(environ: Mapping[str, str]) -> Iterator[Finding]:
    """See whether compiled kernels can be kept."""
    del environ
    from platformdirs import user_cache_path

    from ..backend.opencl.caches import writable

    folder = user_cache_path()
    if not writable(folder):
        text = f"{folder} cannot be written: drivers compile every OpenCL kernel again in every run"
        yield Finding("cache folder", "warning", text, "make it writable, or set XDG_CACHE_HOME to a folder that is")
    else:
        yield Finding("cache folder", "ok", str(folder))


def _ranks(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Tell what could carry messages between ranks, and whether the launcher that a user would type belongs to it."""
    from importlib.util import find_spec

    from ..cluster.launched import launched
    from ..cluster.launching import REMEDY, mpiexec

    carriers, own = [], None
    try:
        own = mpiexec()
        carriers.append(f"MPI ({own})")
    except ClusterError:
        pass
    if find_spec("torch") is not None:
        carriers.append("gloo (torch)")
    if not carriers:
        yield Finding("ranks", "hint", "nothing carries messages: programs run on one rank", REMEDY)
        return
    found = launched(environ)
    started = "" if found is None else f"; started by {found.by} as rank {found.rank} of {found.size}"
    yield Finding("ranks", "ok", f"carried by {', '.join(carriers)}{started}")
    typed = shutil.which("mpiexec", path=environ.get("PATH", ""))
    if own is not None and typed is not None and not own.samefile(typed):
        text = f"mpiexec on the PATH is {typed}, of another MPI than coexec's: its ranks would not meet"
        yield Finding("mpiexec", "hint", text, f"coexec run -n 4 app.py, or {own} -n 4 python app.py")


CHECKS: tuple[Check, ...] = (
    _python,
    _numpy,
    _libraries,
    _core,
    _options,
    _cpu,
    _cores,
    _memory,
    _library_threads,
    _blas,
    _opencl,
    _torch,
    _ranks,
    _cache,
)
