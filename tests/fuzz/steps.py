"""Which steps there are, how often each is drawn, and how a seed becomes a program."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from . import kernel_steps as k, numpy_steps as n
from .drawing import Draw, Refused
from .mixes import MIXES, Mix, runtime_options
from .program import Program, Step


class Kind(NamedTuple):
    """A kind of step: how to draw it, how often, and whether it is for exact, rough and troubled programs."""

    draw: Callable[[Draw], str]
    weight: float
    rough: bool = False
    marked: bool = False
    loops: bool = True


KINDS: dict[str, Kind] = {
    "new": Kind(n.new, 2, rough=True, marked=True),
    "in place": Kind(n.in_place, 8, rough=True, marked=True),
    "with out": Kind(n.with_out, 4, rough=True),
    "compute": Kind(n.compute, 5, rough=True, marked=True),
    "cast": Kind(n.cast, 2),
    "clip": Kind(n.clip, 1, rough=True),
    "assign": Kind(n.assign, 5, rough=True, marked=True),
    "reduce": Kind(n.reduce, 4, rough=True),
    "join": Kind(n.join, 1.5, rough=True),
    "product": Kind(n.product, 1, rough=True),
    "keep view": Kind(n.keep_view, 1.5, rough=True, marked=True, loops=False),
    "drop": Kind(n.drop, 1.5, rough=True, marked=True, loops=False),
    "swap": Kind(n.swap, 2, rough=True),
    "element": Kind(n.element, 3),
    "element view": Kind(n.element_view, 1),
    "total": Kind(n.total, 0.5),
    "swap rows": Kind(n.swap_rows, 0.5, rough=True),
    "read": Kind(n.read, 1.5, rough=True),
    "elementwise kernel": Kind(k.elementwise, 8, marked=True),
    "kernel both ways": Kind(k.both_ways, 1.5),
    "kernel by value": Kind(k.by_value, 2),
    "kernel that returns": Kind(k.functional, 1),
    "mapped kernel": Kind(k.mapped, 4),
    "stencil": Kind(k.stencil, 4, marked=True),
    "reducing kernel": Kind(k.reduction, 2),
    "host task": Kind(k.write_down, 1, loops=False),
    "nonsense": Kind(k.nonsense, 1, rough=True),
    "fail": Kind(k.fail, 0, marked=True, loops=False),
    "heal": Kind(k.heal, 0, marked=True, loops=False),
    "cancel": Kind(k.cancel, 0, marked=True, loops=False),
}
TROUBLE = {"fail": 5.0, "heal": 5.0, "cancel": 1.5}


class Writer:
    """Draws the steps of one thread."""

    def __init__(
        self,
        rng: random.Random,
        mix: Mix,
        options: dict[str, Any],
        *,
        marked: bool,
        rough: bool,
        big: bool,
        wait: bool,
    ) -> None:
        self.rng, self.mix, self.marked = rng, mix, marked
        self.draw = Draw(rng, marked=marked, devices=mix.devices, big=big, rough=rough)
        self.weights = {
            name: TROUBLE.get(name, kind.weight) if marked else kind.weight
            for name, kind in KINDS.items()
            if name not in mix.without and (kind.rough or not rough) and (kind.marked or not marked)
        }
        if not mix.models:
            self.weights.pop("nonsense", None)
        if not wait:
            self.weights.pop("host task", None)
        self.holds = not options.get("inline", True) and not {"sync", "horizon"} & options.keys() and mix.holds

    def one(self, *, loop: bool = False, patient: bool = True) -> Step:
        """Return one drawn step; what it does was not tried yet."""
        names = [name for name in self.weights if not loop or KINDS[name].loops]
        names = names if patient else [name for name in names if name not in ("read", "nonsense")]
        kind = self.rng.choices(names, [self.weights[name] for name in names])[0]
        return Step(kind, KINDS[kind].draw(self.draw))

    def loop(self) -> None:
        """Draw a loop, long enough to be replayed, with a change in the middle."""
        turns = self.rng.randint(4, 10) if self.draw.big else self.rng.randint(6, self.rng.choice((10, 10, 26)))
        body: list[Step] = []
        before = list(self.draw.steps)
        for _ in range(self.rng.randint(1, 4)):
            self._try(lambda: self.one(loop=True))
        body = self.draw.steps[len(before) :]
        self.draw.rebuild(before)
        known = self.draw.arrays()  # a number under the name of an array is not what its kernels can write
        if len(known) > 1 and self.rng.random() < 0.25:
            one, two = self.rng.sample(known, 2)
            body.append(Step("exchange names", f"{one}, {two} = {two}, {one}"))
        if self.rng.random() < 0.5:
            self._try(lambda: self.one(loop=not self.marked))
            changes = self.draw.steps[len(before) :]
            self.draw.rebuild(before)
            at = self.rng.randrange(turns)
            body += [Step(step.kind, step.text, at=at) for step in changes if step.kind not in ("drop", "tame")]
        if body:
            self._try(lambda: Step("loop", "", tuple(body), turns))

    def hold(self) -> None:
        """Draw a block that runs past a held task; nothing in it waits."""
        gate = f"gate {self.rng.randrange(10**6)}"
        before = list(self.draw.steps)
        self._try(lambda: Step("hold", k.hold(self.draw, gate)))
        for _ in range(self.rng.randint(1, 5)):
            self._try(lambda: self.one(loop=True, patient=False))
        body = tuple(self.draw.steps[len(before) :])
        self.draw.rebuild(before)
        if body:
            self._try(lambda: Step("hold", f'with closed_gate("{gate}"):', body))

    def _try(self, make: Callable[[], Step]) -> None:
        with suppress(Refused):
            self.draw.accept(make())

    def write(self, length: int) -> tuple[Step, ...]:
        """Return a whole program."""
        for _ in range(self.rng.randint(2, 4)):
            self._try(lambda: Step("new", n.new(self.draw)))
        for _ in range(length):
            if self.rng.random() < self.mix.loops:
                self.loop()
            elif self.holds and self.rng.random() < 0.15:
                self.hold()
            else:
                self._try(self.one)
            if self.rng.random() < 0.12 and self.draw.variables():
                self._try(lambda: Step("look", f"look({self.draw.pick(self.draw.variables())})"))
        looks = [Step("look", f"look({name})") for name in self.draw.variables()]
        return (*self.draw.steps, *looks)


def roomy(options: dict[str, Any]) -> bool:
    """Tell whether large arrays are cut into no more than some dozen parts by what memories hold."""
    caps = [size for size in options.get("memory", {}).values() if size not in ("own", "shared")]
    return all(size.endswith(("MB", "GB", "100kB")) for size in caps)


def program_of(mix_name: str, seed: int) -> Program:
    """Return the program that a seed stands for on a mix."""
    mix = MIXES[mix_name]
    rng = random.Random(f"{mix_name}/{seed}")
    options = runtime_options(mix, seed)
    rough = rng.random() < mix.rough
    marked = not rough and rng.random() < mix.trouble and not options.get("sync")
    big = not marked and rng.random() < mix.big and roomy(options)
    threads = []
    for _ in range(mix.threads):
        writer = Writer(rng, mix, options, marked=marked, rough=rough, big=big, wait=mix.threads == 1)
        threads.append(writer.write(rng.randint(2, mix.length)))
    return Program(mix_name, seed, options, tuple(threads), marked, rough)
