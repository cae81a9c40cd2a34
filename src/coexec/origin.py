"""Whose code it is: the program's, or that of coexec and NumPy, which the program's calls come through.

Before: nothing.  After: everything that names a line of the program.  Goes by where these two packages lie, never by the
names of folders or modules: a program may live in a folder called coexec, or have a package of that name.
"""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType

import numpy as np

OURS = (os.path.join(os.path.dirname(__file__), ""),)  # noqa: PTH118, PTH120 - text, as in code objects; ends with "/"
PASSED = (*OURS, os.path.join(os.path.dirname(np.__file__), ""))  # noqa: PTH118, PTH120 - as above
PROGRAMS = (OURS[0] + "examples" + os.sep, OURS[0] + "bench" + os.sep)
"""Programs like users' own, which an installed coexec carries with it."""
MOST_FILES = 1 << 12  # whose answers are kept: each cell of a notebook is a file of its own


class PassedFiles(dict[str, bool]):
    """Whether calls only come through code from a file, by file: every call asks about two or three."""

    def __missing__(self, file: str) -> bool:
        if len(self) >= MOST_FILES:
            self.clear()
        known = self[file] = file.startswith(PASSED) and not file.startswith(PROGRAMS)
        return known


PASSED_FILES = PassedFiles()


def is_ours(file: str) -> bool:
    """Tell whether code from `file` is coexec's own."""
    return file.startswith(OURS) and not file.startswith(PROGRAMS)


def is_passed(file: str) -> bool:
    """Tell whether calls only come through code from `file`: operators are NumPy's, ready-made operations ours."""
    return PASSED_FILES[file]


def program_frame(frame: FrameType) -> FrameType:
    """Return the nearest frame of the program: `frame`, or what called it through coexec and NumPy."""
    while frame.f_back is not None and is_passed(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def program_line(frame: FrameType) -> tuple[str, int]:
    """Return file and number of the nearest line of the program."""
    found = program_frame(frame)
    return found.f_code.co_filename, found.f_lineno


def program_depth() -> int:
    """Return the `stacklevel` at which the caller's warning names the program's own line."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_passed(frame.f_code.co_filename):
        frame = frame.f_back
        depth += 1
    return depth


def last_program_line(trace: TracebackType | None) -> str:
    """Return the innermost line of the program that an error passed through, as file:line; "" if there is none."""
    found = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not is_passed(file):
            found = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
