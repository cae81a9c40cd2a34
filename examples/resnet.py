"""A residual network on every device: planned for accelerators that are not here, then for those that are, and run.

python examples/resnet.py [IMAGE]
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np

import coexec as cx


def main() -> None:
    image = int(sys.argv[1]) if len(sys.argv) > 1 else 224
    model = cx.Model.named("resnet18", image=image)
    plan = model.plan("f1.16xlarge", budget="5min", baselines=["cp", "all"])
    print(f"{model} on eight FPGAs: {plan.why}")
    x = np.random.default_rng(0).standard_normal((1, 3, image, image)).astype(np.float32)
    whole = np.asarray(model(x))
    here = model.plan()
    begun = perf_counter()
    planned = np.asarray(model(x, plan=here))
    print(f"here: {perf_counter() - begun:.3f} s, predicted {here.seconds:.3f} s; {len(here.children)} set(s)")
    assert np.allclose(whole, planned, rtol=1e-3, atol=1e-4 * np.abs(whole).max())


if __name__ == "__main__":
    main()
