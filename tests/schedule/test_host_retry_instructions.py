"""A part that is redone on the host moves what it touches, and nothing that belongs to others."""

from __future__ import annotations

import coexec as cx
from coexec.geometry import Box
from coexec.graph.instruction import Alloc, Copy, Free, Launch
from coexec.plan.candidate import Share
from coexec.program.call import Options
from coexec.schedule.host_retry import redo_on_host
from coexec.testing import GraphBuilder


def test_a_part_of_several_boxes_is_redone_box_by_box() -> None:
    """What lies between them is written by a sibling at the same time."""

    @cx.kernel(split=0, over=6, x=cx.update(lambda c: [slice(c.lo[0], c.hi[0]), slice(6 + c.lo[0], 6 + c.hi[0])]))
    def woven(x):
        x += 1

    g = GraphBuilder(2)
    chunks = [("dev:0", Box((0,), (3,))), ("dev:1", Box((3,), (6,)))]
    task = g.submit(woven, (g.array(12, 1.0),), {}, Options(), chunks)
    failed = next(i for i in g.kernels(task) if i.device == "dev:1")
    made = redo_on_host(g.lowering, failed, "host", Share(woven.variants[0], None, None, None))
    boxes = (Box((3,), (6,)), Box((9,), (12,)))
    assert [copy.step.boxes for copy in made if isinstance(copy.step, Copy)] == [boxes, boxes]  # there and back


def test_a_body_that_is_redone_still_sees_its_own_writes() -> None:
    """Two parameters of one array get one temporary: with one each, the last to be copied back would win."""

    @cx.kernel(x=cx.read, y=cx.update, z=cx.update)
    def woven(x, y, z):
        y += 1
        z += x

    g = GraphBuilder(1)
    a = g.array(12, 1.0)
    task = g.submit(woven, (a[:6], a[::2], a[1::2]), {}, Options(), [("dev:0", Box((0,), (6,)))])
    (failed,) = g.kernels(task)
    made = redo_on_host(g.lowering, failed, "host", Share(woven.variants[0], None, None, None))
    (redone,) = [i.step for i in made if isinstance(i.step, Launch)]
    assert len({id(binding.allocation) for binding in redone.bindings}) == 1
    assert sum(isinstance(i.step, Alloc) for i in made) == sum(isinstance(i.step, Free) for i in made) == 1
