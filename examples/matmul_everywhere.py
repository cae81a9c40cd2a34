"""Multiply two matrices on every device at once: ask for the plan, run it, and compare with the best device alone.

Run it with: python examples/matmul_everywhere.py [SIDE] [DEVICES], e.g. 2048 cpu:0,opencl:0@1
"""

import sys
import time

import numpy as np

import coexec as cx


def seconds(multiply, *arrays):
    begin = time.perf_counter()
    multiply(*arrays)
    cx.wait()
    return time.perf_counter() - begin


def main(side=1024, devices="cpu", turns=9):
    random = np.random.default_rng(1)
    left, right = random.random((2, side, side), dtype=np.float32)

    with cx.Runtime(devices=devices) as runtime:
        a, b, out = cx.array(left), cx.array(right), cx.empty((side, side), np.float32)
        ways = {d.name: cx.matmul.using(devices=d.name) for d in runtime.platform.devices if not d.wide}
        ways["all"] = cx.matmul
        for _ in range(4):  # every run is measured, and the next plan is better for it
            for multiply in ways.values():
                seconds(multiply, a, b, out)
        turn = [{way: seconds(multiply, a, b, out) for way, multiply in ways.items()} for _ in range(turns)]
        took = {way: sorted(t[way] for t in turn)[turns // 2] * 1e3 for way in ways}
        plan = cx.matmul.plan(a, b, out)
        result = np.asarray(out)

    assert np.allclose(result, left @ right, rtol=1e-4)
    together = took.pop("all")
    best = min(took, key=took.get)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in plan.shares.items())
    print(
        f"{side} x {side}: {together:.2f} ms with {shares}; {best} alone takes {took[best]:.2f} ms, "
        f"{took[best] / together:.2f} times as long"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:3])
