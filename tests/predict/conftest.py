"""A file for a store; and SciPy's solver, which runtimes fetch in the background, is there from the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from coexec.predict.regression import solver


@pytest.fixture(scope="session", autouse=True)
def fetched() -> None:
    """Fetch the solver."""
    solver()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a store may be made."""
    return tmp_path / "store.sqlite"
