"""Run a program on both sides, and tell what came of it."""

from __future__ import annotations

import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import coexec as cx
from coexec.errors import DoesNotFit
from coexec.program import session
from tests.holding import closed_gate

from .drawing import PLAIN_KERNELS
from .kernels import KERNELS
from .marked import GOOD, LOST, Marked
from .mixes import MIXES, Mix, opened
from .nonsense import nonsense
from .plain import PlainCoexec
from .program import Program

GONE = (cx.TaskFailed, cx.TaskCancelled)


class WrongResult(AssertionError):
    """coexec and NumPy differ."""


class Look(NamedTuple):
    """What a look must see."""

    values: Any
    marks: Any  # None: everything may be read


class Outcome(NamedTuple):
    """What came of a program: "right", "refused", or the signature of its failure."""

    signature: str
    error: BaseException | None = None

    @property
    def fine(self) -> bool:
        """Whether it did what it should."""
        return self.signature in ("right", "refused")


# NumPy ------------------------------------------------------------------------------------------------------------------


def expected(program: Program, source: str) -> tuple[list[Look], list[int]]:
    """Return what each look of one thread must see, and what its host tasks must note."""
    looks: list[Look] = []

    def look(value: Any) -> None:
        if isinstance(value, Marked):
            looks.append(Look(value.values.copy(), value.marks.copy()))
        else:
            looks.append(Look(np.array(value), None))

    names: dict[str, Any] = {
        "np": np,
        "cx": PlainCoexec(marked=program.marked),
        "look": look,
        "nonsense": lambda choice: None,
        "log": [],
        "closed_gate": lambda name: nullcontext(),
        **PLAIN_KERNELS,
    }
    with np.errstate(all="ignore"):
        exec(compile(source, f"<{program.mix} {program.seed}>", "exec"), names)
    return looks, names["log"]


@cache
def by_layout() -> tuple[str, ...]:
    """Return the functions whose bits depend on the order in memory in NumPy itself: it has vectors for rising addresses alone."""
    numbers = np.linspace(0.1, 9.0, 512)
    found = []
    for name in ("arctan2", "hypot", "sqrt", "exp", "tanh", "log1p"):
        function = getattr(np, name)
        for dtype in (np.float32, np.float64):
            x = numbers.astype(dtype)
            given = [x, x[::-1].copy()][: function.nin]
            backwards = function(*[entry[::-1] for entry in given])[::-1]
            if not np.array_equal(function(*given), backwards):
                found.append(name)
    return tuple(found)


# coexec -----------------------------------------------------------------------------------------------------------------


class Side:
    """One thread of a program on coexec."""

    def __init__(self, program: Program, source: str) -> None:
        self.mix = MIXES[program.mix]
        self.program, self.source = program, source
        exact = self.mix.exact and not {"reduce", "product"} & {*program.kinds()}
        self.loose = program.rough and not (exact and not any(f"np.{name}(" in source for name in by_layout()))
        self.looks, self.expected_log = expected(program, source)
        self.log: list[int] = []
        self.bits: list[bytes] = []  # of what was seen
        self._seen = 0

    def run(self) -> None:
        """Run it to its end; raise WrongResult, or whatever it raises."""
        names = {
            "np": np,
            "cx": cx,
            "look": self.look,
            "nonsense": nonsense,
            "log": self.log,
            "closed_gate": closed_gate,
            **KERNELS,
        }
        with np.errstate(all="ignore"):
            exec(compile(self.source, f"<{self.program.mix} {self.program.seed}>", "exec"), names)

    def look(self, value: Any) -> None:
        """Compare an array, or a number, with what NumPy had here."""
        wanted = self.looks[self._seen]
        self._seen += 1
        if wanted.marks is not None and wanted.marks.any():
            self._look_at_parts(value, wanted)
            return
        self._compare(np.asarray(value), wanted.values)

    def _look_at_parts(self, value: Any, wanted: Look) -> None:
        lost = bool((wanted.marks == LOST).any())
        with suppress(*GONE):
            np.asarray(value)
            if lost:
                raise WrongResult(f"look {self._seen}: reading what a failed task should have written did not raise")
        for at in list(np.ndindex(wanted.values.shape))[:: max(1, wanted.values.size // 6)]:
            mark = wanted.marks[at]
            try:
                got = np.asarray(value[(*at, ...)])
            except GONE:
                if mark == GOOD:
                    raise
                continue
            if mark == LOST:
                raise WrongResult(f"look {self._seen}: element {at} was lost, and could be read: {got}")
            if mark == GOOD:
                self._compare(got, wanted.values[at])

    def _compare(self, got: Any, wanted: Any) -> None:
        self.bits.append(got.tobytes())
        wanted = np.asarray(wanted)
        if got.dtype != wanted.dtype or got.shape != wanted.shape:
            raise WrongResult(
                f"look {self._seen}: {got.dtype} of shape {got.shape}, not {wanted.dtype} of shape {wanted.shape}"
            )
        if not self.mix.values:
            return
        same = np.array_equal(got, wanted, equal_nan=got.dtype.kind in "fc")
        if not same and not (self.loose and close(got, wanted)):
            raise WrongResult(f"look {self._seen}: got\n{got}\nnot\n{wanted}")


CANCELLED = 1e-13
"""What rounding may leave where numbers around one cancel, as in the variance of equal numbers: float32's, squared."""


def close(got: Any, wanted: Any) -> bool:
    """Tell whether rounding explains the difference: relative to the largest number, since sums may be ordered otherwise."""
    if got.dtype.kind not in "fc":
        return bool(np.array_equal(got, wanted))
    precision = 2e-4 if got.dtype.itemsize <= 4 else 1e-5  # float32 may have been on the way
    finite = np.abs(wanted[np.isfinite(wanted)])
    largest = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(got, wanted, rtol=precision, atol=precision * largest + CANCELLED, equal_nan=True))


def run_sides(sides: list[Side]) -> None:
    """Run every thread of a program; raise the first failure."""
    if len(sides) == 1:
        sides[0].run()
        return
    errors: list[BaseException] = []
    start = threading.Barrier(len(sides))

    def go(side: Side) -> None:
        start.wait()
        try:
            side.run()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=go, args=(side,)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def run(program: Program) -> Outcome:
    """Run a program in the open runtime."""
    mix = MIXES[program.mix]
    sides = [Side(program, source) for source in program.sources()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run_sides(sides)
            finish(program)
            if mix.again:
                _compare_bits(program, sides, mix)
            for side in sides:
                if side.log != side.expected_log and mix.values:
                    raise WrongResult(f"host tasks noted {side.log}, not {side.expected_log}")
        except Exception as error:
            outcome = judged(error, mix)
            error.__traceback__ = None if outcome.fine else error.__traceback__
            with suppress(Exception, ExceptionGroup):
                cx.wait()
            return outcome
    return Outcome("right")


def _compare_bits(program: Program, sides: list[Side], mix: Mix) -> None:
    """Run it again elsewhere; the bits must be the same."""
    others = [Side(program, source) for source in program.sources()]
    with opened(mix.again):
        run_sides(others)
    for side, other in zip(sides, others, strict=True):
        for number, (one, two) in enumerate(zip(side.bits, other.bits, strict=True)):
            if one != two:
                raise WrongResult(f"look {number + 1}: other bits on {mix.again}")


def finish(program: Program) -> None:
    """Wait for everything; a troubled program leaves failures that nobody looked at."""
    try:
        cx.wait()
    except ExceptionGroup as group:
        if not program.marked or not all(_drawn(error) for error in group.exceptions):
            raise


def _drawn(error: BaseException) -> bool:
    return isinstance(error, cx.TaskCancelled) or "drawn" in str(error)


def judged(error: BaseException, mix: Mix) -> Outcome:
    """Return what an exception means."""
    if isinstance(error, BaseExceptionGroup) and error.exceptions:
        parts = [judged(part, mix) for part in error.exceptions]
        return next((part for part in parts if not part.fine), parts[0])
    if mix.capped and isinstance(error, DoesNotFit):
        return Outcome("refused", error)
    if isinstance(error, cx.errors.ArgumentError) and "never changes, as a number in NumPy" in str(error):
        return Outcome("refused", error)  # the body would rebind its own name to a new number, and nobody would see it
    if mix.alone and isinstance(error, cx.errors.PlanError) and ("runs on" in str(error) or "can hold" in str(error)):
        return Outcome("refused", error)
    if isinstance(error, WrongResult):
        return Outcome("wrong result", error)
    return Outcome(f"{type(error).__name__} in {innermost(error)}", error)


def innermost(error: BaseException) -> str:
    """Return the coexec function in which an error, or what caused it, began."""
    root = error
    while root.__cause__ is not None or (root.__context__ is not None and not root.__suppress_context__):
        root = root.__cause__ or root.__context__  # type: ignore[assignment]
    here = str(Path(cx.__file__).parent)
    ours = [f for e in (error, root) for f in traceback.extract_tb(e.__traceback__) if f.filename.startswith(here)]
    kind = "" if type(root) is type(error) else f" by {type(root).__name__}"
    return f"{Path(ours[-1].filename).relative_to(here)}:{ours[-1].name}{kind}" if ours else f"the program{kind}"


@contextmanager
def runtime_for(program: Program) -> Iterator[None]:
    """Open the runtime of a program's batch; failures that nobody looked at are not raised again."""
    if MIXES[program.mix].default:
        with patch.dict(os.environ, {"COEXEC_DEVICES": program.options["devices"], "COEXEC_STORE": "off"}):
            try:
                yield
            finally:
                close_default()
        return
    runtime = opened(program.options)
    try:
        with runtime:
            yield
    except ExceptionGroup:
        if not runtime.closed:
            raise


def close_default() -> None:
    """Close the default runtime, so that the next program opens it again."""
    while session.program:
        session.program[0].close()  # type: ignore[attr-defined]


def run_alone(program: Program) -> Outcome:
    """Run a program in a runtime of its own."""
    sys.setswitchinterval(1e-4)
    try:
        with runtime_for(program):
            outcome = run(program)
    except Exception as error:
        outcome = judged(error, MIXES[program.mix])
    return outcome
