"""The seed of this run: fresh unless FUZZ_SEED says which."""

from __future__ import annotations

import os
import secrets

from .mixes import BATCH

_given = int(os.environ.get("FUZZ_SEED") or secrets.randbelow(10**9) * BATCH)
FIRST_SEED = _given - _given % BATCH
"""The first seed of each mix's random programs in the tests, and of a batch: a batch shares a runtime with its options."""

os.environ["FUZZ_SEED"] = str(FIRST_SEED)  # processes that share the tests begin with the same
