"""Where compiled kernels are kept: PoCL shows no device at all where it cannot write, and PyOpenCL waits or fails.

Before: nothing.  After: driver.py, probe.py.  Loads no driver: it prepares the environment in which one is loaded.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import NamedTuple

POCL, SHARED, PYOPENCL = "POCL_CACHE_DIR", "XDG_CACHE_HOME", "PYOPENCL_NO_CACHE"


class CacheTrouble(NamedTuple):
    """Why PoCL can keep nothing, and what helps."""

    reason: str
    remedy: str


def prepare(environ: MutableMapping[str, str] | None = None) -> CacheTrouble | None:
    """See to it that drivers find a folder they can write to; return what is wrong if there is none.

    A folder that the user named is left alone. In place of the usual one, PoCL gets a temporary folder of this process,
    and PyOpenCL keeps nothing. Call it before a driver is loaded, as often as you like.
    """
    environ = os.environ if environ is None else environ
    if environ.get(POCL):
        if writable(Path(environ[POCL])):
            return None
        return CacheTrouble(
            f"PoCL keeps compiled kernels in {POCL}={environ[POCL]}, which cannot be written to",
            f"name a folder that can be written to, or unset {POCL}",
        )
    usual = _usual(environ)
    if os.name != "posix" or usual is None or writable(usual / "pocl"):
        return None
    environ.setdefault(PYOPENCL, "1")
    try:
        environ[POCL] = _temporary()
    except OSError as error:
        return CacheTrouble(
            f"PoCL needs a folder for compiled kernels, and neither {usual} nor a temporary folder can be written to "
            f"({error.strerror or error})",
            f"set {POCL} or TMPDIR to a folder that can be written to",
        )
    return None


def writable(folder: Path) -> bool:
    """Tell whether files can be made in a folder, or the folder itself where it is missing."""
    import tempfile  # slow to load, and only needed where a driver is

    there = next((parent for parent in (folder, *folder.parents) if parent.exists()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=there):
            return True
    except OSError:
        return False


def _usual(environ: MutableMapping[str, str]) -> Path | None:
    """Return the folder of all caches, as PoCL finds it; None where it uses the system's temporary folder anyway."""
    if environ.get(SHARED):
        return Path(environ[SHARED])
    return Path(environ["HOME"], ".cache") if environ.get("HOME") else None


def _temporary() -> str:
    """Return a new folder of our own, which nobody else can put libraries into; it goes with the process."""
    import shutil
    import tempfile

    folder, owner = tempfile.mkdtemp(prefix="coexec-pocl-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a fork has inherited this, but not the folder
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
