"""Comparisons with the beginning and the end of some block of a loop: answered only where all blocks have one answer.

Before: compile/host.py.  After: compile/sizes.py, compile/loops.py.  Knows Python numbers only.
"""

from __future__ import annotations

from typing import Any

from .host import BLOCK_ANSWER, Block, Guards, Host, plain
from .refused import Untraceable

NEAR = 64  # elements that a loop's end and the end of an array may lie apart: halos are narrow
_SWAPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "=="}


def low_of(block: Block, guards: Guards) -> Host:
    """Return where a block begins."""
    return Host(block.start, block.low, guards)


def high_of(block: Block, guards: Guards) -> Host:
    """Return where a block ends."""
    return Host(plain(block.stop), block.high, guards)


def block_answer(difference: Host, symbol: str) -> bool:
    """Return what `difference symbol 0` is in every block of a loop; raise if it is not the same in all."""
    for guess, sign in ((False, 1), (False, -1), (True, 1), (True, -1)):
        low, high = _bounds(sign * difference, guess=guess)  # type: ignore[operator]
        found = _compared(low, high, symbol if sign == 1 else _SWAPPED[symbol])
        if found is not None:
            return found
    raise Untraceable("its loop over blocks does something else in some blocks")


def _bounds(size: Any, *, guess: bool) -> tuple[int | None, int | None]:
    """Return between which numbers a size lies, as far as it is a block's beginning, end or length and a constant.

    A guess makes a guard of it that ends of arrays lie as far apart as they do at this call.
    """
    guards = size.guards
    terms = dict(guards.reduced(size.linear)[0]) if size.linear is not None else {}
    for block in guards.blocks:
        begin, end = low_of(block, guards), high_of(block, guards)
        factors = terms.get(block.low, 0), terms.get(block.high, 0)
        if factors == (1, 0):
            rest, least, most = size - begin, block.start, block.stop - 1
        elif factors == (0, 1):
            rest, least, most = size - end, block.start + 1, block.stop
        elif factors == (-1, 1):
            rest, least, most = size - end + begin, 1, None
        else:
            continue
        if isinstance(rest, Host) and guards.mentions_block(rest.text):
            return None, None
        low, high = rest + least, None if most is None else rest + most
        known = most is not None and (isinstance(high, int) or (guess and _constant(high)))
        return _at_least(low), plain(high) if known else None
    return None, None


def _at_least(size: Any) -> int | None:
    """Return what a size is at least at every call that fits, as far as that was decided before."""
    if isinstance(size, int):
        return size
    terms, found = size.guards.reduced(size.linear) if size.linear is not None else ((("", -1),), 0)
    for text, factor in terms:
        if factor < 0 or text not in size.guards.least:
            return None
        found += factor * size.guards.least[text]
    return int(found)


def _constant(size: Any) -> bool:
    """Tell whether a size is not far from zero and the same at every call; what is decided so becomes a guard."""
    return abs(plain(size)) <= NEAR and bool(size == plain(size))


def _compared(low: int | None, high: int | None, symbol: str) -> bool | None:
    """Return what `x symbol 0` is for all x between bounds, if it is the same."""
    if symbol in ("<", ">="):
        below = True if high is not None and high < 0 else False if low is not None and low >= 0 else None
        return below if symbol == "<" or below is None else not below
    if symbol in (">", "<="):
        above = True if low is not None and low > 0 else False if high is not None and high <= 0 else None
        return above if symbol == ">" or above is None else not above
    return False if (low is not None and low > 0) or (high is not None and high < 0) else None


def lesser(a: Any, b: Any) -> Any:
    """Return the lesser of two sizes: a step after a block's beginning, or the end of an array, is the block's end."""
    for one, other in ((a, b), (b, a)):
        difference: Any = one - other if isinstance(one, Host) or isinstance(other, Host) else 0
        if isinstance(difference, Host) and difference.linear is not None:
            guards = difference.guards
            for block in guards.blocks:
                rest = difference - low_of(block, guards) + block.stop - block.step  # type: ignore[operator]
                if isinstance(rest, Host) and guards.mentions_block(rest.text):
                    continue
                if (rest == 0) if isinstance(rest, int) else plain(rest) == 0 and bool(rest == 0):
                    return high_of(block, guards) + (other - block.stop)
    return min(a, b)


BLOCK_ANSWER.append(block_answer)
