"""What the parts of a call must be brought of what other parts wrote, and whether that goes on from turn to turn.

Before: profile.py.  After: bounds.py.  Knows no devices and no cuts.
"""

from __future__ import annotations

from collections.abc import Sequence

from .profile import StepProfile


def exchanges(step: StepProfile) -> list[list[bool]]:
    """Tell for each call of a step and each of its arrays whether it reads what nobody has read since it was written.

    Whoever reads first brings what others wrote, for all who come after. The turn that is looked at follows another.
    """
    found: list[list[bool]] = []
    unread = set[int]()
    for number in range(2):
        found = []
        for call in step.calls:
            arrays = [id + number * new for id, new in zip(call.arrays, call.renewed, strict=True)]
            pairs = list(zip(call.profile.arguments, arrays, strict=True))
            found.append([argument.reads and array in unread for argument, array in pairs])
            unread.difference_update([array for argument, array in pairs if argument.reads])
            unread.update([array for argument, array in pairs if argument.writes and not argument.reduces])
        for one, other in step.swapped:
            changed = {other if array == one else one for array in unread & {one, other}}
            unread = (unread - {one, other}) | changed
    return found


def carries(step: StepProfile, beyond: Sequence[Sequence[bool]]) -> bool:
    """Tell whether what parts exchange depends on what they exchanged a turn before.

    `beyond` tells by call and argument whether parts read more of it than their own part.
    If nothing depends on it, cuts may move from call to call: then data crosses each of them in one direction, and who gets it lags behind.
    """
    made, before, most = dict[int, int](), 0, 0  # by array: after how many exchanges, one after the other
    for number in range(3):
        before = most
        for call, further in zip(step.calls, beyond, strict=True):
            arrays = [id + number * new for id, new in zip(call.arrays, call.renewed, strict=True)]
            depth = 0
            for argument, array, exchanged in zip(call.profile.arguments, arrays, further, strict=False):
                depth = max(depth, made.get(array, 0) + exchanged if argument.reads else 0)
            for argument, array in zip(call.profile.arguments, arrays, strict=True):
                if argument.writes:
                    made[array] = depth
            most = max(most, depth)
        for one, other in step.swapped:
            made[one], made[other] = made.get(other, 0), made.get(one, 0)
    return most > before
