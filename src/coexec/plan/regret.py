"""When to bring data to a device that would be faster with it: once staying has cost as much as the copies would.

Before: nothing.  After: plan/place.py.  Knows seconds; no device.

Nobody knows how often a call will come again. Who moves as soon as the time lost so far equals the copies spends at most
twice what the best decision would have cost (ski rental). If the data comes back, moving did not pay: the next time it
takes twice as much.
"""

from __future__ import annotations

from collections.abc import Hashable

KEPT = 256


class Regrets:
    """What was lost by staying, by call and place of its data."""

    def __init__(self) -> None:
        self._lost: dict[Hashable, float] = {}
        self._patience: dict[Hashable, float] = {}

    def copy(self) -> Regrets:
        """Return the same again, to be put back later."""
        same = Regrets()
        same._lost, same._patience = dict(self._lost), dict(self._patience)
        return same

    def moves(self, call: Hashable, gain: float, copies: float) -> bool:
        """Note that a call would take `gain` seconds less after `copies` seconds of copies; tell whether to make them."""
        if len(self._lost) > KEPT:
            self._lost.clear()
            self._patience.clear()
        patience = self._patience.get(call, 1.0)
        lost = self._lost[call] = self._lost.get(call, 0.0) + gain
        if lost < copies * patience:
            return False
        self._lost[call], self._patience[call] = 0.0, 2.0 * patience
        return True

    def due(self, call: Hashable, gain: float, copies: float) -> bool:
        """Tell whether `moves` would make the copies for one more call; if not, note what staying costs it."""
        lost = self._lost.get(call, 0.0) + gain
        if lost >= copies * self._patience.get(call, 1.0):
            return True
        self._lost[call] = lost
        return False
