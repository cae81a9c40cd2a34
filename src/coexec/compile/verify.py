"""Compiled bodies against NumPy: by bits or as close as declared, on the arguments of a real call.

Before: compile/compiled.py.  After: compile/forms.py.  The only judge of whether a compiled form may be used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def differing(wanted: Array, got: Array) -> Array:
    """Return where two arrays do not have the same bits; all NaNs are alike."""
    if wanted.dtype.kind != "f":
        return np.asarray(wanted != got)
    unsigned = f"u{wanted.itemsize}"
    return np.asarray((wanted.view(unsigned) != got.view(unsigned)) & ~(np.isnan(wanted) & np.isnan(got)))


def _apart(wanted: Array, got: Array, ulp: float) -> Array:
    """Return where two arrays of floats are not close."""
    sound = np.isfinite(wanted) & np.isfinite(got)
    largest = float(np.abs(wanted[sound]).max(initial=0.0))
    with np.errstate(all="ignore"):
        far = np.abs(wanted.astype(np.float64) - got) > ulp * float(np.finfo(wanted.dtype).eps) * largest
    return np.asarray(np.where(sound, far, (wanted != got) & ~(np.isnan(wanted) & np.isnan(got))))


def compare(name: str, wanted: Array, got: Array, ulp: float = 0.0) -> str:
    """Return what differs between two arrays, or nothing.

    Floats may lie `ulp` units in the last place of the largest one apart, but what is not finite must be alike.
    """
    wrong = differing(wanted, got) if not ulp or wanted.dtype.kind != "f" else _apart(wanted, got, ulp)
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"{name} differs in {count} of {wrong.size} elements, first at {at}: {got[at]!r} instead of {wanted[at]!r}"


def run_both(
    body: Callable[[], Any],
    form: Callable[..., str],
    arguments: Mapping[str, Any],
    writes: Collection[str],
    targets: Mapping[str, Array],
    ulp: float = 0.0,
) -> tuple[str | None, Any]:
    """Run the NumPy body and a compiled form, each on what it writes of its own; return what differs, and the body's result.

    The arguments then hold NumPy's result, whatever is found. `body` has them already; what it returns belongs into
    `targets`, which are left alone. None instead of what differs: it returned what does not fit there.
    """
    copies = {name: _copied(value) if name in writes else value for name, value in arguments.items()}
    results = {name: np.empty_like(target, order="C") for name, target in targets.items()}
    with np.errstate(all="ignore"):
        missed = form(*copies.values(), *results.values())
    returned = body()
    if missed:
        return f"it does not fit: {missed}", returned
    wanted = {name: arguments[name] for name in writes}
    if targets:
        placed = _placed(returned, targets)
        if placed is None:
            return None, returned
        wanted |= placed
    for name, array in wanted.items():
        if found := compare(name, array, (copies | results)[name], ulp):
            return found, returned
    return "", returned


def _placed(returned: Any, targets: Mapping[str, Array]) -> dict[str, Array] | None:
    """Return what a body returned as arrays like those that were declared for it; None if it does not fit."""
    results = returned if isinstance(returned, tuple | list) else (returned,)
    if len(results) != len(targets) or any(
        np.shape(r) != t.shape for r, t in zip(results, targets.values(), strict=True)
    ):
        return None
    found = {}
    for result, (name, target) in zip(results, targets.items(), strict=True):
        found[name] = np.empty_like(target, order="C")
        try:
            np.copyto(found[name], result, casting="same_kind")
        except TypeError:
            return None
    return found


def _copied(value: Any) -> Any:
    """Return an array of its own with the same elements."""
    if not isinstance(value, np.ndarray):
        return value
    copy = np.empty_like(value, order="C")
    copy[...] = value
    return copy
