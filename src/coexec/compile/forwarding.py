"""Temporaries that are written in parts and then copied: their parts are written where the copy goes.

Before: compile/graph.py.  After: compile/compiled.py, compile/opencl.py.  Pure: stores in, stores out.

`out[...] = np.stack([a, b, c], axis=1)` makes an array of three columns and copies it. Without the copy each column is one store,
and the body goes through its arrays once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .graph import Assign, Buffer, Expr, Read, is_whole, nodes_of, through, whole_axes


def forwarded(stores: Sequence[Assign]) -> list[Assign]:
    """Return stores without copies of temporaries that nobody else looks at."""
    found = list(stores)
    for copy in stores:
        parts = _parts(found, copy)
        if parts:
            moved = {id(part): _moved(part, copy) for part in parts}
            found = [moved.get(id(store), store) for store in found if store is not copy]
    return found


def _moved(part: Assign, copy: Assign) -> Assign:
    return replace(part, buffer=copy.buffer, axes=through(copy.axes, part.axes))


def _parts(stores: Sequence[Assign], copy: Assign) -> list[Assign]:
    """Return the stores that write what is copied, if they may write it where the copy goes."""
    value, target = copy.value, copy.buffer
    if not isinstance(value, Read) or value.buffer.parameter or target is value.buffer:
        return []
    whole = is_whole(whole_axes(len(value.shape)), value.shape, value.buffer.shape)
    at = next((number for number, store in enumerate(stores) if store is copy), -1)
    parts = [number for number, store in enumerate(stores) if store.buffer is value.buffer]
    if at < 0 or not whole or not parts or parts[-1] > at or len(parts) != value.version:
        return []
    looked = [store for store in stores if store is not copy and _reads(store.value, value.buffer)]
    between = stores[parts[0] :]
    if looked or any(store.buffer is target for store in between if store is not copy):
        return []
    if any(_reads(store.value, target) for store in between):
        return []
    return [stores[number] for number in parts]


def _reads(value: Expr, buffer: Buffer) -> bool:
    return any(isinstance(node, Read) and node.buffer is buffer for node in nodes_of(value))
