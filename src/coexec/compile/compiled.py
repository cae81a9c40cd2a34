"""A compiled body: called like the body, on plain arrays, if its guards hold.

Before: compile/llvm.py, compile/build.py.  After: compile/verify.py.  Thread-safe; runs without the interpreter lock.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from ..program.variant import Numerics, exact
from .build import MachineCode, load_llvm, register_bytes
from .columns import columns_copied
from .entering import entrance
from .forwarding import forwarded
from .graph import Assign, Expr, Traced, nodes_of
from .llvm import ENTRY, Llvm
from .llvm_draws import WantsScalars
from .refused import DEEP, Declined, Untraceable
from .schedule import grouped, kept, overlaps_kept, stale_kept
from .streaming import worth_streaming
from .trace import trace
from .walk import WantsMemory

ATTEMPTS = 100  # values stored first and loops made scalar, until a body is written down
FLAGS = (
    (4, "divide", "divide by zero"),
    (8, "over", "overflow"),
    (16, "under", "underflow"),
    (1, "invalid", "invalid value"),
)
"""x86's bit, NumPy's key in np.errstate and NumPy's words for each floating-point flag."""
_CODES = {"divide": 1, "over": 2, "under": 4, "invalid": 8}  # as np.seterrcall's functions get them


class Compiled:
    """A body as machine code. A call runs it and returns nothing, or returns the reason why it does not fit the call."""

    def __init__(self, traced: Traced, writer: Llvm, names: list[str]) -> None:
        self.name = traced.name
        self.traced = traced
        self.text = writer.text()
        self._code = MachineCode(self.text, ENTRY)
        self.names = names
        self.seconds = 0.0  # to trace and compile
        passed = list(writer.arguments.values())
        self._enter = entrance(traced, passed, names, self._code.run, writer.streams)
        self._check = entrance(traced, passed, names, lambda _: 0, writer.streams)

    def __call__(self, *arguments: Any) -> str:
        """Run it on arguments in the order of the body's parameters; what is returned says why it was not run."""
        answer = self._enter(*arguments)
        if type(answer) is str:
            return answer
        if answer:
            self._raise_flags(answer)
        return ""

    def fits(self, *arguments: Any) -> str:
        """Return why it could not run on these arguments, or nothing; nothing is run."""
        answer = self._check(*arguments)
        return answer if type(answer) is str else ""

    def _raise_flags(self, flags: int) -> None:
        """Do what np.errstate says about floating-point flags, as a ufunc does."""
        wanted = np.geterr()
        for bit, key, words in FLAGS:
            if not flags & bit or wanted[key] == "ignore":  # type: ignore[literal-required]
                continue
            message = f"{words} encountered in {self.name}"
            manner = wanted[key]  # type: ignore[literal-required]
            if manner == "raise":
                raise FloatingPointError(message)
            if manner == "warn":
                warnings.warn(message, RuntimeWarning, stacklevel=3)
            elif manner == "call" and (handler := np.geterrcall()) is not None:
                handler(words, _CODES[key])  # type: ignore[operator]

    def __repr__(self) -> str:
        return f"<compiled {self.name}({', '.join(self.names)})>"


def compile_body(
    body: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    writes: Collection[str],
    returns: Sequence[str] = (),
    numerics: Numerics = exact,
) -> Compiled | Declined:
    """Compile a body for calls like this one; `writes` names the arrays that it may change.

    What it returns is written to the arguments that `returns` names, which are no parameters of it. With `numerics` that
    are close, sums may be in another order than NumPy's, and a product and a sum be rounded once.
    The arguments are looked at, never changed. Nothing is compared with NumPy here: `verify` does that.
    """
    start = perf_counter()
    try:
        load_llvm()
        traced = trace(body, arguments, writes, returns, free=numerics != exact)
        large = {name for name in traced.writes if worth_streaming(arguments.get(name))}
        found = Compiled(traced, written(traced, large), list(traced.parameters))
    except Untraceable as reason:
        return Declined(str(reason))
    except RecursionError:
        return Declined(DEEP)
    found.seconds = perf_counter() - start
    return found


def written(traced: Traced, large: Collection[str] = ()) -> Llvm:
    """Return the text of a graph: tried until nothing is computed again and again. `large` arrays go past the caches."""
    stores = columns_copied(overlaps_kept(stale_kept(forwarded(traced.stores))))
    scalar: set[int] = set()  # buffers that are written by loops over single elements
    for _ in range(ATTEMPTS):
        groups = grouped(stores)
        writer = Llvm(register_bytes(), free=traced.free, large=large)
        vectors = [not any(id(store.buffer) in scalar for store in group) for group in groups]
        try:
            writer.write_groups(groups, vectors)
        except WantsMemory as wanted:
            at = next(number for number, store in enumerate(stores) if _uses(store, wanted.node))
            stores = kept(stores, [wanted.node], at)
        except WantsScalars:
            scalar |= {id(store.buffer) for store in groups[writer.written]}
        else:
            return writer
    raise Untraceable("it is too entangled to be written as loops")


def _uses(store: Assign, wanted: Expr) -> bool:
    return any(node is wanted for node in nodes_of(store.value))
