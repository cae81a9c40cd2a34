"""Cost models of designs, against calculations by hand."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.errors import UnknownName
from coexec.machine.platform import Platform
from coexec.models.designs import design as engine
from coexec.models.engines import (
    Accounts,
    Ports,
    nest,
    roofline_design,
    tile_engine_with_ports,
)
from coexec.models.fabric import fabric
from coexec.models.h2h_costs import ACCELERATORS, FixedEngine, transfers
from coexec.models.loops import CONV, FC, LSTM, Loops, WorkLayer
from coexec.models.multimodal import casia_surf_layers

LAYER = nest(1, 64, 7, 13, 13, 3, 3)


def test_a_layer_of_one_tile_takes_a_cycle_for_each_point_and_tap() -> None:
    assert float(engine("superlip").cycles(LAYER, Accounts())) == 13 * 13 * 9


def test_one_channel_too_many_takes_another_tile() -> None:
    assert float(engine("superlip").cycles(LAYER._replace(cin=np.array(8.0)), Accounts())) == 2 * 13 * 13 * 9


def test_a_systolic_array_runs_unmapped_loops_one_after_the_other() -> None:
    cycles = engine("systolic").cycles(nest(2, 22, 9, 5, 14, 3, 3), Accounts())
    assert float(cycles) == 2 * (2 * 2 * 2) * 5 * 9


def test_winograd_computes_four_by_four_points_at_once_and_pays_for_strides_and_large_kernels() -> None:
    winograd = engine("winograd")
    assert float(winograd.cycles(nest(1, 8, 2, 8, 8, 3, 3), Accounts())) == 4
    assert float(winograd.cycles(nest(1, 8, 2, 8, 8, 3, 3), Accounts((2, 2)))) == 16
    assert float(winograd.cycles(nest(1, 8, 2, 8, 8, 5, 5), Accounts())) == 16
    assert float(winograd.cycles(nest(1, 8, 2, 8, 8, 1, 1), Accounts())) == 4


def test_the_slowest_of_load_products_and_store_decides_the_tile_engine_with_ports() -> None:
    wide = tile_engine_with_ports(LAYER, Ports(1e9, 1e9, 1e9))
    assert float(wide) == pytest.approx(2 * 13 * 13 * 9, rel=1e-3)  # one tile, and the fill
    narrow = tile_engine_with_ports(LAYER, Ports(1e9, 1e9, 1.0))
    assert float(narrow) == pytest.approx(2 * 64 * 13 * 13 + 13 * 13 * 9)


def test_seconds_are_cycles_over_the_clock_for_many_parts_at_once() -> None:
    found = engine("systolic").seconds(nest(1, np.array([11, 22, 23]), 8, 1, 13, 1, 1), Accounts(), 200e6)
    assert found.tolist() == [1 / 200e6, 2 / 200e6, 3 / 200e6]


def test_a_device_without_designs_is_bounded_by_its_peak_rates() -> None:
    design = roofline_design("gpu", 1e12, 1e11, 5e-6)
    large = design.seconds(nest(1, 512, 512, 64, 64, 3, 3), Accounts(), 1.0)
    assert float(large) == pytest.approx(2 * 512 * 512 * 64 * 64 * 9 / 1e12 + 5e-6)
    thin = design.seconds(nest(1, 1, 1, 1000, 1000, 1, 1), Accounts(), 1.0)
    assert float(thin) == pytest.approx((2 * 1e6 + 1) * 4 / 1e11 + 5e-6)


def test_an_unknown_design_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'systolic'"):
        engine("sistolic")


def test_an_engine_of_h2h_adds_load_and_products_of_each_tile() -> None:
    fast = FixedEngine("x", CONV, "", 100, 1, 100, 1, tile=(64, 7, 13, 13), input_tile=15 * 15)
    layer = WorkLayer("a", CONV, Loops(1, 64, 14, 13, 13, 3, 3))
    products = 2 * 13 * 13 * 64 * 7 * 9 / 100e9
    port = 512 * 100e6
    load, store = (64 * 7 * 9 + 7 * 225) * 32 / port, 64 * 13 * 13 * 32 / port
    assert fast.compute(layer) == pytest.approx(2 * (load + products) + store)


def test_products_and_recurrent_layers_take_the_slowest_of_load_products_and_store() -> None:
    fc = next(a for a in ACCELERATORS if a.name == "fc_11")
    layer = WorkLayer("a", FC, Loops(1, 100, 1000, 1, 1))
    load = (100 * 1000 + 1000) * 32 / (512 * 150e6)
    assert fc.compute(layer) == pytest.approx(max(load, 2 * 100 * 1000 / 1.2e9))
    lstm = next(a for a in ACCELERATORS if a.name == "lstm_12")
    steps = WorkLayer("b", LSTM, Loops(1, 4 * 64, 64 + 32, 1, 1), steps=7)
    assert lstm.compute(steps) == pytest.approx(7 * max(8 * 64 * 96 / 0.8e9, (4 * 64 * 96 + 96) * 32 / (256 * 150e6)))


def test_h2h_counts_four_times_the_output_area_as_input_and_the_repaired_model_what_is_read() -> None:
    layer = WorkLayer("a", CONV, Loops(1, 8, 4, 10, 10, 3, 3), stride=(1, 1), inputs=(10, 10), fresh=3)
    assert transfers(layer) == (8 * 4 * 9, 4 * 20 * 20, 0, 8 * 100)
    assert transfers(layer, repaired=True) == (8 * 4 * 9, 4 * 100, 3 * 100, 8 * 100)


def test_h2hs_engines_are_designs_with_the_same_seconds() -> None:
    workload = casia_surf_layers()
    platform = fabric(Platform.load("h2h"))
    assert [a.name for a in platform.accelerators] == [one.name for one in ACCELERATORS]
    for one, accelerator in zip(ACCELERATORS, platform.accelerators, strict=True):
        for layer in workload.layers[:14:13]:
            accounts = Accounts(layer.stride, layer.groups, layer.kind)
            found = float(accelerator.designs[0].seconds(nest(*layer.loops), accounts, accelerator.clock))
            assert found == (pytest.approx(one.compute(layer)) if one.kind == layer.kind else np.inf)


def test_a_model_is_planned_for_accelerators_of_unlike_kinds() -> None:
    plan = cx.Model.named("casia_surf").plan("h2h", budget="20min", baselines=["single"])
    assert plan.seconds is not None and plan.seconds <= plan.considered["single"]
    used = {part.device for group in plan.children for layer in group.children for part in layer.parts}
    assert all(name.startswith("cnn") for name in used)
