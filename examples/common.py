"""What the examples share: their arguments, a clock, and a figure of matplotlib. It is no example itself."""

import argparse
import time
from contextlib import contextmanager
from importlib.util import find_spec


def arguments(text, **sizes):
    """Return what the command line says: the sizes, by name with their defaults, --devices and --picture."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    for name, default in sizes.items():
        parser.add_argument(name, nargs="?", type=int, default=default, help=f"{default:,} unless said")
    parser.add_argument("--devices", help="as in cpu:0,opencl:0@1; all cores unless said")
    parser.add_argument("--picture", metavar="FILE", help="draw the result with matplotlib, as .png, .svg or .pdf")
    given = parser.parse_args()
    if given.picture and find_spec("matplotlib") is None:  # said before anything is computed
        parser.error("--picture needs matplotlib: pip install 'coexec[plot]'")
    return given


class timer:  # noqa: N801 - reads like a function
    """A clock: `with timer() as took:` leaves the seconds that the block took in `took.seconds`."""

    def __enter__(self):
        self._begin = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self._begin


@contextmanager
def figure(path, size=(7, 5)):
    """Give the axes of a figure, and write it to a file when they are filled."""
    from matplotlib.figure import Figure

    made = Figure(figsize=size, layout="constrained")  # inches
    yield made.subplots()
    made.savefig(path, dpi=100)
