from __future__ import annotations

from dataclasses import replace

import pytest

from coexec.machine.platform import Device
from coexec.plan.division.divider import _overlapping
from coexec.plan.division.make_offers import copies_aside
from coexec.plan.division.offers import Curve, Offer, finish_times
from coexec.plan.division.pieces import pieces, seconds_in_pieces


def test_one_piece_takes_what_the_division_says() -> None:
    offer = Offer("gpu", Curve.line(2.0, 1.0), fixed_in=3.0, in_per_row=0.5, out_per_row=0.25, fixed_out=0.5, wait=9.0)
    assert seconds_in_pieces(offer, 40, 1) == finish_times([offer], (0, 40))[0].finish


def test_copies_and_compute_of_equal_length_overlap_until_launches_cost_more() -> None:
    offer = Offer("gpu", Curve.line(1.0, 0.0), in_per_row=1.0)
    assert [seconds_in_pieces(offer, 100, count) for count in (1, 2, 4)] == [200.0, 150.0, 125.0]
    assert pieces(offer, 100) > pieces(offer._replace(compute=Curve.line(1.0, 10.0)), 100) > 1


def test_without_copies_a_share_stays_whole() -> None:
    assert pieces(Offer("cpu", Curve.line(1.0, 0.5)), 1000) == 1


def test_a_share_that_outgrows_the_cache_is_cut_to_fit() -> None:
    blocked = Curve([0, 32, 33, 320], [0.0, 32.0, 33.0, 33.0 + 287 * 2.3])
    count = pieces(Offer("cpu", blocked), 320)
    assert 320 / count <= 33
    assert seconds_in_pieces(Offer("cpu", blocked), 320, count) == pytest.approx(320.0, rel=0.01)


def test_pieces_are_no_smaller_than_a_granule_or_the_least_useful_share() -> None:
    offer = Offer("gpu", Curve.line(1.0), in_per_row=1.0, granule=16)
    assert pieces(offer, 40) == 2
    assert pieces(offer._replace(granule=1, least=30), 40) == 1
    assert pieces(offer, 0) == 1


def test_rows_that_are_there_need_no_overlap() -> None:
    offer = Offer("gpu", Curve.line(1.0, 0.01), in_per_row=1.0, there=(0, 100))
    assert pieces(offer, 100) == 1


def test_a_processors_driver_copies_on_the_cores_that_compute_so_its_share_stays_whole() -> None:
    offer = Offer("opencl:0", Curve.line(1.0), in_per_row=1.0)
    assert len(_overlapping(offer, 10, 110)) > 2
    assert _overlapping(offer._replace(aside=False), 10, 110) == [10, 110]


def test_who_moves_copies_is_told_by_the_cores_of_a_device_that_is_driven() -> None:
    gpu = Device("opencl:0", "opencl", 2)
    assert copies_aside(gpu) and not copies_aside(replace(gpu, cores=(1,)))
    assert copies_aside(replace(gpu, kind="simulated", cores=(1,)))  # what such a machine does is written in its file
