"""Random programs against plain NumPy, on every mix of devices, with fresh seeds: a fixed budget, and what the net is made of.

`make fuzz` does the same for as long as one likes. A failure is shrunk and printed as a script that stands alone.
"""

from __future__ import annotations

import runpy
import time
from pathlib import Path
from typing import Any

import pytest

import coexec as cx
from tests.fuzz import running
from tests.fuzz.fresh import FIRST_SEED
from tests.fuzz.kernels import KERNELS
from tests.fuzz.mixes import BATCH, MIXES
from tests.fuzz.program import Program, Step
from tests.fuzz.reproducing import reproducer
from tests.fuzz.running import Outcome, run, run_alone, runtime_for
from tests.fuzz.shrinking import in_its_batch, shrunk, tried
from tests.fuzz.steps import KINDS, program_of

BUDGET = 1.2  # seconds per mix

pytestmark = [
    pytest.mark.filterwarnings("ignore::coexec.CoexecWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy's, about means of nothing
]


@pytest.mark.parametrize("mix", MIXES)
def test_random_programs_compute_what_numpy_computes(mix) -> None:
    """Programs whose seeds nobody has seen before; the seed stands in the header, FUZZ_SEED chooses it."""
    end = time.monotonic() + BUDGET
    seed = FIRST_SEED
    while time.monotonic() < end:
        seed = programs_of_one_batch(mix, seed, end)


def programs_of_one_batch(mix: str, seed: int, end: float) -> int:
    """Run programs in one runtime; return the next batch's first seed."""
    with runtime_for(program_of(mix, seed)):
        for number in range(1 if MIXES[mix].default else BATCH):
            if number and time.monotonic() > end:
                break
            program = program_of(mix, seed + number)
            outcome = run(program)
            if not outcome.fine:
                break
    if not outcome.fine:
        pytest.fail(told(program, outcome), pytrace=False)
    return seed + (1 if MIXES[mix].default else BATCH)


def told(program: Program, outcome: Outcome) -> str:
    """Return what to say about a failure: its script, made short."""
    again = tried(program)
    if again.fine:
        again = in_its_batch(program)
        where = "only behind the programs before it" if not again.fine else "once"
        return f"{outcome.signature}, seen {where}: {outcome.error}\n\n{reproducer(program, outcome.signature)}"
    short = shrunk(program, again.signature, seconds=20.0)
    return f"{again.signature}: {again.error}\n\n{reproducer(short, again.signature)}"


# The net itself ---------------------------------------------------------------------------------------------------------


def test_a_seed_always_gives_the_same_program() -> None:
    for mix in MIXES:
        assert program_of(mix, 12345) == program_of(mix, 12345)


def test_seeds_reach_every_step_and_every_kernel() -> None:
    missing = {*KINDS} - {"new"} | {*KERNELS}
    for seed in range(3000):
        program = program_of("cores", seed)
        missing -= {*program.kinds()}
        text = "\n".join(program.sources())
        missing -= {name for name in missing if f"{name}(" in text or f"{name}.using" in text}
        if not missing:
            break
    assert missing == set()


def by_hand(*texts: str, mix: str = "core", **options: Any) -> Program:
    steps = tuple(Step("by hand", text) for text in texts)
    return Program(mix, 0, {"devices": "cpu:0", **options}, (steps,))


def off_by_one(x, y):
    y += x + (len(x) > 5)


def test_a_wrong_kernel_is_found_and_the_program_shrunk_to_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = cx.kernel(x=cx.read, y=cx.update)(off_by_one)
    monkeypatch.setattr(running, "KERNELS", {**KERNELS, "whole": wrong})
    loop = Step("loop", "", (Step("in place", "a += 1"), Step("elementwise kernel", "whole(a, b)")), 9)
    steps = (
        Step("new", "a = cx.zeros(8)"),
        Step("new", "b = cx.ones(8)"),
        Step("new", "c = cx.ones((3, 3))"),
        Step("in place", "c += c.T"),
        loop,
        Step("in place", "a += b"),
        *[Step("look", f"look({name})") for name in "abc"],
    )
    program = Program("core", 0, {"devices": "cpu:0", "horizon": 20}, (steps,))
    outcome = run_alone(program)
    assert outcome.signature == "wrong result"
    short = shrunk(program, outcome.signature, seconds=120.0, tries=1)
    assert short.sources() == ["a = cx.zeros(8)\nb = cx.ones(8)\nwhole(a, b)\nlook(b)"]
    assert "horizon" not in short.options and short.kinds() == ["elementwise kernel"]


@pytest.mark.parametrize("mix", ["core", "cores", "threads", "simulated", "ranks"])
def test_reproducers_run_alone(mix, tmp_path: Path) -> None:
    for seed in range(7000, 7006):
        program = program_of(mix, seed)
        file = tmp_path / f"{seed}.py"
        file.write_text(reproducer(program, "nothing"))
        if run_alone(program).fine:
            with_failures(file)


def with_failures(file: Path) -> None:
    """Run a script; failures that it drew and did not look at are raised at its end."""
    try:
        runpy.run_path(str(file))
    except ExceptionGroup as group:
        rest = group.split(lambda error: "drawn" in str(error))[1]
        if rest is not None:
            raise rest from None


def test_a_reproducer_fails_where_the_program_does(tmp_path: Path) -> None:
    program = by_hand("a = cx.zeros(3)", "a += 1", "look(a)")
    file = tmp_path / "wrong.py"
    file.write_text(reproducer(program, "wrong result").replace("1., 1., 1.", "1., 1., 2."))
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 3"):
        runpy.run_path(str(file))


def test_what_fails_is_told_by_where_it_began() -> None:
    program = by_hand("a = cx.zeros(3)", "a.shape if isinstance(a, np.ndarray) else np.sort(a)", "look(a)")
    assert run_alone(program).signature == "UnsupportedError in program/numpy_protocol.py:array_function"
