"""The task graph: behaviours G1 to G13 of the GrCUDA reference. Its no-const cases declare every array `update`."""

from __future__ import annotations

import itertools

from coexec.graph.task import Task
from coexec.graph.task_graph import TaskGraph
from coexec.program.array import Array
from coexec.testing.graphs import GraphBuilder


class Story:
    """Tasks named by letters on arrays named by numbers: `story("C", 1, reads=(2,))` is C(1, 2c)."""

    def __init__(self) -> None:
        self.g = GraphBuilder(shared=True)
        self.arrays: dict[int, Array] = {}
        self.tasks: dict[str, Task] = {}

    def array(self, number: int) -> Array:
        return self.arrays.setdefault(number, self.g.array(10, 0.0))

    def __call__(self, name: str, *updates: int, reads: tuple[int, ...] = ()) -> Task:
        task = self.g.call(
            name, updates=[self.array(n) for n in updates], reads=[self.array(n) for n in reads], over=(10,)
        )
        self.tasks[name] = task
        return task

    def frontier(self) -> set[str]:
        """Return the names of the tasks that a later one could directly depend on."""
        names = {task.id: name for name, task in self.tasks.items()}
        return {names[id] for id in self.g.frontier()}

    def parents(self, name: str) -> set[str]:
        return self.g.parents(self.tasks[name])

    def ancestors(self, task: Task) -> set[str]:
        """Return the names of everything that must be over before `task`."""
        by_id = {task.id: task for task in self.g.tasks}
        found: set[str] = set()
        stack = [task]
        while stack:
            parents = [by_id[id] for id in stack.pop().after if id in by_id]
            found |= {parent.name for parent in parents}
            stack += parents
        return found

    def host_read(self, number: int) -> set[str]:
        """Read an array from the host; return the names of the tasks that this waits for."""
        return self.ancestors(self.g.read(self.array(number)))


def test_a_new_graph_is_empty() -> None:
    """G1."""
    assert TaskGraph().live() == 0 and GraphBuilder().frontier() == set()


def test_one_task_is_start_and_frontier() -> None:
    """G2."""
    story = Story()
    story("A", 1, 2)
    assert story.g.edges() == 0
    assert story.parents("A") == set() and story.frontier() == {"A"}


def test_two_tasks_on_the_same_arrays_are_one_edge() -> None:
    """G3."""
    story = Story()
    story("A", 1, 2)
    story("B", 1, 2)
    assert story.g.edges() == 1
    assert story.frontier() == {"B"}
    assert story.parents("B") == {"A"} and story.parents("A") == set()


def join() -> Story:
    story = Story()
    for name, numbers in {"A": (1,), "B": (2,), "C": (1, 2, 3), "D": (3,)}.items():
        story(name, *numbers)
    return story


def test_a_join_leaves_in_the_frontier_who_touched_an_array_last() -> None:
    """G4."""
    story = join()
    assert story.g.edges() == 3
    assert story.frontier() == {"C", "D"}
    assert story.parents("C") == {"A", "B"} and story.parents("D") == {"C"}


def fork() -> Story:
    story = Story()
    steps = {"A": (1, 2), "B": (1,), "C": (2,), "D": (1, 3), "E": (1, 4), "F": (4,)}
    for name, numbers in steps.items():
        story(name, *numbers)
    return story


def test_a_complex_graph_without_reads() -> None:
    """G5."""
    story = fork()
    assert story.g.edges() == 5
    assert story.frontier() == {"C", "D", "E", "F"}


def test_a_host_read_waits_for_the_ancestors_of_what_it_reads_and_for_nobody_else() -> None:
    """G6. The reference also finishes what shares their streams; ours knows each task's end."""
    story = fork()
    assert story.host_read(2) == {"A", "C"}
    assert story.host_read(4) == {"A", "B", "D", "E", "F"}


def test_readers_of_one_array_are_not_related() -> None:
    """G7."""
    story = Story()
    story("A", 2, reads=(1,))
    story("B", 3, reads=(1,))
    assert story.g.edges() == 0
    assert story.parents("A") == story.parents("B") == set()
    assert story.frontier() == {"A", "B"}


def test_a_write_comes_after_every_reader() -> None:
    """G8."""
    story = Story()
    story("A", reads=(1,))
    story("B", reads=(1,))
    story("C", 1, 2)
    story("D", 2)
    assert story.parents("C") == {"A", "B"} and story.parents("D") == {"C"}
    assert story.frontier() == {"C", "D"}


def test_readers_depend_on_the_writer_and_all_stay_in_the_frontier() -> None:
    """G9 and G10."""
    story = Story()
    story("A", 1)
    story("B", reads=(1,))
    story("C", reads=(1,))
    assert story.g.edges() == 2
    assert story.parents("B") == story.parents("C") == {"A"}
    assert story.frontier() == {"A", "B", "C"}
    story("D", 1)
    assert story.g.edges() == 4
    assert story.parents("D") == {"B", "C"}
    assert story.frontier() == {"D"}


def mixed() -> Story:
    story = Story()
    story("A", 2, reads=(1,))
    story("B", 1)
    story("C", reads=(2,))
    story("D", 3, reads=(1,))
    story("E", 4, reads=(1,))
    story("F", 4)
    return story


def test_a_complex_graph_with_reads() -> None:
    """G11."""
    story = mixed()
    assert story.g.edges() == 5
    assert story.frontier() == set("ABCDEF")
    assert story.ancestors(story.tasks["C"]) == {"A"} and "C" not in story.ancestors(story.tasks["D"])


def test_a_parent_that_is_an_ancestor_of_another_parent_is_no_edge() -> None:
    """G12."""
    story = mixed()
    story("G", 1, 3, 4)
    assert story.parents("G") == {"D", "F"}
    assert story.g.edges() == 7
    assert story.frontier() == {"A", "C", "G"}


def test_a_row_that_needs_all_earlier_rows_has_one_edge_and_few_are_looked_at() -> None:
    g = GraphBuilder(shared=True)
    history = g.array((50, 4), 0.0)
    looked: list[int] = []

    class Counted(dict[int, tuple[int, ...]]):
        def get(self, id: int, default: tuple[int, ...] = ()) -> tuple[int, ...]:  # type: ignore[override]
            looked.append(id)
            return super().get(id, default)

    g.graph._parents = Counted(g.graph._parents)
    tasks = [g.call(f"row {t}", reads=[history[:t]], writes=[history[t]], over=(4,)) for t in range(1, 50)]
    assert all(task.after == (before.id,) for before, task in itertools.pairwise(tasks))
    assert len(looked) < 3 * 50 * 50 / 2  # each row looks at those before it about once, not each of them from each


def test_host_reads_in_a_graph_with_reads() -> None:
    """G13. Readers of what the host reads are not waited for, either."""
    story = mixed()
    assert story.host_read(2) == {"A"}
    assert story.host_read(4) == {"A", "B", "E", "F"}
    assert story.host_read(3) == {"A", "B", "D"}


def test_a_host_write_after_a_reader_is_an_edge() -> None:
    """G17, the graph's part of it."""
    story = Story()
    story("A", reads=(1,))
    story("write", 1)
    assert story.parents("write") == {"A"} and story.g.edges() == 1


def test_tasks_on_different_boxes_of_one_array_are_not_related() -> None:
    """The reference tracks whole arrays; ours boxes."""
    g = GraphBuilder()
    a = g.array((10, 10), 0.0)
    quarters = [a[r : r + 5, c : c + 5] for r in (0, 5) for c in (0, 5)]
    tasks = [g.call(f"q{i}", updates=quarter) for i, quarter in enumerate(quarters)]
    assert g.edges() == 0
    row = g.call("row", reads=a[4:6], writes=g.array((2, 10)))
    assert g.parents(row) == {"q0", "q1", "q2", "q3"}
    cell = g.call("cell", updates=a[2, 2])
    assert g.parents(cell) == {"q0"}
    assert tasks[0].after == tasks[1].after


def test_views_and_their_base_see_each_other() -> None:
    g = GraphBuilder()
    a = g.array(10, 0.0)
    view = a[2:8]
    g.call("base", updates=a)
    assert g.parents(g.call("view", updates=view[::-1][1:3])) == {"base"}
    assert g.parents(g.call("again", updates=a)) == {"view"}


def test_the_same_array_twice_in_one_call_does_not_depend_on_itself() -> None:
    g = GraphBuilder()
    a = g.array(10, 0.0)
    g.call("one", updates=a)
    twice = g.call("twice", reads=a[:5], writes=a[5:], over=(5,))
    assert g.parents(twice) == {"one"}
    assert g.parents(g.call("left", reads=a[:5], writes=g.array(5))) == {"one"}
    assert g.parents(g.call("right", reads=a[5:], writes=g.array(5))) == {"twice"}


def test_an_array_of_no_elements_orders_nothing() -> None:
    g = GraphBuilder()
    a = g.array((0, 5))
    g.call("one", updates=a)
    assert g.parents(g.call("two", updates=a)) == set()


def test_an_epoch_stands_for_everything_before_it() -> None:
    g = GraphBuilder()
    a = g.array(10, 0.0)
    one = g.call("one", updates=a)
    epoch = g.epoch()
    assert set(epoch.after) == {one.id}
    assert g.call("two", updates=a).after == (epoch.id,)
    assert g.frontier() == {g.tasks[-1].id}


def test_a_horizon_stands_for_what_is_before_it_once_the_next_is_passed() -> None:
    g = GraphBuilder()
    a = g.array(10, 0.0)
    one = g.call("one", updates=a)
    first = g.horizon()
    assert g.call("two", reads=a, writes=g.array(10)).after == (one.id,)
    g.horizon()
    assert g.call("three", reads=a, writes=g.array(10)).after == (first.id,)


def test_the_transitive_reduction_is_bounded_and_still_right() -> None:
    """A parent that is too far away to be seen as an ancestor stays an edge: redundant, never wrong."""
    g = GraphBuilder()
    a, b = g.array(10, 0.0), g.array(10, 0.0)
    first = g.call("first", updates=[a, b])
    for _ in range(200):
        g.call("step", updates=b)
    last = g.call("last", updates=[a, b])
    assert set(last.after) - {first.id} == {g.tasks[-2].id}
