"""What tasks are given is kept beside them: CPython makes a dictionary only for names that come late."""

from __future__ import annotations

import sys

from coexec.graph.task import USUAL, Task


def test_a_task_with_all_that_is_usual_has_no_dictionary_of_its_own() -> None:
    task = Task(0, "usual", None, None)
    for name in reversed(USUAL):  # whatever the order
        setattr(task, name, None)
    attributes = task.__dict__
    alone = dict.fromkeys(USUAL)
    assert len(attributes) == len(USUAL) == len(set(USUAL)) <= 29
    assert 2 * sys.getsizeof(attributes) < sys.getsizeof(alone)  # its keys are those of the class
    other = Task(0, "unusual", None, None)
    for name in (*USUAL, "grain"):
        setattr(other, name, None)
    assert sys.getsizeof(other.__dict__) >= sys.getsizeof(alone)
