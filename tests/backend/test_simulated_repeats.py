"""The same program gives the same simulated run, whatever this machine does meanwhile."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import Scenario
from tests.backend.simulated_parts import arrays, backend_of, make, opened


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def heat(u, out, k):
    out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] - 2 * u[1:-1, 1:-1])


@cx.kernel(split=0, over="u", u=cx.read, total=cx.reduce("sum"))
def add_up(u, total):
    total += u.sum()


def outcome(platform: str, policy: str) -> tuple[float, int, float]:
    noise = Scenario(noise={"*": 0.1}, seed=3)
    with cx.Runtime(platform=platform, policy=policy, scenario=noise, store="off", diagnostics="off") as runtime:
        u, v, total = cx.zeros((4000, 4000)), cx.zeros((4000, 4000)), cx.zeros(())
        for step in range(10):
            heat(u, v, 0.1)
            u, v = v, u
            w = np.sqrt(u) * 2 + 1  # a chain that is held back
            if step % 5 == 4:
                add_up(w, total)
                cx.wait()
        cx.wait()
        simulation = backend_of(runtime)
        return simulation.now, runtime.instructions, simulation.energy().total


@pytest.mark.parametrize("policy", ["static", "dynamic", "auto", "even"])
@pytest.mark.parametrize("platform", ["workstation", "a100x4"])
def test_a_run_repeats_to_the_last_bit_under_every_policy(platform: str, policy: str) -> None:
    assert outcome(platform, policy) == outcome(platform, policy)


def test_threads_that_wait_side_by_side_move_time_together() -> None:
    text = """
[[memory]]
name = "host"
[[device]]
name = "cpu"
kind = "cpu"
memory = "host"
flops = 1e9
"""
    with opened(text) as runtime:

        def program() -> None:
            for y in arrays(20):
                make(y, 0.5).wait()

        threads = [threading.Thread(target=program) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert not any(thread.is_alive() for thread in threads)
        assert backend_of(runtime).now == pytest.approx(40.0)
