"""Open the transport of this process: which one its launcher asks for, with the ranks' names, watched and closed at the end.

Before: cluster/launched.py, endpoint.py, neighbours.py, collectives.py.  After: whoever runs a program on several ranks.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any

from ..config import parse
from ..errors import ClusterError, CoexecError, ConfigError, unknown_name
from .actions import PART
from .carrier import Carrier
from .collectives import allgather
from .ending import EXIT_CODE, TeamEnding
from .endpoint import Endpoint
from .launched import Launched, launched
from .loopback import LoopbackCarrier, LoopbackRanks
from .neighbours import Neighbours, Person, myself
from .rank import note_met
from .sharing import as_words, cores_of, keep_to, local_of, read_words
from .team import Team


def open_transport(environ: Mapping[str, str] = os.environ, *, part: int = PART) -> Cluster:
    """Meet the ranks that this process was started with, and return the transport between them.

    Without a launcher the process is rank 0 of 1, and needs no library. `part` is how many bytes travel at once.
    """
    found = launched(environ)
    carrier = LoopbackCarrier(LoopbackRanks(1), 0) if found is None else CARRIERS[found.transport](found)
    return Cluster(Endpoint(carrier, part=part))


def open_team() -> Team:
    """Meet the ranks that this process was started with, for a program that runs on all of them."""
    cluster = open_transport()
    ending = TeamEnding(parse(os.environ).patience)
    ending.team = team = Team(cluster.endpoint, ending.broke)
    told = [read_words(words) for words in allgather(cluster.endpoint, as_words(myself().place))]
    team.local = local_of(team.rank, told)
    keep_to(cores_of(team.rank, told))
    cluster.interested = team
    note_met(os.environ)
    return team


def _mpi(found: Launched) -> Carrier:
    from .mpi import MpiCarrier

    return MpiCarrier(expected=found.size)


def _gloo(found: Launched) -> Carrier:
    from .gloo import GlooCarrier

    kind, _, place = found.meet.partition(":")
    if kind not in STORES:
        raise unknown_name("way for gloo to meet", kind, list(STORES))
    opens, turn = STORES[kind](found, place), next(_turns)

    def store(distributed: Any) -> Any:
        return distributed.PrefixStore(f"coexec-{turn}", opens(distributed))

    interface = interface_for(kind, os.environ)
    return GlooCarrier(found.rank, found.size, store, interface=interface)


def interface_for(kind: str, environ: Mapping[str, str]) -> str:
    """Return the network interface that gloo uses: the one that is named, as torch has it; a file is for one machine."""
    named = environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0].strip()
    return named or ("lo" if kind == "file" and platform.system() == "Linux" else "")


def _file(found: Launched, place: str) -> Callable[[Any], Any]:
    return lambda distributed: distributed.FileStore(place, found.size)


def _tcp(found: Launched, place: str) -> Callable[[Any], Any]:
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"gloo's processes cannot meet at {place!r}; write tcp:HOST:PORT")
    return lambda distributed: distributed.TCPStore(host, int(port), found.size, found.rank == 0)


def _env(found: Launched, _: str) -> Callable[[Any], Any]:
    return lambda distributed: next(distributed.rendezvous("env://", found.rank, found.size))[0]


CARRIERS: dict[str, Callable[[Launched], Carrier]] = {"mpi": _mpi, "gloo": _gloo}
_turns = count()  # all ranks open their transports in the same order; each has names of its own in the store
STORES: dict[str, Callable[[Launched, str], Callable[[Any], Any]]] = {"file": _file, "tcp": _tcp, "env": _env}


class Cluster:
    """The transport of this process: an endpoint whose ranks know each other's hosts and watch each other's processes.

    Has an Endpoint's methods. It is closed at the end of the process; one that ends by an exception tells the others.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.send, self.receive, self.fail = endpoint.send, endpoint.receive, endpoint.fail
        self.collective_keys, self.lose, self.abort = endpoint.collective_keys, endpoint.lose, endpoint.abort
        people = self._introduce()
        here = myself().place
        near = {rank: who for rank, who in enumerate(people) if rank != self.rank and who.place == here}
        self._neighbours = Neighbours(near, endpoint.lose)
        self.interested: Team | None = None  # told that the program knows of its end
        self._hook = sys.excepthook
        sys.excepthook = self._uncaught
        atexit.register(self._at_exit)

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self.endpoint.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.endpoint.size

    @property
    def hosts(self) -> Any:
        """The host of each rank."""
        return self.endpoint.hosts

    @property
    def broken(self) -> BaseException | None:
        """Why nothing works any more."""
        return self.endpoint.broken

    def close(self, timeout: float | None = None) -> None:
        """End together with the other ranks."""
        try:
            self.endpoint.close(timeout)
        finally:
            self._neighbours.close()
            atexit.unregister(self._at_exit)
            if sys.excepthook == self._uncaught:
                sys.excepthook = self._hook

    def _introduce(self) -> list[Person]:
        """Tell all ranks who this one is, and learn who they are."""
        me = myself()
        told = allgather(self.endpoint, json.dumps([platform.node(), *me, self.endpoint.bell]).encode())
        hosts, people, bells = [], [], {}
        for rank, words in enumerate(told):
            try:
                host, place, pid, born, bell = json.loads(words)
                people.append(Person(str(place), int(pid), str(born)))
                hosts.append(str(host))
                if place == me.place and rank != self.rank:
                    bells[rank] = str(bell)
            except (ValueError, TypeError) as error:
                raise ClusterError(f"rank {rank} introduces itself with what coexec does not understand") from error
        self.endpoint.name_hosts(hosts)
        self.endpoint.know_bells(bells)
        return people

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Tell the others what ends this process, then show it as ever."""
        if self.interested is not None:
            self.interested.seen = True
        words = str(error).strip().splitlines()
        with suppress(CoexecError):
            self.abort(f"{kind.__name__}: {words[0]}" if words else kind.__name__)
        self._hook(kind, error, trace)

    def _at_exit(self) -> None:
        if self.interested is not None:
            self.interested.seen = True
            self.interested.close()
        try:
            self.close()
        except CoexecError as error:
            sys.stderr.write(f"coexec: rank {self.rank} ends because {error}\n")
            _exit_code.append(EXIT_CODE)


def _end_otherwise() -> None:
    """Give the process another exit code, which an exit handler can only do by ending it itself."""
    if _exit_code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_code[-1])


_exit_code: list[int] = []  # what the process ends with, if not with what the program asked for
atexit.register(_end_otherwise)  # first, so that it runs after the handlers that are registered later
