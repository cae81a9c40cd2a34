"""Accounts: what an allocation waits for, in program order."""

from __future__ import annotations

from hypothesis import given, strategies as st

from coexec.lower.budget import Account, Budget
from coexec.machine.platform import Memory


def account(capacity: int = 100) -> Account:
    return Account(Memory("dev:0", capacity), capacity)


def test_where_there_is_room_nothing_waits() -> None:
    mine = account()
    assert list(mine.allocate(1, 60)) == [] and list(mine.allocate(2, 40)) == []
    assert mine.held == 100 and mine.lacks(1) == 1 and not mine.waits


def test_an_allocation_waits_for_the_oldest_frees_that_make_its_room() -> None:
    mine = account()
    for id in (1, 2, 3):
        mine.allocate(id, 30)
    for id in (4, 5, 6):
        mine.free(id, 30)
    assert set(mine.allocate(7, 40)) == {4}
    assert mine.waits == 1 and mine.pending == 60


def test_what_comes_after_an_allocation_that_waited_cannot_overtake_it() -> None:
    mine = account()
    mine.allocate(1, 90)
    mine.free(2, 90)
    assert set(mine.allocate(3, 80)) == {2}
    assert set(mine.allocate(4, 10)) == {3}, "the room is that of the free, which I3 waits for"


def test_frees_before_a_mark_are_over() -> None:
    mine = account()
    mine.allocate(1, 90)
    mine.free(2, 90)
    mine.passed(3)
    assert mine.pending == 0 and list(mine.allocate(4, 100)) == []


def test_temporaries_of_a_kernel_are_free_when_it_is_over() -> None:
    mine = account()
    mine.allocate(1, 50)
    assert list(mine.borrow(2, 50)) == []
    assert set(mine.allocate(3, 20)) == {2}
    assert mine.held == 70


def test_kernels_with_temporaries_wait_for_each_other_if_only_one_has_room() -> None:
    mine = account()
    mine.borrow(1, 60)
    assert set(mine.borrow(2, 60)) == {1}
    assert set(mine.allocate(3, 10)) == {1}, "not for the second kernel, which leaves room for it"


def test_memories_without_a_limit_have_no_account() -> None:
    budget = Budget([Memory("user"), Memory("host", 10, strict=False), Memory("dev:0", 10)])
    assert [a is None for a in budget.accounts] == [True, True, False]
    assert budget.limited and not Budget([Memory("user")]).limited


def test_pressure_is_noticed_until_the_next_look() -> None:
    budget = Budget([Memory("dev:0", 10)])
    (mine,) = budget.open
    mine.allocate(1, 10)
    mine.free(2, 10)
    seen = [budget.tight]
    mine.allocate(3, 10)
    seen.append(budget.tight)
    budget.mark()
    assert [*seen, budget.tight] == [False, True, False]


@given(st.lists(st.tuples(st.sampled_from(["alloc", "alloc", "free", "borrow", "mark"]), st.integers(1, 40))))
def test_no_legal_order_exceeds_the_capacity(steps: list[tuple[str, int]]) -> None:
    """Whatever an event waits for, directly or not, is over before it; nothing else need be."""
    mine, taken, freed = account(), 0, dict[int, int]()
    live: list[int] = []
    before: dict[int, set[int]] = {}
    mark = 0
    for id, (kind, size) in enumerate(steps, start=1):
        if kind in ("alloc", "borrow") and not mine.lacks(size):
            found = set(mine.allocate(id, size) if kind == "alloc" else mine.borrow(id, size)) | {mark} - {0}
            before[id] = found.union(*(before[other] for other in found))
            taken += size
            over = sum(nbytes for other, nbytes in freed.items() if other in before[id])
            assert taken - over <= mine.capacity
            if kind == "borrow":
                freed[id] = size
            else:
                live.append(size)
        elif kind == "free" and live:
            freed[id] = live.pop(0)
            before[id] = set()
            mine.free(id, freed[id])
        elif kind == "mark":
            mark, before[id] = id, set(range(1, id))
            mine.passed(id)
