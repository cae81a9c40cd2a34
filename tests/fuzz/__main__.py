"""Run random programs for as long as one likes, in parallel, and write a reproducer for each distinct failure.

python -m tests.fuzz --seconds 600 --jobs 2 --mix cores --seed 1
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .fleet import Fleet
from .mixes import MIXES


def main() -> int:
    """Return 0 if no program failed."""
    parser = argparse.ArgumentParser(prog="make fuzz", description="Random programs, on coexec and on NumPy.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long; 0 for ever")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--mix", default="all", help=f"one or more of: all, {', '.join(MIXES)}; separated by commas")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; a fresh one if not given")
    parser.add_argument("--programs", type=int, default=0, help="stop after so many")
    parser.add_argument("--patience", type=float, default=90.0, help="seconds after which a program hangs")
    parser.add_argument("--out", type=Path, default=Path("fuzz-results"), help="folder of reproducers and summary.json")
    chosen = parser.parse_args()
    mixes = list(MIXES) if chosen.mix == "all" else [name.strip() for name in chosen.mix.split(",")]
    if unknown := [name for name in mixes if name not in MIXES]:
        parser.error(f"no mix {', '.join(unknown)}; there are {', '.join(MIXES)}")
    fleet = Fleet(mixes, chosen.out, seed=chosen.seed, patience=chosen.patience)
    fleet.run(jobs=chosen.jobs, seconds=chosen.seconds, programs=chosen.programs)
    return 1 if fleet.failures else 0


if __name__ == "__main__":
    sys.exit(main())
