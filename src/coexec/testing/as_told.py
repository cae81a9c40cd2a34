"""A planner for tests: what is computed where is what the test says.

Before: schedule/plan.py, which asks it.  After: testing/graphs.py.  Knows no time and no model.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvariantError
from ..geometry import Box
from ..graph.command import Chunk, Command
from ..graph.task import Task
from ..plan.candidate import Share
from ..plan.plan import Part, Plan
from ..plan.planned import Planned
from ..plan.prescribed import is_cut, placed_parts
from ..plan.split import cut_again, even
from ..program.array import Array
from ..program.kernel import Kernel

WHY = "as the test says"


class AsTold:
    """A planner that does what a test says: devices by name, or exactly who computes what."""

    def __init__(self) -> None:
        self.mark = object()  # what it was told stays as it is
        self.chunks: Sequence[tuple[str, Box]] | None = None  # who computes what of the next call; None: by its options

    def plan(self, task: Task, *, idle: bool = False) -> Planned:
        """Return who computes what."""
        del idle
        chunks = self.divided(task)
        if len(chunks) > 1 or self.chunks is not None:
            task.map_parts()
        assert task.kernel is not None
        shares = tuple([Share(task.kernel.variants[0], None, None, None) for _ in chunks])
        return Planned(Command(task.id, task, chunks, task.after, WHY), shares)

    def divided(self, task: Task) -> tuple[Chunk, ...]:
        """Return the chunks of a call."""
        kernel, options = task.kernel, task.options
        assert kernel is not None and options is not None
        if self.chunks is not None:
            return tuple(Chunk(device, part, slot) for slot, (device, part) in enumerate(self.chunks))
        names = (options.devices or "").split(",")
        parts: tuple[Chunk, ...] = (Chunk(names[0], task.domain),)
        if options.placement is not None and is_cut(options):
            placed = placed_parts(task, task.domain, options.placement, len(names), kernel.granule)
            return tuple([Chunk(names[part.member], part.box, part.slot, phase=part.phase) for part in placed])
        if len(names) > 1 and kernel.split:
            parts = even(task.domain, kernel.split, names, kernel.granule)
        if options.oversubscribe > 1:
            pieces = cut_again(task, parts, options.oversubscribe, lambda _: kernel.granule)
            parts = tuple(piece.chunk for piece in pieces)
        return parts

    def preview(self, task: Task) -> Plan:
        """Return what `plan` would do, as data; nothing is known of any time."""
        assert task.kernel is not None
        total, variant = task.domain.volume or 1, task.kernel.variants[0].name
        parts = tuple(
            Part(chunk.device, variant, chunk.box.lo, chunk.box.hi, chunk.box.volume / total)
            for chunk in self.divided(task)
        )
        return Plan("kernel", task.name, repr(task.key), task.extents, parts, None, why=WHY)

    def follow(self, plans: Sequence[Plan]) -> None:
        """Refuse: the test says what is done."""
        raise InvariantError(f"{len(plans)} plans were adopted where the test says who computes what")

    def check(self, task: Task) -> None:
        """Raise nothing: a test may ask for whatever it likes."""

    def runs(self, kernel: Kernel, arrays: Sequence[Array]) -> bool:
        """Tell that a kernel can run."""
        del kernel, arrays
        return True
