"""Over which links data comes to a memory.

Before: machine/.  After: estimate.py.  Knows the platform alone; remembers what it found.
"""

from __future__ import annotations

from ...machine.platform import HOST, Link, Platform


class LinkWays:
    """The ways between the memories of a platform."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._known: dict[tuple[int, int], list[tuple[Link, object]]] = {}

    def of(self, mask: int, memory: int) -> list[tuple[Link, object]]:
        """Return the links over which data comes from one of these memories (as bits): a direct one, or two by way of the host.

        Beside each is what it shares with others: a wire that carries one thing at a time.
        """
        found = self._known.get((mask, memory))
        if found is None:
            direct = self._from(mask, memory)
            if direct:
                links = [max(direct, key=lambda link: (link.bandwidth, -link.latency))]
            else:
                into = self._platform.link(HOST, memory)
                links = [*self._from(mask, HOST)[:1], *([into] if into is not None else [])]
            found = self._known[mask, memory] = [(link, self._wire(link)) for link in links]
        return found

    def _from(self, mask: int, memory: int) -> list[Link]:
        sources = [source for source in range(len(self._platform.memories)) if mask >> source & 1]
        return [link for source in sources if (link := self._platform.link(source, memory)) is not None]

    def _wire(self, link: Link) -> object:
        limited = [name for name in link.shared if self._platform.limit(name) is not None]
        return limited[0] if limited else (max(link.source, HOST), link.target)
