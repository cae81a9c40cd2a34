"""Checkpoints and `.npy` files of several ranks: the steps of saving/, with all ranks agreeing on each before the next.

Before: saving/, cluster/collectives.py.  After: whoever saves a program's arrays on ranks.  A rank that cannot write tells
all others, and all raise the same error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import CheckpointError, CoexecError, ConfigError
from ..geometry import Box, Point
from ..saving import checkpoint
from ..saving.npy import NpyWriter
from .collectives import allgather
from .transport import Transport


def keep_together(
    transport: Transport,
    folder: str | os.PathLike[str],
    arrays: Mapping[str, tuple[Point, Any]],
    pieces: checkpoint.Pieces,
    values: Mapping[str, Any] | None = None,
    *,
    keep: int = checkpoint.KEEP,
) -> int:
    """Write a checkpoint of all ranks' pieces, and return its number. `arrays` and `values` are the same on all ranks."""
    first = transport.rank == 0
    number: int = _agree(transport, CheckpointError, (lambda: checkpoint.begin(folder)) if first else None)[0]
    rank = transport.rank
    written = _agree(transport, CheckpointError, lambda: checkpoint.write(folder, number, rank, pieces))
    end = (lambda: checkpoint.commit(folder, number, arrays, written, values, keep=keep)) if first else None
    _agree(transport, CheckpointError, end)
    return number


def save_npy(
    transport: Transport,
    path: str | os.PathLike[str],
    shape: Point,
    dtype: Any,
    boxes: Iterable[tuple[Box, Any]],
) -> None:
    """Write a `.npy` file out of all ranks' boxes, which must not overlap."""
    first, writer = transport.rank == 0, NpyWriter(path, shape, dtype)

    def write() -> None:
        for box, data in boxes:
            writer.write(box, data)

    for step in (writer.create if first else None, write, writer.finish if first else None):
        _agree(transport, ConfigError, step)


def _agree(transport: Transport, kind: type[CoexecError], step: Callable[[], Any] | None) -> list[Any]:
    return agree(lambda words: allgather(transport, words), kind, step)


def agree(gather: Callable[[bytes], list[bytes]], kind: type[CoexecError], step: Callable[[], Any] | None) -> list[Any]:
    """Do a step, if this rank has one, and return what every rank found; it must be JSON.

    Raise the same error on all ranks if one of them could not do it. `gather` gives all ranks what each of them says.
    """
    answer: dict[str, Any] = {"found": None}
    try:
        answer["found"] = step() if step is not None else None
    except CoexecError as error:
        answer["error"] = str(error)
    answers = [json.loads(words) for words in gather(json.dumps(answer).encode())]
    for rank, told in enumerate(answers):
        if "error" in told:
            raise kind(f"{told['error']} (on rank {rank})")
    return [told["found"] for told in answers]
