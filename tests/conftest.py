"""What every test shares: no deadline on a busy machine, Ctrl-C, and a cache folder that is not the user's."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("coexec", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coexec")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell script runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs inherit it, and tests interrupt them


def pytest_configure() -> None:
    """Choose the seed of random programs before there are other processes that share the tests."""
    from tests.fuzz import fresh  # noqa: F401 - it puts the seed into the environment


def pytest_report_header() -> str:
    """Say which seeds random programs begin with."""
    from tests.fuzz.fresh import FIRST_SEED

    return f"random programs: FUZZ_SEED={FIRST_SEED}"


def kernel_cache() -> Path | None:
    """Return the folder where PoCL keeps compiled kernels; None if this user has none that can be written."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("POCL_CACHE_DIR") or Path(caches, "pocl", "kcache"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep measured history out of the user's cache; PoCL keeps its own, or every run compiles every kernel again."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(kernel_cache() or folder))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("COEXEC_STORE", "off")  # or one test would plan by what another measured
        patch.setenv("COEXEC_COMPILE_BODIES", "off")  # or plans would change once tests have computed for long enough
        yield folder


@pytest.fixture
def bodies_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bodies be compiled, and run on OpenCL devices, as they do for users."""
    monkeypatch.setenv("COEXEC_COMPILE_BODIES", "auto")


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Leave what earlier modules left behind out of all collections: there is much of it, and nobody waits for it."""
    gc.collect()
    gc.freeze()
