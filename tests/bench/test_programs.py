"""Every program computes what plain NumPy computes, in every way and on every mix of devices."""

from __future__ import annotations

import numpy as np
import pytest

from coexec.bench.dag.hand import TwoThreads
from coexec.bench.dag.opencl import ByHandOpenCL, PlainOpenCL
from coexec.bench.dag.program import dependencies
from coexec.bench.dag.schedule import MeasuredCosts, best_schedule
from coexec.bench.dag.ways import DagThroughCoexec, DagWay, Plain
from coexec.machine.cores import available_cores
from tests.bench.small import MIX_NAMES, PROGRAMS

CORES = available_cores()
every_program = pytest.mark.parametrize("name", PROGRAMS)


def check(way: DagWay, name: str) -> None:
    """Run a way three times; each time it must give the expected results, and the elements the host reads."""
    program = PROGRAMS[name]
    wanted = program.expected(program.arrays)
    try:
        for _ in range(3):
            way.prepare()
            read = way.run()
            results = way.results()
            assert program.wrong(results, wanted) == []
            assert read == [float(results[array][index]) for array, index in program.reads]
    finally:
        way.close()


def alternating(name: str, devices: tuple[str, str]) -> MeasuredCosts:
    """Return costs that send every other kernel to the other device, so that much must cross."""
    labels = PROGRAMS[name].labels()
    kernels = {
        (label, device): 1.0 + 9 * ((i + d) % 2) for i, label in enumerate(labels) for d, device in enumerate(devices)
    }
    return MeasuredCosts(kernels, {}, devices)


@every_program
def test_plain_calls_give_what_numpy_gives(name):
    check(Plain(PROGRAMS[name]), name)


@every_program
@pytest.mark.parametrize("mix", MIX_NAMES)
def test_coexec_gives_what_numpy_gives(name, mix):
    check(DagThroughCoexec(PROGRAMS[name], MIX_NAMES[mix].devices, MIX_NAMES[mix].limits), name)


@every_program
@pytest.mark.parametrize("mix", MIX_NAMES)
def test_coexec_gives_it_also_when_kernels_go_to_the_devices_in_turn(name, mix):
    check(
        DagThroughCoexec(PROGRAMS[name], MIX_NAMES[mix].devices, MIX_NAMES[mix].limits, placement="round-robin"), name
    )


@every_program
def test_two_threads_by_hand_give_what_numpy_gives(name):
    schedule = best_schedule(PROGRAMS[name], alternating(name, ("cpu:0", "cpu:1")))
    check(TwoThreads(PROGRAMS[name], schedule, (CORES[0], CORES[-1])), name)


@every_program
@pytest.mark.parametrize("shared", [False, True])
def test_opencl_alone_gives_what_numpy_gives(name, shared):
    check(PlainOpenCL(PROGRAMS[name], CORES[-1:], shared=shared), name)


@every_program
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("first", ["cpu", "opencl"])
def test_numpy_beside_opencl_by_hand_gives_what_numpy_gives(name, shared, first):
    devices = ("cpu", "opencl")
    costs = alternating(name, devices if first == "cpu" else devices[::-1])
    schedule = best_schedule(PROGRAMS[name], costs._replace(devices=devices))
    check(ByHandOpenCL(PROGRAMS[name], schedule, CORES[0], CORES[-1:], shared=shared), name)


EDGES = {"VEC": 2, "B&S": 0, "IMG": 11, "ML": 9, "DL": 7}
"""Between kernels, without those that follow from others."""


@pytest.mark.parametrize("name", EDGES)
def test_the_graph_has_the_edges_of_the_original(name):
    parents = dependencies(PROGRAMS[name].steps)
    ancestors: list[set[int]] = []
    for mine in parents:
        ancestors.append(set(mine).union(*(ancestors[p] for p in mine)))
    needed = [p for mine in parents for p in mine if not any(p in ancestors[other] for other in mine)]
    assert len(needed) == EDGES[name]


def test_hits_iterates_five_times_with_six_kernels_and_two_host_writes():
    program = PROGRAMS["HITS"]
    assert len(program.calls()) == 30 and len(program.steps) == 40
    assert program.labels() == ["A1", "H1", "A2", "H2", "A3", "H3"]


def test_a_wrong_result_is_named():
    program = PROGRAMS["VEC"]
    wanted = program.expected(program.arrays)
    assert program.wrong({"res": wanted["res"] * 1.01}, wanted) == ["res"]
    assert program.wrong({"res": np.full(1, np.nan)}, wanted) == ["res"]
    assert program.wrong({"res": np.zeros(2)}, wanted) == ["res"]


def test_images_of_dl_must_divide_into_their_layers():
    from coexec.bench.dag import dl

    with pytest.raises(ValueError, match="multiple of 20 pixels on each side, not 30"):
        dl.make(30)
