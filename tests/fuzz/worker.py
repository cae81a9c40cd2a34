"""Run batches of programs in one process, and tell the parent what came of each, one line of JSON at a time.

python -m tests.fuzz.worker            reads "MIX FIRST COUNT" lines; a line "seed" comes before each program
"""

from __future__ import annotations

import faulthandler
import gc
import json
import signal
import sys
import time
import warnings
from typing import Any

from .mixes import BATCH, MIXES
from .program import Program
from .running import judged, run, runtime_for
from .steps import program_of


def say(**what: Any) -> None:
    """Write one line to the parent."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def batch(mix: str, first: int, count: int) -> None:
    """Run the programs of consecutive seeds; those of one batch share a runtime until one of them fails."""
    seed, last = first, first + count
    while seed < last:
        seed = _in_one_runtime(mix, seed, min(last, seed - seed % BATCH + BATCH))


def _in_one_runtime(mix: str, seed: int, last: int) -> int:
    """Run programs until one fails, or the last; return the seed to go on with."""
    program = program_of(mix, seed)
    alone = MIXES[mix].default
    say(seed=seed, mix=mix)
    try:
        with runtime_for(program):
            while True:
                fine = _one(program)
                seed += 1
                if not fine or alone or seed >= last:
                    break
                say(seed=seed, mix=mix)
                program = program_of(mix, seed)
    except Exception as error:
        outcome = judged(error, MIXES[mix])
        if not outcome.fine:
            say(
                done=program.seed,
                mix=mix,
                signature=f"closing: {outcome.signature}",
                said=str(error)[:2000],
                seconds=0.0,
            )
        seed = max(seed, program.seed + 1)
    gc.collect()
    return seed


def _one(program: Program) -> bool:
    begun = time.perf_counter()
    outcome = run(program)
    seconds = time.perf_counter() - begun
    said = "" if outcome.fine else str(outcome.error)[:2000]
    say(done=program.seed, mix=program.mix, signature=outcome.signature, said=said, seconds=round(seconds, 4))
    return outcome.fine


def main() -> None:
    """Serve the parent until it closes the pipe."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    sys.setswitchinterval(1e-4)
    for line in sys.stdin:
        mix, first, count = line.rsplit(maxsplit=2)
        batch(mix, int(first), int(count))
        say(ready=True)


if __name__ == "__main__":
    main()
