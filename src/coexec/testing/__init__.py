"""Conformance suites and helpers for tests, shipped to users.

Before: every stage they test.  After: the tests of this repository and of extensions.  Nothing in coexec needs it to run.
"""

from __future__ import annotations

from .conformance import check_backend
from .every_order import every_order, few_orders
from .graphs import GraphBuilder
from .interleave import Drive, HandBackend, every_choice, explore, sample
from .invented import invented_platform
from .kernels import check_kernel
from .model_memory import at_random, run_all
from .queries import InstructionGraph, Selection
from .teams import on_teams
from .transports import check_transport, on_ranks
from .verify import verify

__all__ = [
    "Drive",
    "GraphBuilder",
    "HandBackend",
    "InstructionGraph",
    "Selection",
    "at_random",
    "check_backend",
    "check_kernel",
    "check_transport",
    "every_choice",
    "every_order",
    "explore",
    "few_orders",
    "invented_platform",
    "on_ranks",
    "on_teams",
    "run_all",
    "sample",
    "verify",
]
