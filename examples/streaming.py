"""What the examples of streams share: compute one by one and as a stream, compare with NumPy, tell the gain, draw the timeline.

The examples import it; it is no example itself.
"""

import argparse
import time

import numpy as np

import coexec as cx
from coexec.observe.pictures.gantt import gantt_svg


def timed(function):
    """Return what a function returns, and the seconds that it took."""
    begin = time.perf_counter()
    return function(), time.perf_counter() - begin


def shown(what, function, constants, items, expected, timeline="", tolerance=1e-3):
    """Stream `items` through `function`, check the results against `expected(item)`, and print the gain over one by one."""
    with cx.Runtime(trace=timeline + ".jsonl" if timeline else None):
        pipe = cx.Pipeline(function, **constants)
        pipe.plan(items[0])
        one_by_one, slow = timed(lambda: [np.asarray(pipe(item)) for item in items])
        streamed, quick = timed(lambda: pipe.map(items))
        stages = len(pipe.stats()["stages"])
    if timeline:
        gantt_svg(cx.Trace.load(timeline + ".jsonl"), timeline)
    for item, first, second in zip(items, one_by_one, streamed, strict=True):
        plain = expected(item)
        assert np.allclose(first, plain, rtol=1e-3, atol=tolerance)
        assert np.allclose(second, plain, rtol=1e-3, atol=tolerance)
    count = len(items)
    print(
        f"{what}: {count / quick:.1f} items/s in {stages} stage{'s' * (stages != 1)}, {count / slow:.1f} one by one, "
        f"gain {slow / quick:.2f}"
    )


def arguments(text, **given):
    """Return what the command line says, by name: numbers with their defaults, words with what they may be, the first unless said."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    for name, default in given.items():
        if isinstance(default, int):
            parser.add_argument(name, nargs="?", type=_number, default=default, help=f"{default:,} unless said")
        else:
            parser.add_argument(name, nargs="?", choices=default, default=default[0], help=f"{default[0]} unless said")
    parser.add_argument("--timeline", metavar="FILE.svg", default="", help="draw what ran when on each device")
    return vars(parser.parse_args())


def _number(text):
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)
