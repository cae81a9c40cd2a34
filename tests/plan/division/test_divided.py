"""Calls whose history grows are divided as those before, and steps that wait for each other do not shift the cuts."""

from __future__ import annotations

import pytest

import coexec as cx
from coexec.plan.division.divided import alike
from coexec.plan.division.make_offers import Offering
from coexec.plan.policies import Loads
from coexec.predict.features import work_of_part
from tests.plan.planning import Planning, unlike

ROWS = 10_000


@cx.kernel(split=0, past=cx.read(cx.all), out=cx.write)
def recall(past, out):
    out[...] = past.sum()


@cx.kernel(split=0, y=cx.update)
def increment(y):
    y += 1


@pytest.fixture
def asked(monkeypatch):
    """Return a list that grows by one whenever a division is worked out."""
    found: list[int] = []
    offers = Offering.offers

    def counted(self, site, *args):
        found.append(site.task.id)
        return offers(self, site, *args)

    monkeypatch.setattr(Offering, "offers", counted)
    return found


def planning(kernel, *arguments, granule: int = 1) -> Planning:
    made = Planning(platform=unlike(granule=granule))
    made.teach(kernel, [made.on_host(*shape) for shape in arguments], {"dev:0": 1e6, "dev:1": 5e5})
    return made


def test_sizes_are_told_apart_four_times_while_they_double():
    made = Planning()
    keys = [alike(made.task(recall, made.on_host(length), made.on_host(10))) for length in range(64, 129)]
    assert len(set(keys)) == 5
    assert alike(made.task(recall, made.on_host(64), made.on_host(11))) != keys[0]
    assert alike(made.task(increment, made.on_host(64))) is None  # nothing is read whole


def test_a_history_that_grows_by_a_row_is_divided_as_before_with_its_own_work(asked):
    made = planning(recall, (100, 5), (ROWS,))
    history, out = made.on_host(200, 5), made.on_host(ROWS)
    first = made.plan(recall, history[:100], out)
    made.loads.seconds = dict.fromkeys(made.loads.seconds, 0.0)
    made.loads.tasks = dict.fromkeys(made.loads.tasks, 0)  # and nothing is under way, as at first
    count = len(asked)
    task = made.task(recall, history[:101], out)
    second = made.planner.plan(task)
    assert len(asked) == count > 0
    assert second.command.chunks == first.command.chunks
    assert [share.work for share in second.shares] == [work_of_part(task, c.box) for c in second.command.chunks]
    assert all(share.seconds for share in second.shares)
    made.loads.seconds = dict.fromkeys(made.loads.seconds, 0.0)
    made.plan(recall, history[:200], out)  # twice as long: worked out anew
    assert len(asked) > count


def test_a_chain_of_divided_tasks_is_divided_once_however_far_ahead_it_is_planned(asked):
    made = planning(increment, (ROWS,), granule=1000)  # so that one of them is always a little earlier
    out, before = made.on_host(ROWS), 0
    for step in range(100):
        task = made.task(increment, out)
        task.after = (before,) if step else ()
        before = task.id
        chunks = made.planner.plan(task).command.chunks
        if step == 0:
            first, count = chunks, len(asked)
    assert chunks == first
    assert len(asked) <= count + 1  # the cuts that the first left on the array are looked at once


def test_a_divided_task_ends_with_its_last_part():
    made = planning(increment, (ROWS,))
    loads = Loads(made.g.platform)
    loads.add("dev:0", 3.0, task=7)
    loads.add("dev:1", 1.0, task=7)
    assert loads.ready((7,)) == 3.0
    loads.remove("dev:0", 3.0)
    assert loads.ready((7,)) == 0.0


def test_a_part_that_is_reported_before_its_sibling_keeps_no_device_from_the_next_step():
    loads = Loads(unlike())
    for device in ("dev:0", "dev:1"):
        loads.add(device, 2.0, task=1)
        loads.add(device, 2.0, loads.ready((1,)), task=2)
    loads.remove("dev:1", 2.0)  # and that of dev:0 is about to be
    assert loads.waits((2,), ["dev:0", "dev:1"]) == [0.0, 0.0]
    assert loads.waits((), ["dev:0", "dev:1"]) == [2.0, 0.0]  # for a task that waits for neither, it counts
    loads.add("dev:1", 5.0, task=3)
    assert loads.waits((2,), ["dev:0", "dev:1"])[1] > 2.0  # something else is in front of it
