"""The bodies of kernels in a runtime: which of them are compiled, by whom, and what kernels say about it.

Before: compile/forms.py, program/kernel.py.  After: backend/launch.py, which asks for a turn.  Knows no device and no plan.

A kernel whose body has been computing for a while is compiled aside. Once a form of it was found to give NumPy's bits, the kernel
has one more variant, which the planner may choose like any other. What was made stays with the kernel, for other runtimes too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FunctionType
from typing import Any
from weakref import WeakSet

from ..program.body import does_nothing
from ..program.fuse import Fused
from ..program.kernel import Kernel
from ..program.variant import COMPILED, Variant
from .compiler import Compiler
from .forms import Forms, State, Way

PATIENCE = 50e-3  # seconds that NumPy computes before a body is compiled: as long as that takes
MOST_WAYS = 1 << 6  # kernels that a runtime remembers, and so keeps: chains of operators are kernels, too
OUTSIDE = 8  # sets of values from outside for which one body is compiled; beyond, they change all the time
_all: WeakSet[CompiledBody] = WeakSet()
_open: WeakSet[Bodies] = WeakSet()  # of all runtimes: what one of them compiled is there for the others


class CompiledBody:
    """What was compiled of one kernel's body: its forms, by what it takes from outside. Kept with the kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.variant = Variant(COMPILED, COMPILED, numerics=kernel.numerics)
        self.kernel_name = kernel.name
        self.listed = False  # the kernel has the variant: it is on, or off for a reason
        self.failed = False  # a form differed from NumPy: none is used any more
        self._writes = frozenset(p.name for p in kernel.array_params if p.access.writes and p.position >= 0)
        self._returns = kernel.returns.names
        self._numerics = kernel.numerics
        self._forms: dict[Callable[..., Any], Forms] = {}
        self.lock = threading.Lock()
        _all.add(self)

    def forms(self, body: Callable[..., Any]) -> Forms | None:
        """Return the forms of the body with its present values from outside; None if these change all the time."""
        known = self._forms.get(body)
        if known is None:
            with self.lock:
                if len(self._forms) < OUTSIDE:
                    made = Forms(body, writes=self._writes, returns=self._returns, numerics=self._numerics)
                    known = self._forms.setdefault(body, made)
        return known

    @property
    def seconds(self) -> float:
        """How long tracing and compiling took, all forms together."""
        return sum(forms.seconds for forms in list(self._forms.values()))

    def states(self) -> list[State]:
        """Return what is known of each signature that was called."""
        return [state for forms in list(self._forms.values()) for state in forms.states()]


def compiled_bodies() -> list[CompiledBody]:
    """Return all that are known in this process."""
    return list(_all)


class ServedLaunch:
    """One launch of a body: called like the body, it computes by the right form, and knows afterwards who did."""

    __slots__ = ("_forms", "_run", "_way", "_without", "placed", "targets", "typical")

    def __init__(self, forms: Forms, way: Way, *, compiled: bool, ahead: bool = False) -> None:
        """Begin. `ahead`: it was planned for NumPy before there was a compiled form, which may serve it now."""
        self._forms, self._way = forms, way
        self._run = forms.run if compiled else forms.stand_in if ahead else forms.watch
        self._without = ("numpy",) if ahead else ("compiled", "numpy")  # who may serve it without being a stand-in
        self.targets: tuple[Any, ...] = ()  # what results belong into
        self.placed = False  # whether results are there already
        self.typical = True  # its time is that of its variant: nothing was compared, nobody stood in

    def __call__(self, *arguments: Any, **by_keyword: Any) -> Any:
        """Compute, and return what the body returned; nothing if the results are where they belong."""
        served, returned = self._run((*arguments, *by_keyword.values()), self.targets, self._way)
        self.placed = served == "compiled"
        self.typical = self.typical and served in self._without
        return returned


class Bodies:
    """Compiles the bodies of a runtime's kernels, in a thread that ends with it."""

    def __init__(
        self,
        mode: str = "auto",
        *,
        debug: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Begin. `mode`: auto, always (at once, by whoever runs the body) or off."""
        self._on = mode != "off"
        self.compiler = Compiler()
        self.changed: Callable[[], None] = lambda: (
            None
        )  # called when a kernel has other variants than before, on any thread
        self.ahead: Callable[[], Mapping[str, int]] = dict  # by device: the last task that was planned for it so far
        self._ahead: dict[int, Mapping[str, int]] = {}  # the same when a kernel's compiled variant came on, by kernel
        self._note = note
        aside, patience = (None, 0.0) if mode == "always" else (self.compiler, PATIENCE)
        self._way = Way(aside, debug, patience)
        self._ways: dict[int, Way] = {}  # the same that tells what became of a kernel's forms, by kernel
        _open.add(self)

    def turn(
        self, kernel: Kernel, body: Callable[..., Any], variant: Variant, device: str = "", task: int = 0
    ) -> Callable[..., Any]:
        """Return what a launch of a kernel calls: the body itself where nothing is to be compiled.

        `device` and `task`, its number, tell whether the launch was planned before there was anything but NumPy's body.
        """
        compiled = variant.kind == COMPILED
        if not self._on or not (compiled or variant.kind == "python"):
            return body
        known: CompiledBody | None = kernel.compiled
        if known is None:
            if kernel.compilable is None:
                kernel.compilable = compilable(kernel)  # once: it reads the body's bytecode
            if not kernel.compilable:
                return body
            known = kernel.compiled = CompiledBody(kernel)
        forms = None if known.failed else known.forms(body)
        if forms is None:
            return body
        way = self._ways.get(kernel.serial)
        if way is None:
            if len(self._ways) >= MOST_WAYS:
                self._ways.clear()
            way = self._ways[kernel.serial] = self._way._replace(news=partial(self._tell, kernel))
        before = self._ahead.get(kernel.serial)
        ahead = before is not None and not way.debug and task <= before.get(device, -1)
        return ServedLaunch(forms, way, compiled=compiled, ahead=ahead)

    def _tell(self, kernel: Kernel, forms: Forms) -> None:
        """Let the kernel's variants say what became of a form."""
        known: CompiledBody = kernel.compiled
        variant = known.variant
        with known.lock:
            off = "" if forms.on else forms.refusal
            if known.failed or (not forms.on and not off):
                return  # it is off for good, or compiled and not compared yet
            if known.listed and (variant.off == off or (off and not variant.off and not forms.off)):
                return  # said before, or of another signature
            everybody = list(_open)
            for bodies in everybody if not off else ():
                bodies._ahead[kernel.serial] = bodies.ahead()  # before any planner sees the variant
            variant.off, known.failed = off, bool(forms.off)
            if not known.listed:
                known.listed = True
                kernel.variants.append(variant)
        for bodies in everybody:
            bodies.changed()
        self._note(f"kernel {kernel.name!r}: variant {COMPILED!r} is {f'off: {off}' if off else 'on'}")

    def close(self) -> None:
        """End the thread; what was not begun is not compiled."""
        _open.discard(self)
        self.compiler.close()


def compilable(kernel: Kernel) -> bool:
    """Tell whether a kernel's body is one to compile: a plain function or a chain, which does something to arrays."""
    function = kernel.function
    if kernel.host or kernel.internal or not isinstance(function, FunctionType | Fused):
        return False
    return bool(kernel.array_params) and not does_nothing(function)


def reasons(kernel: Kernel) -> Iterator[State]:
    """Yield what is known of each signature of a kernel's calls: compiled, or why not."""
    if kernel.compiled is not None:
        yield from kernel.compiled.states()
