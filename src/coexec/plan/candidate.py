"""Who could run a kernel: (device, variant) pairs, with what was measured of each.

Before: machine/, predict/.  After: plan/policies.py, plan/planner.py.  Knows no task. What plans may ask about data, in which
memories it lies and whether there is room for more, is a `Residency`; lower/whereabouts.py answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..compile.chains import chain_variant
from ..compile.serving import compilable
from ..errors import CannotCompute, PlanError, unknown_name
from ..geometry import Box
from ..graph.command import Chunk
from ..graph.mapped import remembered
from ..machine.platform import Device, Platform
from ..predict.learned import Learned
from ..predict.model import KernelModel
from ..predict.roofline import computing_type
from ..predict.work import Work
from ..program.fuse import Fused
from ..program.mapper import Same
from ..program.ufunc import Elementwise
from ..program.variant import COMPILED, GENERATED, Numerics, Variant

if TYPE_CHECKING:
    from ..graph.task import Task
    from ..program.array import Array
    from ..program.kernel import Kernel


class Residency(Protocol):
    """Where arrays are, once everything that was planned so far is carried out."""

    def held_by(self, array: Array) -> int:
        """Return the memories that will hold all of an array. An initial value is made where it is needed."""

    def places(self, array: Array) -> Sequence[tuple[Box, int]]:
        """Return the parts of an array, and the memories that will hold each; none where nothing need be copied."""

    def spread(self, array: Array) -> bool:
        """Tell whether parts of an array will be valid in different memories."""

    def where(self, array: int) -> Sequence[tuple[Box, int]] | None:
        """Return the parts of the array of that number, and the memories that will hold each; None if there is none."""

    def pattern(self, array: Array) -> Hashable:
        """Return what is equal for arrays of one shape whose parts are valid in the same memories now."""

    def roomy(self, task: Task, candidates: list[Candidate]) -> list[Candidate]:
        """Leave out devices whose memories cannot hold the smallest part of a task; raise if none is left."""


Supports = Callable[[np.dtype[Any]], bool]


class Share(NamedTuple):
    """What one chunk runs, and what is known of it."""

    variant: Variant
    model: KernelModel | None
    work: Work | None
    seconds: float | None  # predicted
    together: bool = False  # other devices compute other parts of the task at the same time
    blocked: bool = False  # in pieces that fit into a cache


class Candidate:
    """A device and the variant it would run."""

    __slots__ = (
        "_chunks", "_share", "_shares", "blocked", "device", "memory", "model", "name", "runs_here", "tries", "variant", "wide"
    )  # fmt: skip

    def __init__(self, device: Device, variant: Variant, model: KernelModel, *, blocked: bool = False) -> None:
        self.blocked = blocked  # in pieces that fit into a cache, one after the other
        self.tries = dict[int, int]()  # of blocking, while nothing was measured of it, by size class
        self.device = device
        self.name = device.name
        self.memory = device.memory
        self.wide = device.wide
        self.runs_here = device.is_core
        self._chunks: tuple[Chunk] | None = None  # the last answers: programs repeat themselves
        self._shares: tuple[Share] | None = None
        self._share: Share | None = None
        self.variant = variant
        self.model = model

    def chunks(self, box: Box) -> tuple[Chunk]:
        """Return `box` as the one chunk of a task on this device."""
        chunks = self._chunks
        if chunks is None or chunks[0][1] != box:
            chunks = self._chunks = (Chunk(self.name, box),)
        return chunks

    def share(self, work: Work, seconds: float | None, *, together: bool) -> Share:
        """Return what a chunk runs beside others."""
        share = self._share
        if share is None or share[3] != seconds or share[2] is not work or share[4] is not together:
            share = self._share = Share(self.variant, self.model, work, seconds, together)
        return share

    def shares(self, work: Work, seconds: float | None) -> tuple[Share]:
        """Return what that chunk runs."""
        shares = self._shares
        if shares is None or shares[0][3] != seconds or shares[0][2] is not work:
            shares = self._shares = (Share(self.variant, self.model, work, seconds, blocked=self.blocked),)
        return shares


def generated() -> Variant:
    """Return the variant of a kernel whose OpenCL C is made of its body."""
    return Variant(GENERATED, "opencl", numerics=Numerics(4))


class Choice(NamedTuple):
    """The candidates of one kernel on the devices a call allows."""

    all: list[Candidate]
    blocked: list[Candidate]  # the same pairs once more, in cache-sized pieces, where that is possible
    only_cpu: bool  # NumPy holds every type and pads every border, so nobody is to be left out


class Candidates:
    """Finds the candidates of a kernel, once per kernel and choice of devices."""

    def __init__(
        self,
        platform: Platform,
        learned: Learned,
        runs_python: Mapping[str, bool],
        supports: Mapping[str, Supports],
        invented: Collection[str] = (),
        residency: Residency | None = None,
        *,
        compiled: bool = True,
    ) -> None:
        self._platform = platform
        self._compiled = compiled  # machine code made of bodies may be used
        self._learned = learned
        self.lost: dict[str, str] = {}  # devices that failed, and how: nothing is given to them any more
        self.everything = any(d.abilities.on_numpy and not d.ops for d in platform.devices)  # any Python body, any type
        self.mark = object()  # of the answers that still hold
        self._residency = residency  # None: there is room for everything
        self._runs_python = runs_python  # by device
        self._supports = supports  # by device
        kinds = {device.name for device in platform.devices if device.abilities.invented}
        like_real = {device.name for device in platform.devices if device.abilities.driven}
        self._invented = (
            kinds | set(invented)
        ) - like_real  # devices that only seem to run a body, so that any will do

    def of(self, kernel: Kernel, devices: str | None) -> Choice:
        """Return the pairs that can run `kernel`, restricted to the named devices.

        The answer is kept with the kernel, for the last runtime that asked: it lives as long as the kernel does.
        """
        asked, variants, choices = kernel.choices
        if asked is not self.mark or variants != len(kernel.variants):
            choices = {}
        choice: Choice | None = choices.get(devices)
        if choice is None:
            choice = choices[devices] = self._find(kernel, devices)
            kernel.choices = (self.mark, len(kernel.variants), choices)
        return choice

    def _find(self, kernel: Kernel, devices: str | None) -> Choice:
        named = self._doing(kernel, self.named(devices))
        for device in named:
            self._offer_body(kernel, device)
        found = [
            Candidate(device, variant, self._learned.model(kernel, variant, device))
            for device in named
            for variant in self._variants(kernel)
            if not variant.off and device.name not in self.lost and self._fits(device, variant)
        ]
        if not found:
            off = [f"variant {v.name!r} is off ({v.off})" for v in kernel.variants if v.off]
            off += [f"{name} failed ({why})" for name, why in self.lost.items()]
            raise PlanError(
                f"kernel {kernel.name!r} has variants for {', '.join(sorted({v.kind for v in kernel.variants}))}, none "
                f"of which runs on {devices or ', '.join(d.name for d in self._platform.devices)}; "
                f"add one (kernel.opencl(source), kernel.variant(function)) or a CPU device (devices='...,cpu:0')"
                f"{'; ' if off else ''}{'; '.join(off)}"
            )
        return Choice(found, self._blocked(kernel, found), all(c.device.abilities.on_numpy for c in found))

    def _variants(self, kernel: Kernel) -> list[Variant]:
        """Return a kernel's variants. A simulation has those made of the body that were measured, whether or not they are here."""
        declared = [variant for variant in kernel.variants if not variant.made]
        if not self._compiled:
            return declared
        if not self._learned.simulated:
            return list(kernel.variants)
        made = (Variant(COMPILED, COMPILED), generated())
        return [*declared, *(variant for variant in made if self._learned.in_store(kernel, variant))]

    def unfit(self, task: Task) -> dict[str, str]:
        """Return the devices that can do nothing of `task`, and why."""
        assert task.kernel is not None
        op, computed = task.kernel.op or task.kernel.name, _computed(task)
        found = {}
        for device in self._platform.devices:
            held = [array.dtype for array in task.arrays if not self._supports[device.name](array.dtype)]
            if not device.does(op):
                found[device.name] = f"its operations are {', '.join(device.ops)}"
            elif held:
                found[device.name] = f"it cannot hold {held[0]}"
            elif not device.computes(computed):
                found[device.name] = f"it cannot compute with {computed}: its rates are for {', '.join(device.types)}"
        return found | {device: f"it failed: {why}" for device, why in self.lost.items()}

    def _blocked(self, kernel: Kernel, found: list[Candidate]) -> list[Candidate]:
        """Return those that could compute one cache-sized piece after the other: they loop over NumPy arrays."""
        params = kernel.array_params
        if not kernel.split or kernel.reduces or any(p.access.mapper.pads for p in params):
            return []
        if any(p.access.writes and not isinstance(p.access.mapper, Same) for p in params):
            return []  # a piece might write what another has written
        if kernel.by_itself or isinstance(kernel.function, Elementwise | Fused):
            return []  # one pass is all there is, or it works block by block itself
        return [
            Candidate(c.device, c.variant, self._learned.model(kernel, c.variant, c.device, "in cache"), blocked=True)
            for c in found
            if c.device.is_core and c.variant.kind != COMPILED  # which makes one pass anyway
        ]

    def named(self, devices: str | None) -> list[Device]:
        """Return the devices that a call names, in its order: one by one, or by kind; all if it names none."""
        if devices is None:
            return list(self._platform.devices)
        found = []
        for name in filter(None, (part.strip() for part in devices.split(","))):
            matching = [d for d in self._platform.devices if d.name == name or (d.kind == name and not d.wide)]
            if not matching:
                raise unknown_name("device", name, [d.name for d in self._platform.devices])
            found += matching
        return found

    @staticmethod
    def _doing(kernel: Kernel, named: list[Device]) -> list[Device]:
        """Return the devices that can do a kernel's operation at all: some are configured for a few."""
        op = kernel.op or kernel.name
        found = [device for device in named if device.does(op)]
        if named and not found:
            able = ", ".join(f"{device.name} does {', '.join(device.ops)}" for device in named[:4])
            raise PlanError(
                f"kernel {kernel.name!r} is operation {op!r}, which none of the devices can do ({able}"
                f"{', ...' if len(named) > 4 else ''}); allow another device, or add it to `ops` of the platform"
            )
        return found

    def _offer_body(self, kernel: Kernel, device: Device) -> None:
        """Let the Python body serve a backend whose arrays are not NumPy's: a variant that its first use checks.

        What NumPy's own functions compute is known, and has OpenCL C that needs no checking.
        """
        source, has_own = device.abilities.takes_source, any(v.kind == device.kind for v in kernel.variants)
        if source and kernel.operands and not has_own:
            known = chain_variant(kernel)
            if not known.off or not compilable(kernel):
                kernel.variants.append(known)
                has_own = True
        if source and self._compiled and not self._learned.simulated and device.name not in self._invented:
            if compilable(kernel) and not has_own:
                kernel.variants.append(generated())
            return
        foreign = self._runs_python[device.name] and not device.abilities.on_numpy
        if (
            foreign
            and device.name not in self._invented
            and not any(variant.kind == device.kind for variant in kernel.variants)
        ):
            kernel.variants.append(Variant(f"python on {device.kind}", device.kind, numerics=Numerics(4)))

    def runs(self, kernel: Kernel, arrays: Sequence[Array]) -> bool:
        """Tell whether some device can run `kernel`, which has a Python body, on arrays of these types."""
        if self.everything:
            return True
        try:
            candidates, _, only_cpu = self.of(kernel, None)
        except PlanError:
            return False
        return only_cpu or bool(self.holding(candidates, [array.dtype for array in arrays]))

    def lose(self, device: str, why: str) -> None:
        """Give nothing to a device any more."""
        self.lost[device] = why
        self.forget()

    def forget(self) -> None:
        """Look for candidates anew: a device or a variant is off."""
        self.mark = object()

    def _fits(self, device: Device, variant: Variant) -> bool:
        if variant.kind == "python":
            return self._runs_python[device.name] and (device.abilities.on_numpy or device.name in self._invented)
        if variant.kind == COMPILED:
            return device.is_core
        return variant.kind == device.kind or device.name in self._invented

    def holding(self, candidates: list[Candidate], dtypes: list[np.dtype[Any]]) -> list[Candidate]:
        """Return the candidates whose devices can hold all of `dtypes`."""
        return [c for c in candidates if all(self._supports[c.name](dtype) for dtype in dtypes)]

    def _roomy(self, task: Task, candidates: list[Candidate]) -> list[Candidate]:
        """Leave out devices that cannot hold a task, however it is cut."""
        return candidates if self._residency is None else self._residency.roomy(task, candidates)

    def able(self, task: Task, candidates: list[Candidate]) -> list[Candidate]:
        """Leave out devices that cannot hold an argument's type, or compute with it."""
        known = remembered(task)
        if known is not None and (answer := known.get("able")) is not None and answer[0] is candidates:
            return self._roomy(task, answer[1])
        holding = self.holding(candidates, [array.dtype for array in task.arrays])
        able = _computing(holding, task)
        if holding and not able:
            types = "; ".join(
                {c.name: f"{c.name} has rates for {', '.join(c.device.types)}" for c in holding[:4]}.values()
            )
            raise CannotCompute(
                f"kernel {task.name!r}: none of {', '.join(dict.fromkeys(c.name for c in candidates))} can compute with "
                f"{_computed(task)} ({types}); use another type, or allow a CPU device"
            )
        if able and known is not None:
            known["able"] = (candidates, able)
        if not able:
            raise PlanError(
                f"kernel {task.name!r}: none of {', '.join(dict.fromkeys(c.name for c in candidates))} can hold "
                f"{', '.join(sorted({str(array.dtype) for array in task.arrays}))}"
                "; allow a CPU device"
            )
        return self._roomy(task, able)


def _computed(task: Task) -> str:
    """Return the type that a task computes with."""
    return computing_type(" ".join(array.dtype.str for array in task.arrays))


def _computing(candidates: list[Candidate], task: Task) -> list[Candidate]:
    """Leave out devices that state rates by type, but none that would do for the type that a task computes with."""
    if not any(c.device.rates for c in candidates):
        return candidates
    dtype = _computed(task)
    return [c for c in candidates if c.device.computes(dtype)]


def never_within(seconds: float, candidates: Sequence[Candidate], work: Work) -> bool:
    """Tell whether no narrow device is predicted to do all of some work within these seconds, wherever its data is."""
    known = [predicted for c in candidates if not c.wide and (predicted := c.model.seconds(work)) is not None]
    return not known or min(known) >= seconds


def one_per_device(candidates: Sequence[Candidate], work: Work | None = None) -> list[Candidate]:
    """Return the faster known variant of each device."""
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        known = best.get(candidate.name)
        if known is None or (work is not None and _faster(candidate, known, work)):
            best[candidate.name] = candidate
    return list(best.values())


def known_ones(candidates: Sequence[Candidate], work: Work | None = None) -> list[Candidate]:
    """Return the fastest variant of each device among those of which something is known; where nothing is, the first."""
    best: dict[str, tuple[float, Candidate]] = {}
    for candidate in candidates:
        seconds = candidate.model.seconds(work) if work is not None else None
        took = inf if seconds is None else seconds
        if candidate.name not in best or took < best[candidate.name][0]:
            best[candidate.name] = took, candidate
    return [candidate for _, candidate in best.values()]


def narrow_ones(candidates: Sequence[Candidate], work: Work) -> list[Candidate]:
    """Return one candidate per device to divide over; all cores as one device stand aside."""
    return one_per_device([c for c in candidates if not c.device.wide] or list(candidates), work)


def _faster(a: Candidate, b: Candidate, work: Work) -> bool:
    first, second = a.model.seconds(work), b.model.seconds(work)
    return second is not None and (first is None or first < second)
