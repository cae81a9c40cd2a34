"""Layers as loop nests: what cost models, shardings and searches know of a model.

Before: nothing.  After: every other module of this folder.  Knows no tensor values and no device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import ProgramError

CONV, FC, LSTM = "conv", "fc", "lstm"
"""Kinds of layers that designs tell apart: convolutions, products of matrices, recurrent layers."""
KINDS = (CONV, LSTM, FC)


class Loops(NamedTuple):
    """The loop nest of a layer: `batch` x `cout` x `cin` x `rows` x `columns` x `kh` x `kw` multiplications.

    `cin` counts the input channels of one group, `rows` and `columns` the output's. A product of matrices is a nest with
    one column and a kernel of one: rows of the left matrix as `rows`, the sum as `cin`, columns of the right as `cout`.
    """

    batch: int
    cout: int
    cin: int
    rows: int
    columns: int
    kh: int = 1
    kw: int = 1

    @property
    def macs(self) -> int:
        """Multiplications with addition."""
        return self.batch * self.cout * self.cin * self.rows * self.columns * self.kh * self.kw


@dataclass(frozen=True, slots=True)
class WorkLayer:
    """One layer with weights or sums. `after` are the positions of the layers that it reads from, in the workload."""

    name: str
    kind: str
    loops: Loops
    after: tuple[int, ...] = ()
    stride: tuple[int, int] = (1, 1)
    groups: int = 1
    inputs: tuple[int, int] = (0, 0)  # rows and columns that it reads; 0 = stride times the output's
    parameters: int | None = None  # elements that are stored; None = cout * cin * kh * kw
    steps: int = 1  # of a recurrent layer
    branch: int = 0  # modality of a multi-modal model: layers of one branch are a chain
    fresh: int = 0  # of its input channels, how many come from other branches

    @property
    def macs(self) -> int:
        """Multiplications with addition, of all steps."""
        return self.loops.macs * self.steps

    @property
    def weights(self) -> int:
        """Elements of its weight operand, stored or computed."""
        return self.loops.cout * self.loops.cin * self.loops.kh * self.loops.kw

    @property
    def stored(self) -> int:
        """Elements of its parameters."""
        return self.weights if self.parameters is None else self.parameters

    @property
    def channels(self) -> int:
        """Input channels of all groups."""
        return self.loops.cin * self.groups

    @property
    def read(self) -> tuple[int, int]:
        """Rows and columns of its input, without padding."""
        rows, columns = self.inputs
        return rows or self.loops.rows * self.stride[0], columns or self.loops.columns * self.stride[1]

    @property
    def input_elements(self) -> int:
        """Elements of its input, without padding."""
        rows, columns = self.read
        return self.loops.batch * self.channels * rows * columns

    @property
    def output_elements(self) -> int:
        """Elements of its output."""
        return self.loops.batch * self.loops.cout * self.loops.rows * self.loops.columns


class Alive(NamedTuple):
    """A value that is alive between two layers, as (batch, channels, rows, columns), and what it is needed for."""

    shape: tuple[int, int, int, int]
    left: bool  # the next layer's input
    right: bool  # the next layer's other operand
    later: bool  # by what comes after the next layer's sums, or as a result of the model

    @property
    def elements(self) -> int:
        """How many elements it has."""
        batch, channels, rows, columns = self.shape
        return batch * channels * rows * columns


@dataclass(frozen=True)
class Workload:
    """Layers in an order that respects `after`, and what is alive before each of them and at the end."""

    name: str
    layers: tuple[WorkLayer, ...]
    alive: tuple[tuple[Alive, ...], ...] = ()  # before layer 0, before layer 1, ..., after the last
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        for i, layer in enumerate(self.layers):
            if late := [j for j in layer.after if not 0 <= j < i]:
                raise ProgramError(
                    f"layer {i} ({layer.name}) of {self.name} comes after layer {late[0]}, which is not before it; "
                    "list the layers in the order of their dependencies"
                )
        if not self.alive:
            object.__setattr__(self, "alive", alive_of(self.layers))

    @property
    def macs(self) -> int:
        """Multiplications with addition, of all layers."""
        return sum(layer.macs for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Stored elements, of all layers."""
        return sum(layer.stored for layer in self.layers)

    def only(self, *kinds: str) -> Workload:
        """Return the part of the workload that consists of these kinds of layers, with what it depends on through others."""
        keep = [i for i, layer in enumerate(self.layers) if layer.kind in kinds]
        return chosen(self, keep)

    def readers(self) -> list[list[int]]:
        """Return which layers read each layer's result."""
        found: list[list[int]] = [[] for _ in self.layers]
        for i, layer in enumerate(self.layers):
            for j in layer.after:
                found[j].append(i)
        return found

    @property
    def chain(self) -> bool:
        """Whether each layer reads the one before it, and no other."""
        return all(layer.after == ((i - 1,) if i else ()) for i, layer in enumerate(self.layers))


def chosen(workload: Workload, keep: Sequence[int]) -> Workload:
    """Return the workload of some layers; a layer comes after what it reaches through those that are left out."""
    from dataclasses import replace

    new = {old: i for i, old in enumerate(keep)}
    reach: list[frozenset[int]] = []
    for layer in workload.layers:
        reach.append(frozenset().union(*(frozenset({new[j]}) if j in new else reach[j] for j in layer.after)))
    layers = tuple(replace(workload.layers[old], after=tuple(sorted(reach[old]))) for old in keep)
    alive = (*(workload.alive[old] for old in keep), workload.alive[keep[-1] + 1] if keep else ())
    return Workload(workload.name, layers, alive, workload.notes)


def alive_of(layers: Iterable[WorkLayer]) -> tuple[tuple[Alive, ...], ...]:
    """Return what is alive before each layer and at the end, where each layer's result is all there is."""
    layers = tuple(layers)
    readers: list[set[int]] = [set() for _ in layers]
    for i, layer in enumerate(layers):
        for j in layer.after:
            readers[j].add(i)
    cuts = []
    for cut in range(len(layers) + 1):
        values = []
        for j in range(cut):
            loops, last = layers[j].loops, not readers[j]
            read, later = cut in readers[j], last or any(i > cut for i in readers[j])
            if read or later:
                values.append(
                    Alive((loops.batch, loops.cout, loops.rows, loops.columns), read, right=False, later=later)
                )
        if cut < len(layers) and not layers[cut].after:
            layer = layers[cut]
            values.append(Alive((layer.loops.batch, layer.channels, *layer.read), left=True, right=False, later=False))
        cuts.append(tuple(values))
    return tuple(cuts)
