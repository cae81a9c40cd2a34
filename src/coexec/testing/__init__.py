"""Conformance suites and helpers for tests, shipped to users.

Before: every stage they test.  After: the tests of this repository and of extensions.  Nothing in coexec needs it to run.
"""

from __future__ import annotations

from .conformance import check_backend
from .kernels import check_kernel

__all__ = ["check_backend", "check_kernel"]
