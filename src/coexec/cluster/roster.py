"""What ranks know of each other before the first call: whose devices are whose, and how rows may be cut for all of them.

Before: machine/.  After: cluster/dealing.py.  The same on every rank: from one platform, or told by each rank to all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import lcm
from typing import NamedTuple

from ..errors import ClusterError, ConfigError
from ..machine.platform import Device, Platform

ACCELERATOR = -(1 << 20)
"""Cores that stand for an accelerator: nobody knows how many it is worth before something ran there."""


class Roster(NamedTuple):
    """All ranks."""

    owners: Mapping[str, int]  # rank by device, as calls name devices of certain ranks: n1/cpu:0
    granule: int = 1  # rows of which every part is a multiple, whoever computes it
    prefixed: bool = True  # ranks themselves call their devices n1/cpu:0, not cpu:0
    shares: tuple[float, ...] = ()  # of work, by rank, as far as can be said before anything ran; empty: equal ones

    def here(self, rank: int, name: str) -> str:
        """Return what a rank calls its own device of that name, whichever rank it is named for."""
        plain = name.rpartition("/")[2]
        return f"n{rank}/{plain}" if self.prefixed else plain


def of_platform(platform: Platform) -> Roster:
    """Return the ranks of a platform with one process on each node."""
    topology = platform.topology
    place = (lambda memory: (0, memory)) if topology is None else topology.place
    owners = {device.name: place(device.memory)[0] for device in platform.devices if "/" in device.name}
    return Roster(owners, lcm(*[max(1, device.granule) for device in platform.devices]))


def introduce(platform: Platform, alike: Mapping[str, object]) -> bytes:
    """Return what a rank tells the others: of its devices, and options that must be `alike` on all ranks."""
    devices = [[d.name, max(1, d.granule), _cores(d)] for d in platform.devices]
    return json.dumps([devices, dict(alike)]).encode()


def of_ranks(told: Sequence[bytes]) -> Roster:
    """Return the ranks from what each of them told, in their order."""
    owners: dict[str, int] = {}
    granules = [1]
    cores = [0] * len(told)
    first: dict[str, object] = {}
    for rank, words in enumerate(told):
        try:
            devices, alike = json.loads(words)
            first = first or dict(alike)
            for name, value in dict(alike).items():
                if first.get(name) != value:
                    raise ConfigError(
                        f"rank 0 has {name}={first.get(name)!r} and rank {rank} has {name}={value!r}; all ranks need the same"
                    )
            for name, granule, number in devices:
                owners[f"n{rank}/{name}"] = rank
                granules.append(int(granule))
                cores[rank] += int(number)
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            raise ClusterError(f"rank {rank} tells of its devices what coexec does not understand", rank) from error
    known = min(cores) > 0 and len(set(cores)) > 1
    return Roster(owners, lcm(*granules), False, tuple([number / sum(cores) for number in cores]) if known else ())


def _cores(device: Device) -> int:
    """Return how many cores a device adds to its rank; so few for an accelerator that nothing is known of the rank."""
    return 0 if device.wide else len(device.cores) if device.abilities.on_numpy else ACCELERATOR
