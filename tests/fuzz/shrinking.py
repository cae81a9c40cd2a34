"""Make a failing program short: leave steps out, shorten loops and forget options for as long as it fails in the same way.

python -m tests.fuzz.shrinking MIX SEED FILE      writes the reproducer to FILE whenever it became shorter
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from .mixes import BATCH
from .program import Program, Step
from .reproducing import reproducer
from .running import Outcome, run, run_alone, runtime_for
from .steps import program_of

TRIES = 3  # a race does not show itself every time


def shorter(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield the steps with some left out: many at first, then one by one, then inside loops."""
    size = len(steps) // 2
    while size >= 1:
        for low in range(0, len(steps), size):
            yield steps[:low] + steps[low + size :]
        size //= 2
    for number, step in enumerate(steps):
        if step.turns:
            around = steps[:number], steps[number + 1 :]
            for turns in sorted({1, 2, 3, 5, 8, step.turns // 2} - {0}):
                if turns < step.turns:
                    yield (*around[0], replace(step, turns=turns), *around[1])
            if all(inner.at < 0 for inner in step.body):
                yield (*around[0], *step.body, *around[1])
            for body in shorter(step.body):
                if body:
                    yield (*around[0], replace(step, body=body), *around[1])


def smaller(program: Program) -> Iterator[Program]:
    """Yield the program with a little less in it."""
    if len(program.threads) > 1:
        for number in range(len(program.threads)):
            rest = program.threads[:number] + program.threads[number + 1 :]
            yield replace(program, threads=rest)
    for number, steps in enumerate(program.threads):
        for fewer in shorter(steps):
            yield program.with_thread(number, fewer)
    for name in program.options:
        if name not in ("devices", "platform", "execute"):
            yield replace(program, options={n: v for n, v in program.options.items() if n != name})


def tried(program: Program, tries: int = TRIES) -> Outcome:
    """Return how a program fails, or that it does not in so many tries; a program that NumPy refuses does not."""
    outcome = Outcome("right")
    for _ in range(tries):
        try:
            outcome = run_alone(program)
        except Exception:  # NumPy refuses it: something that it needs was left out
            return Outcome("right")
        if not outcome.fine:
            return outcome
    return outcome


def shrunk(program: Program, signature: str, seconds: float, report: Path | None = None, tries: int = TRIES) -> Program:
    """Return the shortest program found in that time which fails in the same way."""
    end = time.monotonic() + seconds
    better = True
    while better:
        better = False
        for candidate in smaller(program):
            if time.monotonic() > end:
                return program
            if tried(candidate, tries).signature == signature:
                program, better = candidate, True
                if report is not None:
                    report.write_text(reproducer(program, signature))
                break
    return program


def in_its_batch(program: Program) -> Outcome:
    """Run a program after those of its batch that came before it, in one runtime."""
    first = program.seed - program.seed % BATCH
    with runtime_for(program):
        for seed in range(first, program.seed):
            run(program_of(program.mix, seed))
        return run(program)


def main(mix: str, seed: int, file: Path, seconds: float = 60.0) -> None:
    """Shrink one failure and write its reproducer."""
    program = program_of(mix, seed)
    outcome = tried(program, 6)
    if outcome.fine:
        outcome = in_its_batch(program)
        first = seed - seed % BATCH
        where = "only behind the programs before it" if not outcome.fine else "not again"
        note = f"# seen {where}: python -m tests.fuzz --mix {mix!r} --seed {first} --programs {seed - first + 1}\n"
        file.write_text(note + reproducer(program, outcome.signature))
        return
    file.write_text(reproducer(program, outcome.signature))
    short = shrunk(program, outcome.signature, seconds, file)
    final = tried(short, 6)
    file.write_text(reproducer(short, outcome.signature, "" if final.error is None else str(final.error)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *map(float, sys.argv[4:5]))
