"""The picture of the scale benchmark: speed-up over the number of simulated GPUs, beside the ideal.

Before: scale.py, observe/scaling.py.  After: cli/ through bench.PICTURES.  Knows the benchmark's result, not how it came.
"""

from __future__ import annotations

from ...observe.scaling import scaling_svg
from ..measure import Data


def picture(result: Data) -> str:
    """Return strong scaling as SVG: with one process for each node, and with one for all of them."""
    scale = result["scale"]
    cases = scale["cases"]
    most = cases[-1]["gpus"]
    ways = {
        "one process for each node of four GPUs": cases,
        "one process for all GPUs": [{"gpus": case["gpus"], **case["one_process"]} for case in cases],
    }
    sweeps = [
        {"what": "devices", "name": f"Strong scaling, {name}", "points": _points(of)} for name, of in ways.items()
    ]
    return scaling_svg(sweeps, f"wave_sim on up to {most} simulated GPUs ({scale['platform']})")


def _points(cases: list[Data]) -> list[Data]:
    return [
        {
            "devices": case["gpus"],
            "value": f"{case['gpus']} GPUs",
            "seconds": case["virtual_s"],
            "speed_up": case["speedup"],
            "efficiency": case["efficiency"],
            "joules": None,
            "longest": f"{case['instructions']:,} instructions",
        }
        for case in cases
    ]
