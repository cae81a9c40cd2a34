"""Fits need SciPy's solver, which runtimes fetch in the background: here it is there from the start."""

from __future__ import annotations

import pytest

from coexec.predict.regression import solver


@pytest.fixture(scope="session", autouse=True)
def fetched() -> None:
    """Fetch the solver."""
    solver()
