"""Two multi-modal models with the layer lists that H2H was evaluated on: three modalities, joined late.

Before: models/building.py, models/loops.py.  After: models/catalogue.py, models/h2h.py.  Knows the lists, no cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from .building import NetBuilder
from .loops import CONV, FC, Loops, WorkLayer, Workload
from .values import LayerGraph

Row = tuple[int, int, int]  # output channels, input channels, output rows = columns
MODALITIES = 3
TAPS = 3

SURF_BRANCH: tuple[Row, ...] = (
    (64, 3, 112), *[(64, 64, 112)] * 3, *[(64, 64, 56)] * 4, (128, 64, 28), *[(128, 128, 28)] * 3,
)  # fmt: skip
SURF_JOINED: tuple[Row, ...] = ((256, 384, 14), *[(256, 256, 14)] * 3, (512, 256, 7), *[(512, 512, 7)] * 3)
BAG_BRANCH: tuple[Row, ...] = (
    (32, 3, 56), (64, 32, 28), *[(64, 64, 28)] * 2, (64, 128, 28), *[(64, 64, 28)] * 2, *[(128, 128, 14)] * 3,
    (128, 256, 14), *[(128, 128, 14)] * 2,
)  # fmt: skip
BAG_JOINED: tuple[Row, ...] = (
    *[(256, 256, 7)] * 3, (256, 512, 7), *[(256, 256, 7)] * 2, *[(512, 512, 3)] * 3, (512, 1024, 3), *[(512, 512, 3)] * 2,
)  # fmt: skip
BAG_CLASSIFIER = Loops(1, 3, 92146, 1, 1)


def _listed(branch: Sequence[Row], joined: Sequence[Row]) -> list[WorkLayer]:
    """Return layers modality by modality; the joined part continues the first one. Order: 1 with its tail is last."""
    layers: list[WorkLayer] = []
    ends = []
    for modality in range(MODALITIES):
        for position, row in enumerate(branch):
            before = branch[position - 1][2] if position else 2 * row[2]
            layers.append(_conv(modality, position, row, before, (len(layers) - 1,) if position else ()))
        ends.append(len(layers) - 1)
    for offset, row in enumerate(joined):
        before = joined[offset - 1][2] if offset else branch[-1][2]
        after = (len(layers) - 1,) if offset else tuple(ends)
        fresh = row[1] * (MODALITIES - 1) // MODALITIES if not offset else 0
        layers.append(_conv(0, len(branch) + offset, row, before, after, fresh))
    return layers


def _conv(branch: int, position: int, row: Row, before: int, after: tuple[int, ...], fresh: int = 0) -> WorkLayer:
    cout, cin, side = row
    stride = max(1, round(before / side))
    loops = Loops(1, cout, cin, side, side, TAPS, TAPS)
    name = f"M{branch + 1}L{position + 1}"
    return WorkLayer(name, CONV, loops, after, (stride, stride), inputs=(before, before), branch=branch, fresh=fresh)


def casia_surf_layers() -> Workload:
    """The 44 layers of a model for CASIA-SURF in the style of ResNet18, as H2H lists them."""
    return Workload("casia_surf", tuple(_listed(SURF_BRANCH, SURF_JOINED)))


def facebag_layers() -> Workload:
    """The 52 layers of a model like FaceBag, as H2H lists them: a table of costs, whose channels do not chain."""
    layers = _listed(BAG_BRANCH, BAG_JOINED)
    end = WorkLayer(
        f"M1L{len(BAG_BRANCH) + len(BAG_JOINED) + 1}", FC, BAG_CLASSIFIER, (len(layers) - 1,), inputs=(1, 1)
    )
    return Workload("facebag", (*layers, end), notes=(NOT_A_MODEL,))


NOT_A_MODEL = (
    "facebag is a table of costs: 64 channels feed a layer of 128 (M1L4 to M1L5), 3 x 128 feed 256 (M1L14), and 4,608 "
    "values feed a classifier of 92,146, so it can be planned but not run"
)


def casia_surf(image: int = 224, batch: int = 1) -> LayerGraph:
    """Return CASIA-SURF as a graph that runs: stride 2 where the size halves, padding 1, ReLU after each convolution."""
    net = NetBuilder("casia_surf")
    ends = []
    for modality in range(MODALITIES):
        x = net.input(f"image{modality + 1}", (batch, 3, image, image))
        ends.append(_convolutions(net, x, SURF_BRANCH, modality, 0, 2 * SURF_BRANCH[0][2]))
    x = net.concat(ends, 1)
    return net.done(_convolutions(net, x, SURF_JOINED, 0, len(SURF_BRANCH), SURF_BRANCH[-1][2]))


def _convolutions(net: NetBuilder, x: str, rows: Sequence[Row], modality: int, first: int, before: int) -> str:
    for position, (filters, _, side) in enumerate(rows, first):
        stride, before = max(1, before // side), side
        x = net.same("Relu", net.conv(x, filters, TAPS, stride, name=f"M{modality + 1}L{position + 1}"))
    return x
