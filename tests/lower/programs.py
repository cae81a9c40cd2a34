"""Random programs as plain data, told to a GraphBuilder and to NumPy in the same breath."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from coexec.geometry import Box, whole
from coexec.program.access import reduce, update
from coexec.program.array import Array
from coexec.program.call import Options
from coexec.program.kernel import kernel
from coexec.program.mapper import all as map_all, halo
from coexec.testing.graphs import GraphBuilder

KINDS = (
    "mix",
    "update",
    "halo",
    "inside",
    "cross",
    "cross",
    "ends",
    "woven",
    "gather",
    "reduce",
    "into a view",
    "host write",
    "host task",
    "read",
    "horizon",
    "epoch",
    "drop",
    "scale",
)
STEPS = (1, 1, 1, -1, 2, -2, 3)
MODULUS = 1009.0  # keeps every value a small integer, so that sums are exact in any order

Step = tuple[str, tuple[int, ...]]


@st.composite
def programs(draw: st.DrawFn, *, most: int = 12) -> dict[str, Any]:
    """Draw a machine, arrays and steps."""
    numbers = st.tuples(*[st.integers(0, 23)] * 14)
    return {
        "devices": draw(st.integers(1, 4)),
        "shared": draw(st.booleans()),
        "peers": draw(st.booleans()),
        "paged": draw(st.booleans()),
        "shape": draw(st.sampled_from([(12,), (7,), (6, 6), (5, 5)])),
        "arrays": draw(st.lists(st.sampled_from(["filled", "given", "borrowed"]), min_size=2, max_size=3)),
        "steps": draw(st.lists(st.tuples(st.sampled_from(KINDS), numbers), min_size=1, max_size=most)),
    }


def mix(out: Any, reads: Sequence[Any], *, old: bool) -> None:
    """Assign to every element of `out` something that depends on all inputs at the same place."""
    total = out * 3.0 if old else np.zeros(out.shape)
    for weight, values in enumerate(reads, start=2):
        total = total + weight * values
    out[...] = (total + 1.0) % MODULUS


def add_sum(x: Any, total: Any) -> None:
    total += x.sum()


def blur(u: Any, out: Any) -> None:
    out[...] = (u[:-2] + 2.0 * u[1:-1] + u[2:] + 3.0) % MODULUS


def cross(u: Any, out: Any) -> None:
    """Add up the neighbours along each axis of what has a padded rim; never a diagonal one."""
    inner = tuple([slice(1, -1)] * u.ndim)
    total = 2.0 * u[inner]
    for axis in range(u.ndim):
        for ends in (slice(None, -2), slice(2, None)):
            total = total + (axis + 1) * u[(*inner[:axis], ends, *inner[axis + 1 :])]
    out[...] = total % MODULUS


def first_and_mine(chunk: Any) -> list[Any]:
    """Map a chunk of rows to the first row, the last row and its own."""
    return [0, chunk.array_shape[0] - 1, slice(chunk.lo[0], chunk.hi[0])]


def woven(chunk: Any) -> list[Any]:
    """Map a chunk of half as many rows to its own in either half."""
    half = chunk.array_shape[0] // 2
    return [slice(chunk.lo[0], chunk.hi[0]), slice(half + chunk.lo[0], half + chunk.hi[0])]


def ends(u: Any, out: Any) -> None:
    out[...] = (3.0 * out + u[0] + 2.0 * u[-1]) % MODULUS


def weave(out: Any, rows: int) -> None:
    """Change the first `rows` and the last `rows`; what lies between belongs to others."""
    out[:rows] = (out[:rows] * 2.0 + 1.0) % MODULUS
    out[len(out) - rows :] = (out[len(out) - rows :] * 3.0 + 2.0) % MODULUS


def spread(x: Any, out: Any) -> None:
    out[...] = (2.0 * out + x.sum()) % MODULUS


def add_rests(x: Any, totals: Any) -> None:
    totals += (x % 7.0).sum()


def raise_to(x: Any, totals: Any) -> None:
    np.maximum(totals, x.max(), out=totals)


@kernel(split=0, x=update)
def scale(x, k):
    """Take a 0-d array as a scalar: a value that is not known when the call is made."""
    x[...] = (x + k) % MODULUS


class Twin:
    """Runs each step on the builder and, at once, on plain arrays."""

    def __init__(self, program: dict[str, Any], lookahead: str = "none") -> None:
        self.g = GraphBuilder(
            program["devices"],
            shared=program["shared"],
            peers=program["peers"],
            paged=program["paged"],
            capacity=program.get("capacity"),
            host=program.get("host"),
            lookahead=lookahead,
        )
        self.shape: tuple[int, ...] = program["shape"]
        self.arrays: list[Array] = []
        self.plain: list[np.ndarray[Any, Any]] = []
        self.expected: dict[int, np.ndarray[Any, Any]] = {}  # what each host read must deliver
        for kind in program["arrays"]:
            self._new(kind)
        self.total, self.plain_total = self.g.array((), 0.0), np.zeros(())

    def _new(self, kind: str) -> None:
        volume = whole(self.shape).volume
        data = np.arange(volume, dtype=float).reshape(self.shape) + 10 * len(self.arrays)
        if kind == "filled":
            self.arrays.append(self.g.array(self.shape, 5.0))
            self.plain.append(np.full(self.shape, 5.0))
        else:
            self.arrays.append(self.g.array(self.shape, data=data, borrowed=kind == "borrowed"))
            self.plain.append(data)

    def finish(self) -> None:
        """Read everything."""
        for array, plain in zip(self.arrays, self.plain, strict=True):
            self.expected[self.g.read(array).id] = plain.copy()
        self.expected[self.g.read(self.total).id] = self.plain_total.copy()

    def check(self) -> None:
        """Compare what the host reads got with what they must have got."""
        for task in self.expected:
            self.check_one(task)

    def check_one(self, task: int) -> None:
        """Compare what one host read got."""
        np.testing.assert_array_equal(self.g.delivered[task], self.expected[task])

    # Steps ------------------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        kind, n = step
        a, b = n[0] % len(self.arrays), n[1] % len(self.arrays)
        if kind in ("mix", "update"):
            self._mix(n, a, b, old=kind == "update")
        elif kind in ("halo", "inside"):
            self._halo(n, a, b, kind)
        elif kind in ("cross", "ends", "woven"):
            self._in_boxes(n, a, (a + 1) % len(self.arrays), kind)
        elif kind == "gather":
            out = (a + 1) % len(self.arrays)
            self.g.call(
                "gather", reads=(self.arrays[a], map_all), updates=self.arrays[out], body=spread, **self._where(n)
            )
            spread(self.plain[a], self.plain[out])
        elif kind == "reduce":
            self.g.call(
                "reduce", reads=self.arrays[a], reduces=self.total, over=self.shape, body=add_sum, **self._where(n)
            )
            add_sum(self.plain[a], self.plain_total)
        elif kind == "into a view":
            self._reduce(n, a, (a + 1) % len(self.arrays))
        elif kind == "host write":
            cut = slices(n, self.shape)
            value = float(n[13])
            self.g.call("write", writes=self.arrays[a][cut], on=self._device(n), body=lambda out: out.fill(value))
            self.plain[a][cut] = value
        elif kind == "scale":
            cut = slices(n, self.shape)
            self.g.submit(scale, (self.arrays[a][cut], self.total), {}, Options(",".join(self.g.devices[: n[5] + 1])))
            scale.function(self.plain[a][cut], self.plain_total)
        else:
            self._host(kind, n, a)

    def _host(self, kind: str, n: tuple[int, ...], a: int) -> None:
        cut = slices(n, self.shape)
        if kind == "host task":
            self.g.host_task("touch", updates=self.arrays[a][cut], body=lambda x: mix(x, [], old=True))
            mix(self.plain[a][cut], [], old=True)
        elif kind == "read":
            self.expected[self.g.read(self.arrays[a][cut]).id] = self.plain[a][cut].copy()
        elif kind == "horizon":
            self.g.horizon()
        elif kind == "epoch":
            self.g.epoch()
        elif kind == "drop":
            self.g.drop(self.arrays.pop(a))
            self.plain.pop(a)
            self._new("filled" if n[2] % 2 else "given")

    def _mix(self, n: tuple[int, ...], a: int, b: int, *, old: bool) -> None:
        """Assign to one view from views of the same shape; divided only if no other view is of the same array."""
        cut = slices(n, self.shape)
        out, plain_out = self.arrays[a][cut], self.plain[a][cut]
        sources = [(b, alike(n, plain_out.shape, self.shape))][: n[2] % 3] + ([(a, cut)] if n[3] % 4 == 0 else [])
        reads = [self.arrays[i][c] for i, c in sources]
        plain_reads = [self.plain[i][c] for i, c in sources]
        alone = all(i != a or c == cut for i, c in sources)

        def body(*arrays: Any) -> None:
            mix(arrays[-1], arrays[:-1], old=old)

        where = self._where(n, plain_out.shape) if alone else {"on": self._device(n)}
        self.g.call(
            "update" if old else "mix",
            reads=reads,
            writes=() if old else out,
            updates=out if old else (),
            body=body,
            **where,
        )
        mix(plain_out, plain_reads, old=old)

    def _reduce(self, n: tuple[int, ...], a: int, b: int) -> None:
        """Reduce one array into every element of a view of another, on top of what it holds or afresh."""
        cut = slices(n, self.shape)
        name, body, identity = (("sum", add_rests, 0.0), ("max", raise_to, -np.inf))[n[2] % 2]
        access = reduce(name, fresh=n[3] % 2 == 0)
        into = (self.arrays[b][cut], access)
        self.g.call("into", reads=self.arrays[a], reduces=into, over=self.shape, body=body, **self._where(n))
        if n[3] % 2 == 0:
            self.plain[b][cut] = identity
        body(self.plain[a], self.plain[b][cut])

    def _halo(self, n: tuple[int, ...], a: int, b: int, kind: str) -> None:
        b = (a + 1) % len(self.arrays) if a == b else b
        width = [(1, 1)]
        if kind == "inside":
            self.g.call(
                "inside",
                reads=(self.arrays[a], halo(width, border="inside")),
                updates=self.arrays[b],
                body=blur,
                **self._where(n, (self.shape[0] - 2, *self.shape[1:]), 1),
            )
            blur(self.plain[a], self.plain[b][1:-1])
            return
        border = ("wrap", "edge", "reflect", 4.0)[n[4] % 4]
        mapper = halo(width, border=border)
        self.g.call("halo", reads=(self.arrays[a], mapper), writes=self.arrays[b], body=blur, **self._where(n))
        blur(padded(self.plain[a], [(1, 1), *[(0, 0)] * (len(self.shape) - 1)], border), self.plain[b])

    def _in_boxes(self, n: tuple[int, ...], a: int, b: int, kind: str) -> None:
        """Touch several boxes per chunk: a stencil without diagonals, far ends, or rows of both halves."""
        if kind == "ends":
            self.g.call(
                "ends",
                reads=(self.arrays[a], first_and_mine),
                updates=self.arrays[b],
                body=ends,
                **self._where(n, rows=True),
            )
            ends(self.plain[a], self.plain[b])
        elif kind == "woven":
            half = self.shape[0] // 2
            where = self._where(n, (half, *self.shape[1:]), rows=True)

            @kernel(split=0, over=half, x=update(woven))
            def change(x, chunk):
                weave(x, chunk.shape[0])

            chunks = [(device, Box(box.lo[:1], box.hi[:1])) for device, box in where.get("chunks", ())]
            self.g.submit(change, (self.arrays[a],), {}, Options(self._device(n)), chunks or None)
            weave(self.plain[a][: 2 * half], half)
        else:
            border = ("wrap", "edge", "reflect", 4.0, "inside")[n[4] % 5]
            if border == "inside":
                inner = tuple([slice(1, -1)] * len(self.shape))
                where = self._grid(n, 1)
                self.g.call(
                    "cross",
                    reads=(self.arrays[a], halo(1, border, shape="axes")),
                    updates=self.arrays[b],
                    body=cross,
                    **where,
                )
                cross(self.plain[a], self.plain[b][inner])
                return
            mapper = halo(1, border=border, shape="axes")
            self.g.call("cross", reads=(self.arrays[a], mapper), writes=self.arrays[b], body=cross, **self._grid(n))
            cross(padded(self.plain[a], 1, border), self.plain[b])

    def _grid(self, n: tuple[int, ...], rim: int = 0) -> dict[str, Any]:
        """Say where a task runs: on one device, or cut along every axis, over devices in any order."""
        if n[6] % 4 == 0:
            return {"on": self._device(n)}
        spans = []
        for axis, size in enumerate(self.shape):
            marks = sorted({rim, size - rim, *(rim + c % (size - 2 * rim) for c in n[7 + axis : 7 + axis + n[6] % 3])})
            spans.append(list(pairwise(marks)))
        boxes = [Box(tuple(lo for lo, _ in ends), tuple(hi for _, hi in ends)) for ends in product(*spans)]
        devices = self.g.devices
        return {"chunks": [(devices[(i + n[5]) % len(devices)], box) for i, box in enumerate(boxes)]}

    def _device(self, n: tuple[int, ...]) -> str:
        return self.g.devices[n[5] % len(self.g.devices)]

    def _where(
        self, n: tuple[int, ...], shape: tuple[int, ...] | None = None, first: int = 0, *, rows: bool = False
    ) -> dict[str, Any]:
        """Say where a task runs: on one device, or cut at random rows (or columns) over devices in any order."""
        shape = self.shape if shape is None else shape
        if n[6] % 3 == 0 or 0 in shape:
            return {"on": self._device(n)}
        axis = n[6] % len(shape) if first == 0 and not rows else 0
        cuts = sorted({0, shape[axis], *(c % shape[axis] for c in n[7 : 7 + n[6] % 4])})
        lo, hi = [first, *[0] * (len(shape) - 1)], [shape[0] + first, *shape[1:]]
        offset = lo[axis]
        chunks = []
        for number, (start, stop) in enumerate(pairwise(cuts)):
            lo[axis], hi[axis] = start + offset, stop + offset
            chunks.append((self.g.devices[(number + n[5]) % len(self.g.devices)], Box(tuple(lo), tuple(hi))))
        return {"chunks": chunks}


def padded(values: Any, widths: Any, border: Any) -> Any:
    """Return what a halo with this border shows."""
    how: dict[str, Any] = (
        {"mode": border} if isinstance(border, str) else {"mode": "constant", "constant_values": border}
    )
    return np.pad(values, widths, **how)


def slices(n: tuple[int, ...], shape: tuple[int, ...], steps: Sequence[int] = STEPS) -> tuple[slice, ...]:
    """Return a slice per axis, by any of the steps; never empty."""
    found = []
    for axis, size in enumerate(shape):
        low, count = n[8 + axis] % size, n[10 + axis] % size + 1
        found.append(_run(low, min(count, size - low), steps[n[12 + axis] % len(steps)]))
    return tuple(found)


def alike(
    n: tuple[int, ...], wanted: tuple[int, ...], shape: tuple[int, ...], steps: Sequence[int] = STEPS
) -> tuple[slice, ...]:
    """Return slices of the wanted shape, elsewhere in the array."""
    found = []
    for axis, (count, size) in enumerate(zip(wanted, shape, strict=True)):
        fitting = [s for s in steps if (count - 1) * abs(s) < size]
        step = fitting[n[4 + axis] % len(fitting)]
        span = (count - 1) * abs(step) + 1 if count else 0
        found.append(_run(n[7 + axis] % (size - span + 1), span, step))
    return tuple(found)


def _run(low: int, span: int, step: int) -> slice:
    """Return the slice over `span` positions from `low` on, by `step`; backwards from the last if negative."""
    if step > 0:
        return slice(low, low + span, step)
    return slice(low + span - 1, low - 1 if low else None, step) if span else slice(low, low)


def lowered(program: dict[str, Any], lookahead: str = "none") -> Twin:
    """Return the program, lowered, and what it must deliver."""
    twin = Twin(program, lookahead)
    for step in program["steps"]:
        twin.step(step)
    twin.finish()
    return twin
