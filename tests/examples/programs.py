"""The applications among the examples at small size, as tests run them: by name, with the arguments of each function.

Before: examples/.  After: tests/examples/test_*.py.  Knows the shape all of them share: start, compute, reference.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import coexec as cx
from tests.repository import ROOT

Data = np.ndarray[Any, Any]


class Application(NamedTuple):
    """An example, sizes for `start`, further arguments of `compute` and `reference`, and how close they come."""

    name: str
    sizes: tuple[int, ...]
    further: Mapping[str, Any] = {}
    reference_too: bool = True  # `reference` takes the further arguments as well
    everywhere: bool = True  # all its kernels have OpenCL variants
    tolerance: float = 1e-9  # relative to the largest value

    @property
    def module(self) -> Any:
        """The example, imported."""
        folder = str(ROOT / "examples")
        if folder not in sys.path:
            sys.path.append(folder)
        return import_module(self.name)

    def start(self) -> tuple[Data, ...]:
        """Return the first contents of its arrays."""
        return tuple(self.module.start(*self.sizes))

    def expected(self) -> list[Data]:
        """Return NumPy's results."""
        arrays = tuple(array.copy() for array in self.start())
        return list(map(np.asarray, self.module.reference(*arrays, **(self.further if self.reference_too else {}))))

    def computed(self, **options: Any) -> list[Data]:
        """Return coexec's results, from a runtime with these options."""
        with cx.Runtime(**options):
            return list(map(np.asarray, self.module.compute(*map(cx.array, self.start()), **self.further)))

    def differing(self, found: list[Data], expected: list[Data]) -> list[tuple[int, float]]:
        """Return which results are further from the expected ones than allowed, and by how much."""
        assert [a.shape for a in found] == [a.shape for a in expected]
        off = [float(np.max(np.abs(a - b), initial=0.0)) for a, b in zip(found, expected, strict=True)]
        largest = [float(np.max(np.abs(b), initial=0.0)) or 1.0 for b in expected]
        return [(n, o / m) for n, (o, m) in enumerate(zip(off, largest, strict=True)) if not o <= self.tolerance * m]


APPLICATIONS = [
    Application("black_scholes", (70_000,)),
    Application("cg", (220,), {"most": 12}),
    Application("cholesky", (150,), {"tile": 40}, reference_too=False, everywhere=False),
    Application("kmeans", (70_001, 5), {"steps": 3}),
    Application("monte_carlo", (400_000,), {"dates": 3}, everywhere=False),
    Application("nbody", (150,), {"steps": 4}, tolerance=1e-4),
    Application("rsim", (6, 12), {"steps": 12}, tolerance=1e-4),
    Application("wave_sim", (400,), {"steps": 9}, tolerance=1e-4),
]
