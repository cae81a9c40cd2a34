"""The models that come with coexec have the layers, parameters and products of their published definitions."""

from __future__ import annotations

import pytest

from coexec.errors import ProgramError, UnknownName, UnsupportedError
from coexec.models import catalogue
from coexec.models.building import NetBuilder
from coexec.models.engines import ENGINES, Accounts, nest
from coexec.models.extract import workload
from coexec.models.loops import CONV, FC, Loops, WorkLayer, Workload
from coexec.models.multimodal import casia_surf, casia_surf_layers, facebag_layers

CONVOLUTIONS = {  # convolutions, millions of parameters, 1e9 multiplications
    "alexnet": (5, 2.47, 0.656),
    "vgg16": (13, 14.71, 15.347),
    "resnet18": (20, 11.17, 1.814),
    "resnet34": (36, 21.27, 3.663),
    "resnet50": (53, 23.45, 4.087),
    "resnet101": (104, 42.39, 7.799),
    "wide_resnet50_2": (53, 66.77, 11.396),
    "mobilenet_v2": (52, 2.19, 0.299),
}
CLASSIFIERS = {"alexnet": 58.62, "vgg16": 123.63, "resnet34": 0.51, "resnet101": 2.05, "wide_resnet50_2": 2.05}
ON_ONE = {  # milliseconds of all convolutions on one accelerator at 200 MHz, by design, and with the best for each layer
    "alexnet": (12.3, 4.1, 6.0, 2.9),
    "vgg16": (288.9, 86.8, 34.3, 34.3),
    "resnet34": (111.6, 27.0, 14.4, 11.5),
    "resnet101": (267.4, 60.8, 129.7, 43.0),
    "wide_resnet50_2": (341.8, 81.8, 141.8, 54.5),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_parameters_and_products_are_those_of_the_definition(name: str) -> None:
    found = catalogue.layers(name).only(CONV)
    assert (len(found.layers), round(found.parameters / 1e6, 2), round(found.macs / 1e9, 3)) == CONVOLUTIONS[name]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_have_the_parameters_of_the_definition(name: str) -> None:
    assert round(catalogue.layers(name).only(FC).parameters / 1e6, 2) == CLASSIFIERS[name]


@pytest.mark.parametrize("name", ON_ONE)
def test_designs_take_the_published_times_for_whole_networks(name: str) -> None:
    layers = catalogue.layers(name).only(CONV).layers
    times = [
        [float(design.seconds(nest(*x.loops), Accounts(x.stride, x.groups), 200e6)) for x in layers]
        for design in ENGINES.values()
    ]
    whole = [sum(column) * 1e3 for column in times]
    best = sum(map(min, zip(*times, strict=True))) * 1e3
    assert tuple(round(ms, 1) for ms in (*whole, best)) == ON_ONE[name]


def test_the_multi_modal_lists_have_the_published_totals() -> None:
    surf, bag = casia_surf_layers(), facebag_layers()
    assert (len(surf.layers), round(surf.parameters / 1e6, 2), round(2 * surf.macs / 1e9, 2)) == (44, 13.24, 15.51)
    assert (len(bag.layers), round(bag.parameters / 1e6, 2), round(2 * bag.macs / 1e9, 2)) == (52, 24.74, 3.06)


def test_the_graph_of_casia_surf_has_the_layers_of_its_list() -> None:
    made, listed = workload(casia_surf()), casia_surf_layers()
    for one, other in zip(sorted(made.layers, key=by_name), sorted(listed.layers, key=by_name), strict=True):
        assert (one.name, one.loops, one.stride, one.read) == (other.name, other.loops, other.stride, other.read)
    names = {
        kind: {(w.layers[i].name, w.layers[j].name) for j, x in enumerate(w.layers) for i in x.after}
        for kind, w in (("made", made), ("listed", listed))
    }
    assert names["made"] == names["listed"]
    assert ("M2L12", "M1L13") in names["listed"] and ("M3L12", "M1L13") in names["listed"]


def by_name(layer: WorkLayer) -> str:
    return layer.name


def test_facebag_can_be_planned_but_not_run() -> None:
    assert len(catalogue.layers("facebag").layers) == 52
    with pytest.raises(UnsupportedError, match=r"table of costs.*92,146"):
        catalogue.graph("facebag")


def test_an_unknown_model_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'resnet34'"):
        catalogue.layers("resnet43")


def test_a_layer_cannot_come_before_what_it_reads() -> None:
    loops = Loops(1, 1, 1, 1, 1)
    with pytest.raises(ProgramError, match=r"layer 0 \(a\).*layer 1"):
        Workload("odd", (WorkLayer("a", CONV, loops, (1,)), WorkLayer("b", CONV, loops)))


def test_products_of_an_encoder_are_counted_with_their_heads() -> None:
    from coexec.models.zoo import encoder

    length, width, heads, blocks = 16, 32, 4, 2
    found = workload(encoder(length, width, blocks, heads))
    per_block = length * width * width * (4 + 8) + 2 * length * length * width
    assert found.macs == blocks * per_block
    scores = next(x for x in found.layers if x.name == "block0.scores")
    assert (scores.groups, scores.loops, scores.stored) == (
        heads,
        Loops(1, heads * length, width // heads, length, 1),
        0,
    )


def test_what_is_alive_between_two_layers_includes_the_shortcut() -> None:
    net = NetBuilder("block")
    x = net.input("x", (1, 8, 6, 6))
    y = net.conv(net.same("Relu", net.conv(x, 8, 3)), 8, 3)
    found = workload(net.done(net.conv(net.same("Add", x, y), 4, 1)))
    reads, later = (True, False, False), (False, False, True)
    assert all(v.shape == ((1, 4, 6, 6) if n == 3 else (1, 8, 6, 6)) for n, cut in enumerate(found.alive) for v in cut)
    assert [[v[1:] for v in cut] for cut in found.alive] == [[(True, False, True)], [later, reads], [reads], [later]]


def test_the_operands_of_a_product_of_two_values_are_told_apart() -> None:
    net = NetBuilder("attention")
    x = net.input("x", (1, 2, 4, 8))
    found = workload(net.done(net.matmul(x, net.transpose(x, (0, 1, 3, 2)))))
    assert [(v.shape, *v[1:]) for v in found.alive[0]] == [((1, 2, 4, 8), True, False, True)]
