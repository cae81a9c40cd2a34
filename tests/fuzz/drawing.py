"""What steps are drawn from: the variables of a program so far, views of them, and pairs of views that fit each other.

NumPy runs each step as it is drawn, so shapes and types are known, and what NumPy refuses is not kept.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from .kernels import KERNELS
from .marked import Marked
from .plain import PlainCoexec, PlainKernel
from .program import Step

PLAIN_KERNELS = {name: PlainKernel(kernel) for name, kernel in KERNELS.items()}
LIMITS = {"float64": 2.0**20, "int64": 2.0**20, "float32": 2.0**8, "int32": 2.0**13, "complex128": 2.0**18}
"""The largest magnitude by type: products and sums of them are exact everywhere."""
FEW, MOST = 2_000, 1_000_000  # elements of an array, in most programs and in those that are big


class Refused(Exception):
    """NumPy refuses a step, or it makes numbers too large."""


class Draw:
    """A program in the making."""

    def __init__(self, rng: random.Random, *, marked: bool, devices: str, big: bool, rough: bool) -> None:
        self.rng = rng
        self.devices = devices  # that calls may name together
        self.big = big
        self.rough = rough
        self.marked = marked
        self.opencl_only = bool(devices) and all("opencl" in device for device in devices.split(","))
        self.count = 0
        self.steps: list[Step] = []
        self.names = self._empty()

    # Running it in NumPy --------------------------------------------------------------------------------------------------

    def _empty(self) -> dict[str, Any]:
        return {
            "np": np,
            "cx": PlainCoexec(marked=self.marked),
            "look": lambda value: None,
            "nonsense": lambda choice: None,
            "log": [],
            "closed_gate": lambda name: nullcontext(),
            **PLAIN_KERNELS,
        }

    def rebuild(self, steps: Sequence[Step]) -> None:
        """Run these steps afresh, and nothing else."""
        self.steps, self.names = [], self._empty()
        for step in steps:
            self.run(step.source())
            self.steps.append(step)

    def run(self, text: str) -> None:
        """Run source in NumPy."""
        with np.errstate(all="ignore"):
            exec(compile(text, "<drawn>", "exec"), self.names)

    def accept(self, step: Step) -> None:
        """Run a step and keep it, with what tames numbers that became too large; raise Refused if NumPy does not."""
        try:
            if step.turns:
                step = self._accept_loop(step)
            else:
                self.run(step.source())
        except Exception as error:
            self.rebuild(self.steps)
            raise Refused from error
        self.steps.append(step)
        try:
            tamers = self.tamers()
        except Refused:
            self.rebuild(self.steps[:-1])
            raise
        for text in tamers:
            self.run(text)
            self.steps.append(Step("tame", text))

    def _accept_loop(self, loop: Step) -> Step:
        """Run a loop turn by turn; what grows is tamed in each turn."""
        body = loop.body
        for _ in range(3):
            tamers: list[str] = []
            code = compile("\n".join(step.source() for step in body), "<drawn>", "exec")
            for turn in range(loop.turns):
                self.names["turn"] = turn
                with np.errstate(all="ignore"):
                    exec(code, self.names)
                tamers = self.tamers()
                if tamers:
                    break
            if not tamers:
                return Step(loop.kind, "", body, loop.turns)
            body = (*body, *(Step("tame", text) for text in tamers))
            self.rebuild(self.steps)
        raise Refused

    def tamers(self) -> list[str]:
        """Return what brings too large numbers back."""
        found = []
        for name in self.variables():
            value = self.names[name]
            values = value.values if isinstance(value, Marked) else value
            if np.size(values) > (MOST if self.big else FEW):
                raise Refused  # it grows with every turn
            limit = LIMITS.get(str(values.dtype))
            if limit is None or not np.size(values):
                continue
            if self.big:
                limit = min(limit, 32.0)
            with np.errstate(all="ignore"):
                fits = float(np.max(np.abs(values))) <= limit
            if not fits:
                whole = not isinstance(value, np.generic)
                if values.dtype.kind == "c" or not np.isfinite(values).all():
                    found.append(f"{name}[...] = 3" if whole else f"{name} = {name} * 0")
                else:
                    found.append(f"{name} %= 31" if whole else f"{name} = {name} % 31")
        return found

    # Names ------------------------------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        """Return a name for a new variable."""
        self.count += 1
        return f"v{self.count}"

    def variables(self, *, ndim: int | None = None, kinds: str = "") -> list[str]:
        """Return names of arrays, oldest first."""
        return [
            name
            for name, value in self.names.items()
            if name[0] == "v"
            and name[1:].isdigit()
            and isinstance(value, np.ndarray | Marked | np.generic)
            and (ndim is None or value.ndim == ndim)
            and (not kinds or value.dtype.kind in kinds)
        ]

    def arrays(self, **which: Any) -> list[str]:
        """Return names of variables that may be written: NumPy's numbers may not."""
        return [name for name in self.variables(**which) if not isinstance(self.names[name], np.generic)]

    def value(self, text: str) -> Any:
        """Return an expression's value in NumPy."""
        return eval(text, self.names)  # a view: cheap

    def pick(self, names: Sequence[str]) -> str:
        """Return one of the names; raise Refused if there is none."""
        if not names:
            raise Refused
        return self.rng.choice(list(names))

    def chance(self, probability: float) -> bool:
        """Toss a coin."""
        return self.rng.random() < probability

    # Views ------------------------------------------------------------------------------------------------------------------

    def view(self, name: str | None = None, *, keep: bool = False) -> str:
        """Return some view of some array; with as many axes as the array if it is to `keep` them."""
        name = name or self.pick(self.arrays())
        shape = self.names[name].shape
        if not shape or self.chance(0.3):
            return name
        entries = [self.cut(n, keep=keep) for n in shape]
        if not keep and all(":" not in entry for entry in entries):
            entries[0] = ":"
        if self.chance(0.1) and not keep:
            entries.insert(self.rng.randrange(len(entries) + 1), "None")
        elif self.chance(0.1) and entries[-1] == ":":
            entries[-1] = "..."
        text = f"{name}[{', '.join(entries)}]"
        return f"{text}.T" if not keep and self.chance(0.1) else text

    def cut(self, n: int, *, keep: bool = False) -> str:
        """Return an index of an axis of length n."""
        rng = self.rng
        match rng.choices(("all", "part", "back", "step", "one"), (4, 4, 1, 2, 0 if keep or not n else 1))[0]:
            case "part":
                low = rng.randint(0, n // 2)
                return f"{low or ''}:{rng.randint(low, n)}"
            case "back":
                return "::-1"
            case "step":
                low, step = rng.randint(0, max(0, min(2, n - 1))), rng.choice((2, 3, -2))
                return f"::{step}" if step < 0 else f"{low or ''}::{step}"
            case "one":
                return str(rng.randrange(-n, n))
        return ":"

    def pair(self, *, same: bool = False) -> tuple[str, str]:
        """Return a target and a source that broadcasts to it, of `same` shape if need be; half the time of one array."""
        name = self.pick([n for n in self.arrays() if self.names[n].ndim])
        if self.chance(0.5):
            return self.overlapping(name, same=same)
        target = self.view(name, keep=same)
        shape = self.value(target).shape
        for _ in range(8):
            source = self.view(keep=same)
            other = self.value(source).shape
            if other == shape or (not same and fits(other, shape)):
                return target, source
        return target, target

    def overlapping(self, name: str, *, same: bool) -> tuple[str, str]:
        """Return two views of one array that share elements, or nearly."""
        shape = self.names[name].shape
        n, rest = shape[0], len(shape) - 1
        choices: list[tuple[str, str]] = [(name, name), (name, f"{name}[::-1]")]
        if n > 2:
            shift = self.rng.randint(1, min(3, n - 1))
            choices += [(f"{name}[{shift}:]", f"{name}[:-{shift}]"), (f"{name}[:-{shift}]", f"{name}[{shift}:]")]
            half = n // 2
            low = self.rng.randint(0, n - half)
            choices += [
                (f"{name}[:{half}]", f"{name}[:{2 * half}:2]"),
                (f"{name}[{low}:{low + half}]", f"{name}[1:{2 * half}:2]"),
                (f"{name}[:{2 * half}:2]", f"{name}[{low}:{low + half}]"),
                (f"{name}[:{2 * half}:2]", f"{name}[1:{2 * half}:2]"),
            ]
        if rest == 1 and shape[0] == shape[1]:
            choices += [(name, f"{name}.T"), (name, f"{name}.T[::-1]"), (f"{name}[1:, :-1]", f"{name}[:-1, 1:].T")]
        if rest and n and not same and 0 not in shape:
            at = self.rng.randrange(n)
            choices += [(name, f"{name}[{at}]"), (name, f"{name}[:, :1]"), (name, f"{name}[{at}:{at + 1}]")]
        if rest and shape[1] > 2:
            choices += [(f"{name}[:, 1:]", f"{name}[:, :-1]"), (name, f"{name}[:, ::-1]")]
        return self.rng.choice(choices)


def fits(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tell whether one shape broadcasts to another."""
    try:
        return np.broadcast_shapes(source, target) == target
    except ValueError:
        return False
