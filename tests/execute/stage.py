"""An engine on an invented machine, and instructions made by hand: what the tests of the engine share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coexec.execute.engine import Engine, Issue
from coexec.execute.lanes import DeviceLanes, LanePolicy
from coexec.geometry import whole
from coexec.graph.command import Chunk
from coexec.graph.instruction import Instruction, Launch

NOTHING = whole((1,))
NO_SHARE = (None,) * 5


def work(device: str, priority: int) -> Launch:
    """Return something that a device does. Compiled steps have no classes that are not, so it is one of the core's own."""
    return Launch(device, Chunk(device, NOTHING), NO_SHARE, (), priority)


class Stage:
    """Names instructions, submits them, and remembers on which lane each was issued."""

    def __init__(
        self,
        policy: str = "disjoint+reuse",
        *,
        devices: Sequence[str] = ("dev:0", "dev:1"),
        across: bool = False,
        limit: int = 64,
        eager: bool = True,
    ) -> None:
        chosen = LanePolicy.parse(policy)
        self.lanes = {name: DeviceLanes(name, limit, chosen, across=across, eager=eager) for name in devices}
        self.engine = Engine(self.lanes)
        self.named: dict[str, Instruction] = {}
        self.issues: dict[str, Issue] = {}
        self.order: list[str] = []  # names, as they were issued

    def submit(
        self,
        name: str,
        *after: str,
        needs: Iterable[str] = (),
        device: str = "dev:0",
        priority: int = 4,
        alone: bool = False,
    ) -> Instruction:
        """Submit an instruction; unless `alone`, issue what can be issued at once."""
        needed, before = (tuple([self.named[n].id for n in names]) for names in (needs, after))
        instruction = Instruction(len(self.named) + 1, work(device, priority), None, needed, before)
        self.named[name] = instruction
        self.engine.submit([instruction])
        if not alone:
            self.issue()
        return instruction

    def issue(self) -> list[str]:
        """Issue everything that can be; return its names in order."""
        names = {id(instruction): name for name, instruction in self.named.items()}
        found = []
        while True:
            issue = self.engine.next()
            if issue is not None:
                name = names[id(issue.instruction)]
                assert name not in self.issues, f"{name} was issued twice"
                self.issues[name] = issue
                found.append(name)
            elif self.engine.doomed:
                doomed, self.engine.doomed = self.engine.doomed, []
                for instruction, failure in doomed:
                    self.engine.finish(instruction, failure)
            else:
                self.order += found
                return found

    def finish(self, *names: str, failure: BaseException | None = None) -> list[str]:
        """Report that these are over; return the names of what could then be issued."""
        for name in names:
            self.engine.finish(self.named[name], failure)
        return self.issue()

    def lane(self, name: str) -> int:
        """Return the number of the lane that `name` was issued on."""
        return self.issues[name].lane.number

    def assigned(self, names: str) -> list[int]:
        """Return the lanes of tasks named by single letters."""
        return [self.lane(name) for name in names]

    def opened(self, device: str = "dev:0") -> int:
        """Return how many lanes a device has opened."""
        return len(self.lanes[device].lanes)

    def active(self, device: str = "dev:0") -> list[int]:
        """Return how many unfinished instructions each lane holds."""
        return [lane.depth for lane in self.lanes[device].lanes]

    def host_read(self, *names: str) -> None:
        """Finish these and all they come after, as a host read that waits for them sees it."""
        by_id = {instruction.id: name for name, instruction in self.named.items()}
        wanted: set[str] = set()
        stack = list(names)
        while stack:
            name = stack.pop()
            if name not in wanted:
                wanted.add(name)
                stack += [by_id[id] for id in (*self.named[name].needs, *self.named[name].after)]
        still_open = {id(i) for i in [*self.engine.issued(), *self.engine.waiting()]}
        for name in sorted(wanted, key=lambda n: self.named[n].id):
            if id(self.named[name]) in still_open:
                self.finish(name)
