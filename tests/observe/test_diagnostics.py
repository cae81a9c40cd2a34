"""What is odd about a program is said once per kind and kernel, with names and the remedy, and raised if so asked."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from coexec.errors import CoexecWarning, PerformanceWarning, ProgramError
from coexec.geometry import Box
from coexec.graph.instruction import Copy
from coexec.observe.diagnostics import OFTEN, Diagnostics
from coexec.program.mapper import all as map_all, fixed, halo
from coexec.testing import GraphBuilder, invented_platform

LARGE = 10_000  # elements: moving fewer is not worth a word


class Watched(GraphBuilder):
    """A graph whose oddities are kept: `notes` has the texts, in order."""

    def __init__(self, devices: int = 1, policy: str = "warn", *, paged: bool = True) -> None:
        platform = invented_platform(devices, paged=paged)
        self.notes: list[str] = []
        self._done = 0
        self.diagnostics = Diagnostics(policy, platform, self.notes.append)
        super().__init__(platform=platform, watch=self.diagnostics if self.diagnostics.on else None)

    def run(self) -> None:
        """Let everything have run that was not yet."""
        done, self._done = self._done, len(self.emitted)
        for instruction in self.emitted[done:]:
            if isinstance(instruction.step, Copy):
                self.diagnostics.copied(instruction.task, instruction.step)

    def kinds(self) -> list[str]:
        return [kind.__name__ for kind, _ in self.diagnostics.pending]


# Reads of what nobody wrote ---------------------------------------------------------------------------------------------


def test_a_read_of_what_nobody_wrote_is_named_once_with_task_parameter_and_box() -> None:
    """B30."""
    g = Watched()
    a, b = g.array(10), g.array(10)
    for _ in range(3):
        g.call("use", reads=a, writes=b)
    assert len(g.notes) == 1
    assert "task 'use'" in g.notes[0] and "[0:10]" in g.notes[0] and "'p0'" in g.notes[0]
    assert "cx.zeros" in g.notes[0]


def test_only_the_elements_that_nobody_wrote_are_named() -> None:
    g = Watched(2)
    a, b = g.array(100), g.array(100)
    g.call("make", writes=(a, fixed(slice(0, 60))), over=100)
    g.call("use", reads=a, writes=b, on="all")
    assert len(g.notes) == 1 and "reads [60:100]" in g.notes[0]


@pytest.mark.parametrize(
    "use",
    [
        lambda g, a, b: g.call("use", updates=a),
        lambda g, a, b: g.call("use", reads=(a, halo(1)), writes=b, on="all"),
        lambda g, a, b: g.call("use", reads=b, reduces=(a, "sum"), over=100),
        lambda g, a, b: g.host_task("use", reads=a),
        lambda g, a, b: g.read(a),
    ],
    ids=["update", "halo", "reduction", "host task", "host read"],
)
def test_every_way_to_read_is_seen(use: Callable[..., object]) -> None:
    """B30: also what a reduction adds to."""
    g = Watched(2)
    use(g, g.array(100), g.array(100, 0.0))
    assert len(g.notes) == 1 and "which nothing has written" in g.notes[0]
    g.verify()


def test_whatever_has_a_value_may_be_read() -> None:
    g = Watched(2)
    b = g.array(100)
    given = [g.array(100, 0.0), g.array(100, data=range(100)), g.array(100, data=range(100), borrowed=True)]
    for i, a in enumerate(given):
        g.call(f"use{i}", reads=a, writes=b, on="all")
    made = g.array(100)
    g.call("make", writes=made, on="all")
    g.call("use", reads=(made, map_all), writes=b, on="all")
    g.call("empty", reads=(g.array(100), lambda chunk: slice(0, 0)), writes=b)
    g.read(b)
    assert g.notes == []


def test_the_policy_error_raises_at_the_call_and_changes_nothing() -> None:
    """B30: throw."""
    g = Watched(2, "error")
    a, b = g.array(100), g.array(100)
    before = len(g.emitted)
    with pytest.raises(ProgramError, match=r"task 'use'.*reads \[0:100\].*declare cx.write"):
        g.call("use", reads=a, writes=b, on="all")
    with pytest.raises(ProgramError, match="host read"):
        g.read(a)
    assert len(g.emitted) == before
    g.call("make", writes=a, on="all")
    g.call("use", reads=a, writes=b, on="all")
    g.verify()


def test_the_policy_off_says_nothing_and_the_graph_is_executable() -> None:
    """B30: ignore."""
    g = Watched(2, "off")
    a, b = g.array(100), g.array(100)
    g.call("use", reads=a, writes=b, on="all")
    g.call("more", updates=b)
    assert g.notes == []
    g.verify()


# Copies and allocations -------------------------------------------------------------------------------------------------


def test_data_that_goes_to_and_fro_each_step_is_reported_once_with_both_tasks() -> None:
    g = Watched(2)
    a = g.array(LARGE, 0.0)
    for _ in range(3 * OFTEN):
        g.call("here", updates=a, on="dev:0")
        g.call("there", updates=a, on="dev:1")
    g.run()
    told = [note for note in g.notes if "to and fro" in note]
    assert len(told) == 1
    assert "'here'" in told[0] and "'there'" in told[0] and "dev:0" in told[0] and ".using(devices=...)" in told[0]


def test_small_boxes_and_halos_and_results_may_move_every_step() -> None:
    g = Watched(2)
    small, a, b = g.array(10, 0.0), g.array(LARGE, 0.0), g.array(LARGE, 0.0)
    for _ in range(3 * OFTEN):
        g.call("here", updates=small, on="dev:0")
        g.call("there", updates=small, on="dev:1")
        g.call("step", reads=(a, halo(1)), writes=b, on="all")
        g.read(b)
        a, b = b, a
    g.run()
    assert g.notes == []


def test_an_array_that_grows_again_and_again_is_reported_once_with_task_and_memory() -> None:
    g = Watched()
    rows = g.array(1000, 0.0)
    for row in range(3 * OFTEN):
        g.call("shoot", reads=(rows, fixed(slice(0, row + 1))), writes=(rows, fixed(slice(row, row + 1))), over=1)
    assert len(g.notes) == 1
    assert "allocated 10 times in dev:0" in g.notes[0] and "'shoot'" in g.notes[0]


def test_an_array_at_its_final_size_is_not_reported() -> None:
    g = Watched()
    rows = g.array(1000, 0.0)
    g.call("touch", updates=rows)
    for row in range(3 * OFTEN):
        g.call("shoot", reads=(rows, fixed(slice(0, row + 1))), writes=(rows, fixed(slice(row, row + 1))), over=1)
    assert g.notes == []


def test_what_is_remembered_of_an_array_goes_with_it() -> None:
    g = Watched(2)
    for _ in range(OFTEN):
        a = g.array(LARGE, 0.0)
        g.call("here", updates=a, on="dev:0")
        g.call("there", updates=a, on="dev:1")
        g.run()
        g.drop(a)
    assert g.notes == [] and g.diagnostics.remembered == 0


# Said once, at the right moment -----------------------------------------------------------------------------------------


def test_nothing_is_said_before_it_is_asked_for_and_then_once() -> None:
    diagnostics = Diagnostics("warn", invented_platform())
    for kernel in ("f", "f", "g"):
        diagnostics.say("copies", kernel, f"{kernel} moves")
    with pytest.warns(PerformanceWarning) as caught:
        diagnostics.speak()
    assert [str(w.message) for w in caught] == ["f moves", "g moves"]
    assert {w.filename for w in caught} == {__file__}, "a warning names the program's own line"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diagnostics.say("copies", "f", "f moves")
        diagnostics.speak()


def test_parts_that_write_the_same_elements_raise_under_the_policy_error_and_others_warn() -> None:
    g = Watched(policy="error")
    task = g.call("smear", writes=g.array(10))
    with pytest.raises(ProgramError, match="both write"):
        g.diagnostics.conflict(task, "both write", True)
    g.diagnostics.conflict(task, "one reads", False)
    assert g.kinds() == [CoexecWarning.__name__]


def test_a_box_prints_as_numpy_would_slice_it() -> None:
    assert str(Box((0, 2), (3, 4))) == "[0:3, 2:4]"
