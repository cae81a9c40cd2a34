"""The seed of this run: fresh unless FUZZ_SEED says which."""

from __future__ import annotations

import os
import secrets

from .mixes import BATCH

FIRST_SEED = int(os.environ.get("FUZZ_SEED") or secrets.randbelow(10**9) * BATCH)
"""The first seed of each mix's random programs in the tests."""

os.environ["FUZZ_SEED"] = str(FIRST_SEED)  # processes that share the tests begin with the same
