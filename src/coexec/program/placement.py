"""Where the parts of a call go, if the program says so: a group of devices, cuts of axes, a ring, and replicas.

Before: errors.py.  After: program/call.py, plan/prescribed.py, cluster/dealing.py.  Plain data: knows no device and no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose, isfinite, prod
from typing import Any

from ..errors import ArgumentError, CoexecError, PlanError, unknown_name

Parts = int | tuple[int, ...] | tuple[float, ...]
"""Of one axis: so many equal parts (`EVERYONE`: as many as there are members), the rows of each part, or its share."""
EVERYONE = 0
ROUNDING = 1e-6
"""By how much shares may miss a sum of 1, of which floats are the reason."""
FIELDS = ("devices", "cut", "rotate", "replicas")


@dataclass(frozen=True, slots=True, init=False)
class Placement:
    """A group of devices and how a call is cut over them. Parts go to the members in order, the last axis first.

    `devices` are names, as one text or several; a kind stands for all devices of it. `cut` says which axes of the index
    space are cut: an axis; several, into how many parts each; or per axis the shares (floats, of the work) or the rows
    (whole numbers) of each part. Without `cut` the call is divided within the group as predictions say.

    `rotate=axis` cuts one more axis into as many shards as there are members. Each member computes all of them for its
    part, beginning with its own, so that the shards of what is read travel around a ring. `rotate=(axis, among)` makes
    one ring of those members each that differ along the axes `among` only.

    `replicas=n` makes n groups of equal size, of which the item number i of a stream takes the group i modulo n: `at(i)`.
    """

    devices: tuple[str, ...]
    cut: tuple[tuple[int, Parts], ...]
    rotate: tuple[int, tuple[int, ...]] | None
    replicas: int

    def __init__(
        self,
        devices: str | Sequence[str],
        cut: int | Sequence[int] | Mapping[int, int | Sequence[float]] | None = None,
        *,
        rotate: int | tuple[int, int | Sequence[int]] | None = None,
        replicas: int = 1,
    ) -> None:
        names = devices.split(",") if isinstance(devices, str) else list(devices)
        object.__setattr__(self, "devices", tuple([name.strip() for name in names if name.strip()]))
        object.__setattr__(self, "cut", _cuts(cut))
        object.__setattr__(self, "rotate", _rotation(rotate, [axis for axis, _ in self.cut]))
        object.__setattr__(self, "replicas", replicas)
        if not self.devices:
            raise ArgumentError(f"a placement names at least one device, not {devices!r}")
        if type(replicas) is not int or replicas < 1 or len(self.devices) % replicas:
            raise ArgumentError(
                f"replicas={replicas!r} does not divide {len(self.devices)} devices ({self.names}) into equal groups"
            )

    @property
    def names(self) -> str:
        """The devices as one text, as `devices=` takes it."""
        return ",".join(self.devices)

    def at(self, item: int) -> Placement:
        """Return the placement of one item of a stream: the group whose turn it is."""
        if isinstance(item, bool) or not hasattr(item, "__index__") or int(item) < 0:
            raise ArgumentError(f"items of a stream are numbered from 0, not {item!r}")
        size = len(self.devices) // self.replicas
        first = int(item) % self.replicas * size
        return self.over(self.devices[first : first + size])

    def over(self, devices: Sequence[str]) -> Placement:
        """Return the same cuts over other devices, as one group."""
        return Placement(devices, dict(self.cut) or None, rotate=self.rotate)

    def counts(self, members: int) -> tuple[int, ...]:
        """Return into how many parts each axis is cut for so many members; raise if that is not one part for each."""
        known = [parts if isinstance(parts, int) else len(parts) for _, parts in self.cut]
        others = prod(count for count in known if count != EVERYONE)
        counts = tuple([count if count != EVERYONE else max(1, members // others) for count in known])
        if prod(counts) != members:
            raise PlanError(
                f"the placement cuts {' x '.join(map(str, counts))} parts for {members} devices; name as many devices as "
                "there are parts"
            )
        return counts

    def __str__(self) -> str:
        cuts = [f"axis {axis} {_in_words(parts)}" for axis, parts in self.cut]
        if self.rotate is not None:
            axis, among = self.rotate
            cuts.append(f"shards of axis {axis} go around{f' along axes {among}' if among else ''}")
        turns = f", {self.replicas} groups in turn" if self.replicas > 1 else ""
        return f"{', '.join(cuts) or 'divided as predicted'} on {', '.join(self.devices)}{turns}"

    def as_dict(self) -> dict[str, Any]:
        """Return the placement as JSON-ready data."""
        cut = {str(axis): parts if isinstance(parts, int) else list(parts) for axis, parts in self.cut}
        rotate = None if self.rotate is None else [self.rotate[0], list(self.rotate[1])]
        return {"devices": list(self.devices), "cut": cut, "rotate": rotate, "replicas": self.replicas}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Placement:
        """Return the placement that `as_dict` described; raise PlanError if it is none."""
        try:
            for name in data:
                if name not in FIELDS:
                    raise unknown_name("field", name, FIELDS)
            cut = {int(axis): parts for axis, parts in data.get("cut", {}).items()}
            rotate = data.get("rotate")
            return cls(
                data["devices"],
                cut or None,
                rotate=None if rotate is None else (rotate[0], rotate[1]),
                replicas=data.get("replicas", 1),
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, CoexecError) as error:
            raise PlanError(f"this is no placement: {error}; write it with placement.as_dict()") from error


def _axis(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
        raise ArgumentError(f"a placement cuts axes by number, from 0, not {value!r}")
    return int(value)


def _cuts(cut: Any) -> tuple[tuple[int, Parts], ...]:
    if cut is None:
        return ()
    if isinstance(cut, Mapping):
        found = tuple([(_axis(axis), _parts(axis, parts)) for axis, parts in cut.items()])
    elif isinstance(cut, Sequence) and not isinstance(cut, str):
        found = tuple([(_axis(axis), EVERYONE) for axis in cut])
    else:
        found = ((_axis(cut), EVERYONE),)
    if len({axis for axis, _ in found}) < len(found):
        raise ArgumentError(f"cut={cut!r} names an axis twice")
    if sum(parts == EVERYONE for _, parts in found) > 1:
        raise ArgumentError(f"cut={cut!r}: say into how many parts each axis is cut, as in cut={{0: 2, 1: 2}}")
    return found


def _parts(axis: Any, parts: Any) -> Parts:
    if hasattr(parts, "__index__") and not isinstance(parts, bool) and int(parts) >= 0:
        return int(parts)
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
        raise ArgumentError(f"cut of axis {axis}: {parts!r} is neither a number of parts, nor shares, nor rows")
    if any(isinstance(part, bool) or not hasattr(part, "__float__") for part in parts):
        raise ArgumentError(f"cut of axis {axis}: {parts!r} are neither shares nor rows")
    if all(hasattr(part, "__index__") for part in parts):
        rows = tuple([int(part) for part in parts])
        if min(rows) < 0:
            raise ArgumentError(f"cut of axis {axis}: {rows} has a part of less than no rows")
        return rows
    shares = tuple([float(part) for part in parts])
    if not all(isfinite(s) and s >= 0.0 for s in shares) or not isclose(sum(shares), 1.0, abs_tol=ROUNDING):
        raise ArgumentError(f"cut of axis {axis}: shares are numbers from 0 whose sum is 1, not {shares}")
    return shares


def _rotation(rotate: Any, cut: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
    if rotate is None:
        return None
    axis, among = rotate if isinstance(rotate, tuple) else (rotate, ())
    axes = tuple([_axis(one) for one in (among if isinstance(among, Sequence) else (among,))])
    axis = _axis(axis)
    if not cut or axis in cut:
        raise ArgumentError(
            f"rotate={axis}: shards go around members that have parts of another axis; cut one, as in cut=0"
        )
    if not set(axes) <= set(cut):
        raise ArgumentError(f"rotate={rotate!r}: members differ along the axes {tuple(cut)} that are cut")
    return axis, axes


def _in_words(parts: Parts) -> str:
    if isinstance(parts, int):
        return "in equal parts" if parts == EVERYONE else f"in {parts} equal parts"
    if isinstance(parts[0], int):
        return f"in parts of {', '.join(map(str, parts))} rows"
    return f"in parts of {', '.join(f'{share:.3g}' for share in parts)} of the work"
