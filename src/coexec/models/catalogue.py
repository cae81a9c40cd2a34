"""The models that come with coexec, by name.

Before: models/zoo.py, models/multimodal.py.  After: the command line.  Knows names only.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import UnsupportedError, unknown_name
from . import zoo
from .extract import workload
from .loops import Workload
from .multimodal import NOT_A_MODEL, casia_surf, casia_surf_layers, facebag_layers
from .values import LayerGraph

GRAPHS: dict[str, Callable[[], LayerGraph]] = {
    "alexnet": zoo.alexnet,
    "casia_surf": casia_surf,
    "encoder": zoo.encoder,
    "mobilenet_v2": zoo.mobilenet_v2,
    "resnet18": zoo.resnet18,
    "resnet34": zoo.resnet34,
    "resnet50": zoo.resnet50,
    "resnet101": zoo.resnet101,
    "vgg16": zoo.vgg16,
    "vit": zoo.vit,
    "wide_resnet50_2": zoo.wide_resnet50_2,
}
"""Models that can be run."""
LISTED: dict[str, Callable[[], Workload]] = {"casia_surf": casia_surf_layers, "facebag": facebag_layers}
"""Models whose layers are published as a list, which says what belongs to which modality."""
NAMES = tuple(sorted({*GRAPHS, *LISTED}))


def graph(name: str) -> LayerGraph:
    """Return a model that comes with coexec, as a graph that can be run."""
    if name not in NAMES:
        raise unknown_name("model", name, NAMES)
    if name not in GRAPHS:
        raise UnsupportedError(NOT_A_MODEL)
    return GRAPHS[name]()


def layers(name: str) -> Workload:
    """Return the layers of a model that comes with coexec."""
    return LISTED[name]() if name in LISTED else workload(graph(name))
