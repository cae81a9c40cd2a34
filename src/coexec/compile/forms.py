"""A body in all its forms: NumPy's serves at once, compiled ones after they were made aside and found to be the same.

Before: compile/verify.py, compile/compiler.py.  After: compile/serving.py.  Thread-safe. Owns no thread.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Sequence
from time import thread_time
from typing import Any, Literal, NamedTuple

import numpy as np

from ..program.variant import Numerics, exact
from .compiled import Compiled, compile_body
from .compiler import Compilation, Compiler
from .entering import OF_MEMORY
from .refused import Declined
from .trace import FEW
from .verify import run_both

MOST = 8  # compiled forms of one signature: more means that the body decides by something that changes all the time
SHORT = 50e-6  # seconds of a call that machine code could hardly shorten: the way into it takes some microseconds, too
SHAPES = 1024  # shapes that are remembered as verified

Make = Callable[..., Compiled | Declined]
Served = Literal["compiled", "compared", "waiting", "numpy"]
"""Who computed a call: the machine code; both, and NumPy's result counts; NumPy for now; NumPy, and that stays so."""


class State(NamedTuple):
    """What is known of one signature: how it is called, and "compiled", "compiling" or why not."""

    signature: str
    answer: str


class Way(NamedTuple):
    """How forms are made and used."""

    compiler: Compiler | None = None  # makes them aside; without one, the first call compiles
    debug: bool = False  # compare every call
    patience: float = 0.0  # seconds that NumPy computes calls of one signature before a form of it is made
    news: Callable[[Forms], None] | None = None  # told, on any thread, that the answer for a signature has changed


class _Signature:
    """The forms for one pattern of types, and the shapes at which each was compared with NumPy."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.forms: list[Compiled] = []
        self.pending = False
        self.reason = ""
        self.spent = 0.0  # seconds that NumPy computed
        self.verified: dict[tuple[int, Any], bool] = {}
        self.quicker: dict[
            tuple[int, Any], bool
        ] = {}  # of those: whether it took less than NumPy when they were compared


class Forms:
    """A body and its compiled forms. Called like the body; computes NumPy's bits unless `numerics` allow less."""

    def __init__(
        self,
        body: Callable[..., Any],
        *,
        writes: Collection[str],
        returns: Sequence[str] = (),
        compiler: Compiler | None = None,
        debug: bool = False,
        make: Make = compile_body,
        numerics: Numerics = exact,
    ) -> None:
        self.body = body
        self.numerics = numerics
        self.writes = frozenset(writes)
        self.returns = tuple(returns)
        self.off = ""  # why no compiled form is used any more
        parameters = inspect.signature(body).parameters.values()
        self._params = [p.name for p in parameters]
        self._by_keyword = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        self._names = [*self._params, *self.returns]
        self._way = Way(compiler, debug)
        self._make = make
        self._lock = threading.Lock()
        self._signatures: dict[Any, _Signature] = {}

    def __call__(self, *arguments: Any) -> None:
        """Compute, by whichever form is known to be right for these arguments."""
        self.run(arguments, (), self._way)

    def run(self, arguments: tuple[Any, ...], targets: tuple[Any, ...], way: Way) -> tuple[Served, Any]:
        """Compute by the right form; return who did, and what NumPy's body returned if it did.

        `targets` are what a body's results belong into, which only machine code writes.
        """
        if self.off:
            return "numpy", self._numpy(arguments)
        given = (*arguments, *targets)
        known, shape = self._known(given), size_class(given)
        final = bool(known.reason)  # whether no other form would do
        for number, form in enumerate(known.forms):
            if way.debug or not known.verified.get((number, shape)):
                both = self._try(known, number, shape, arguments, targets, way)
                if not isinstance(both, str):
                    return "compared", both[0]
                missed = both
            elif not (missed := form(*given)):
                return "compiled", None
            final = final or missed.startswith(OF_MEMORY)
        if final or not self._ask(known, given, way):
            return "numpy", self._numpy(arguments)
        return "waiting", self._numpy(arguments)

    def watch(self, arguments: tuple[Any, ...], targets: tuple[Any, ...], way: Way) -> tuple[Served, Any]:
        """Let NumPy's body compute, and see to it that there is a form which is known to be right for such calls."""
        if self.off:
            return "numpy", self._numpy(arguments)
        given = (*arguments, *targets)
        known = self._known(given)
        if known.reason or known.pending or (known.verified and not way.debug):
            return "numpy", self._numpy(arguments)
        at_once = way.compiler is None and known.spent > 0.0  # the first call tells how long NumPy takes
        if at_once and not known.forms:
            self._ask(known, given, way)
        shape = size_class(given)
        for number in range(len(known.forms)):
            both = self._try(known, number, shape, arguments, targets, way)
            if not isinstance(both, str):
                return "compared", both[0]
            if both.startswith(OF_MEMORY):
                return "numpy", self._numpy(arguments)
        start = thread_time()
        returned = self._numpy(arguments)
        took = thread_time() - start
        known.spent += took if took > SHORT or not way.patience else 0.0
        if way.compiler is not None and known.spent >= way.patience:
            self._ask(known, given, way)
        return ("waiting" if at_once else "numpy"), returned

    def stand_in(self, arguments: tuple[Any, ...], targets: tuple[Any, ...], way: Way) -> tuple[Served, Any]:
        """Compute a call that was planned for NumPy before there was a form: by one that is right and was quicker, else as `watch`."""
        if not self.off:
            given = (*arguments, *targets)
            known, shape = self._known(given), size_class(given)
            for number, form in enumerate(known.forms):
                if known.quicker.get((number, shape)) and not form(*given):
                    return "compiled", None
        return self.watch(arguments, targets, way)

    def states(self) -> list[State]:
        """Return what is known of each signature that was called."""
        with self._lock:
            return [State(known.text, self._answer(known)) for known in self._signatures.values()]

    @property
    def on(self) -> bool:
        """Whether some form was found to be right."""
        return not self.off and any(known.verified for known in list(self._signatures.values()))

    @property
    def seconds(self) -> float:
        """How long tracing and compiling took, all forms together."""
        with self._lock:
            return sum(form.seconds for known in self._signatures.values() for form in known.forms)

    @property
    def refusal(self) -> str:
        """Why there is no form, as far as that is known; else empty."""
        return self.off or next((known.reason for known in list(self._signatures.values()) if known.reason), "")

    def _answer(self, known: _Signature) -> str:
        if self.off:
            return f"off: {self.off}"
        if known.pending:
            return "compiling"
        if known.forms and not known.verified:
            return "compiled, not compared yet"
        return "compiled" if known.forms else known.reason or "not worth it yet"

    def _numpy(self, arguments: tuple[Any, ...]) -> Any:
        if not self._by_keyword:
            return self.body(*arguments)
        named = dict(zip(self._params, arguments, strict=True))
        by_keyword = {name: named.pop(name) for name in self._by_keyword}
        return self.body(*named.values(), **by_keyword)

    def _known(self, given: tuple[Any, ...]) -> _Signature:
        key = tuple(map(kind_of, given))
        found = self._signatures.get(key)
        if found is None:
            with self._lock:
                names = zip(self._names, given, strict=True)
                text = ", ".join(f"{name}: {_kind_text(value)}" for name, value in names)
                found = self._signatures.setdefault(key, _Signature(text))
        return found

    def _try(
        self,
        known: _Signature,
        number: int,
        shape: Any,
        arguments: tuple[Any, ...],
        targets: tuple[Any, ...],
        way: Way,
    ) -> tuple[Any] | str:
        """Run NumPy's body and a form that was not compared at such sizes; say why if it does not fit, and nothing ran."""
        named = dict(zip(self._params, arguments, strict=True))
        into = dict(zip(self.returns, targets, strict=True))
        if any(_share(named | into, name) for name in (*self.writes, *into)):
            return f"{OF_MEMORY}arguments share it"
        if missed := known.forms[number].fits(*arguments, *targets):
            return missed
        times: list[float] = []
        form = known.forms[number]
        found, returned = run_both(
            lambda: _timed(times, self._numpy, arguments),
            lambda *given: _timed(times, form, *given),
            named,
            self.writes - into.keys(),
            into,
            self.numerics.ulp,
        )
        with self._lock:
            if found:
                self.off = f"{known.text}: {found}"
            elif found is not None:
                if len(known.verified) >= SHAPES:
                    known.verified.clear()
                    known.quicker.clear()
                known.verified[number, shape] = True
                known.quicker[number, shape] = times[0] < times[1]  # the form runs first
        if way.news is not None:
            way.news(self)
        return (returned,)

    def _ask(self, known: _Signature, given: tuple[Any, ...], way: Way) -> bool:
        """Have a form made for calls like this, aside; False if there will be no other one."""
        with self._lock:
            if known.pending:
                return True
            if known.reason or len(known.forms) >= MOST:
                return False
            known.pending = True
        seen = {name: _stand_in(value) for name, value in zip(self._names, given, strict=True)}

        def run() -> None:
            answer: Compiled | Declined = Declined("the compiler failed")
            try:
                options: dict[str, Any] = {"returns": self.returns} if self.returns else {}
                options |= {"numerics": self.numerics} if self.numerics != exact else {}
                answer = self._make(self.body, seen, writes=self.writes, **options)
            except Exception as error:  # noqa: BLE001 - a fault of the compiler is a reason, too
                answer = Declined(f"the compiler failed: {type(error).__name__}: {error}")
            finally:
                with self._lock:
                    known.pending = False
                    if isinstance(answer, Declined):
                        known.reason = answer.reason
                    else:
                        known.forms.append(answer)
            if way.news is not None:
                way.news(self)

        def drop() -> None:
            known.pending = False

        if way.compiler is None:
            run()
        elif not way.compiler.submit(Compilation(run, drop)):
            drop()
            return False
        return True


def _timed(times: list[float], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and append the seconds that it computed."""
    start = thread_time()
    returned = function(*arguments)
    times.append(thread_time() - start)
    return returned


def kind_of(value: Any) -> Any:
    """Return what one compiled form needs of an argument: types, and short last axes."""
    if isinstance(value, np.ndarray):
        last = value.shape[-1] if value.ndim > 1 and value.shape[-1] <= FEW else 0
        return value.dtype, value.ndim, last
    return type(value)


def _kind_text(value: Any) -> str:
    return f"{value.dtype}[{value.ndim}]" if isinstance(value, np.ndarray) else type(value).__name__


def size_class(arguments: tuple[Any, ...]) -> Any:
    """Return what sizes are compared with NumPy once for: powers of two of each extent."""
    return tuple([tuple([n.bit_length() for n in a.shape]) for a in arguments if isinstance(a, np.ndarray)])


def _stand_in(value: Any) -> Any:
    """Return an array of the same type and shape without elements of its own, for tracing looks at no element."""
    return np.broadcast_to(np.empty((), value.dtype), value.shape) if isinstance(value, np.ndarray) else value


def _share(arguments: dict[str, Any], written: str) -> bool:
    """Tell whether a written array shares memory with another."""
    mine = arguments[written]
    return any(
        name != written and isinstance(other, np.ndarray) and np.may_share_memory(mine, other)
        for name, other in arguments.items()
    )
