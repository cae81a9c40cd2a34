"""Kernels that several tests call: one that works, one that a test can hold in mid-body, one that fails."""

from __future__ import annotations

import coexec as cx
from tests.holding import pass_gate


@cx.kernel(x=cx.update)
def increment(x):
    x += 1


@cx.kernel(x=cx.update)
def hold(x, gate="hold"):
    pass_gate(gate)
    x += 1


@cx.kernel(x=cx.update)
def fail(x):
    raise ValueError("no luck")
