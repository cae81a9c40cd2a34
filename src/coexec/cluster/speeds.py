"""How fast ranks are: the shares of work that follow from what each of them measured of calls that they divide.

Before: nothing.  After: cluster/dealing.py; joined.py and ranked.py, which tell all ranks what observe/rank_speeds.py found.  Pure.

What a rank measures is its own. It decides nothing until all ranks have told each other, at a point of the program that all
of them know by its number; from the same words each of them then finds the same shares.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import ClusterError

Shares = tuple[float, ...]
"""Of the work of a call, by rank; together they are 1."""

FIRST, SPACING = 32, 1024
"""Calls of a program before ranks tell each other their speeds for the first time; calls between two times, once it runs long."""
BEHIND = 16
"""Calls that may be under way when ranks tell each other their speeds: those before them are waited for, and measured."""
GAIN = 0.1
"""Part of the time that other shares must save to be worth it: arrays that were cut otherwise have to be sent."""
LEAST = 0.02
"""Seconds that calls must have taken on some rank before their times say anything: shorter ones are noise."""
WHOLE = " whole"
"""How kinds of calls end of which one rank computes all."""
KINDS = 256
"""Kinds of undivided calls that are remembered."""
STEPS = 256
"""Shares are multiples of one part in so many."""


Paced = Mapping[str, tuple[int, float]]
"""What one rank found, by kind of call."""


def as_words(found: Paced) -> bytes:
    """Return what a rank tells the others."""
    return json.dumps(found).encode()


def read_words(rank: int, words: bytes) -> Paced:
    """Return what a rank told."""
    try:
        found = json.loads(words)
    except ValueError as error:
        raise _unclear(rank) from error
    return read_paced(rank, found)


def read_paced(rank: int, found: Any) -> Paced:
    """Return what a rank told, as it was read from JSON."""
    try:
        return {str(kind): (int(count), float(seconds)) for kind, (count, seconds) in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise _unclear(rank) from error


def _unclear(rank: int) -> ClusterError:
    return ClusterError(f"rank {rank} tells of its speed what coexec does not understand", rank)


class Measures(Protocol):
    """What a rank of this process measures of calls that ranks divide."""

    def told(self) -> Paced:
        """Return what was measured."""

    def forget(self) -> None:
        """Begin anew."""


class Balance:
    """The shares of all ranks. The same on each of them, since it looks at nothing but what all of them were told."""

    def __init__(
        self,
        shares: Shares,
        share: Callable[[Shares], None],
        measures: Sequence[Measures],
        *,
        on: bool = True,
        predict: Callable[[Mapping[str, Sequence[float]]], None] | None = None,
    ) -> None:
        """`share` lets calls be divided by other shares; `measures` are of the ranks of this process.

        `predict` is told what undivided calls take on each rank.
        """
        self._predict = predict
        self._alone: dict[str, list[float | None]] = {}  # undivided calls, on the ranks that have computed some
        self.shares = shares
        self.measures = measures
        self._share = share
        self._on = on and len(shares) > 1
        self._next = FIRST
        self._events = 0
        self._doubted = False  # other shares would have been better the last time, too

    def due(self) -> bool:
        """Count something that the program asks for; tell whether ranks tell each other their speeds before it."""
        self._events += 1
        if self._events < self._next or not self._on:
            return False
        self._next += min(self._events, SPACING)
        return True

    @property
    def watched(self) -> bool:
        """Whether the present call is the one to wait for before ranks tell each other their speeds."""
        return self._on and self._events == self._next - BEHIND

    def heard(self, told: Sequence[Paced]) -> str:
        """Look at what all ranks measured; say so if calls are divided by other shares from now on."""
        changed = self._judged(told)
        if self._on and self._predict is not None:
            self._hear_of_undivided(told)
            self._predict(alone_on_ranks(self._alone, self.shares))
        if changed is not None:
            for measured in self.measures:
                measured.forget()
        if not changed:
            return ""
        self._share(self.shares)
        return f"ranks share work {' : '.join([f'{share:.3g}' for share in self.shares])}"

    def _hear_of_undivided(self, told: Sequence[Paced]) -> None:
        for rank, found in enumerate(told):
            for kind, (_, seconds) in sorted(found.items()):
                if kind.endswith(WHOLE) and seconds > 0.0:
                    plain = kind.removesuffix(WHOLE)
                    if plain not in self._alone and len(self._alone) >= KINDS:
                        del self._alone[next(iter(self._alone))]
                    self._alone.setdefault(plain, [None] * len(told))[rank] = seconds

    def _judged(self, told: Sequence[Paced]) -> bool | None:
        """Tell whether there are other shares now; None if too little was measured to say."""
        whole = whole_times(told)
        if not self._on or whole is None:
            return None
        now, best = max(share * seconds for share, seconds in zip(self.shares, whole, strict=True)), ideal(whole)
        if now < LEAST:
            return None
        before, self._doubted = self._doubted, now > (1 + GAIN) * best
        if not (before and self._doubted):
            return False
        self._doubted = False
        self.shares = in_steps([best / seconds for seconds in whole])
        return True


def whole_times(told: Sequence[Paced]) -> list[float] | None:
    """Return the seconds that each rank would take for all calls that all ranks have measured; None if there are none."""
    divided = [kind for kind in sorted(told[0]) if not kind.endswith(WHOLE)]
    kinds = [kind for kind in divided if all(kind in found and found[kind][1] > 0.0 for found in told)]
    if not kinds:
        return None
    return [sum(told[0][kind][0] * found[kind][1] for kind in kinds) for found in told]


def alone_on_ranks(known: Mapping[str, Sequence[float | None]], shares: Shares) -> dict[str, tuple[float, ...]]:
    """Return the seconds of undivided calls on each rank: as one has measured it, else as `shares` say from the first that has."""
    found = {}
    for kind, seconds in known.items():
        first, taken = next((rank, taken) for rank, taken in enumerate(seconds) if taken is not None)
        guesses = [taken * shares[first] / share for share in shares]
        found[kind] = tuple([guess if own is None else own for own, guess in zip(seconds, guesses, strict=True)])
    return found


def ideal(whole: Sequence[float]) -> float:
    """Return the seconds that all ranks need together, of those that each would need alone."""
    return 1.0 / sum(1.0 / seconds for seconds in whole)


def in_steps(shares: Sequence[float]) -> Shares:
    """Return shares in multiples of one step that make up 1 together; nobody gets less than one step."""
    steps = max(STEPS, 4 * len(shares))
    total = sum(shares)
    found = [max(1, round(share / total * steps)) for share in shares]
    found[found.index(max(found))] += steps - sum(found)
    return tuple([number / steps for number in found])
