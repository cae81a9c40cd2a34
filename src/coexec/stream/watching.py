"""Who watches a stream: from its beginning, with each item that is over, to its end.

Before: stream/statistics.py, stream/deployment.py, stream/window.py.  After: stream/pipeline.py.  Decides nothing.
"""

from __future__ import annotations

from ..joules.meter import EnergyMeter
from ..joules.modelled import devices_now
from ..runtime import Runtime
from .deployment import Deployment
from .item import driver_of
from .progress import ProgressBar
from .sources import ItemSource
from .statistics import StreamWatch
from .window import Window


def watching(runtime: Runtime) -> StreamWatch:
    """Return what watches a stream of a runtime."""
    driver = driver_of(runtime)
    return StreamWatch(driver.recorder.clock, runtime.platform, driver.pump.drain, devices=devices_now(driver))


def over(watch: StreamWatch, bar: ProgressBar) -> None:
    """Count an item that is over."""
    watch.over()
    bar.step()


def ended(
    name: str,
    runtime: Runtime,
    watch: StreamWatch,
    window: Window,
    source: ItemSource,
    bar: ProgressBar,
    deployment: Deployment,
    meter: EnergyMeter,
) -> None:
    """End everything that was begun for a stream, and tell of it."""
    deployment.finish_planning()
    watch.ended, watch.again, watch.dropped = watch.clock(), window.again, source.dropped
    bar.close()
    if not runtime.closed:
        pump = driver_of(runtime).pump
        pump.drain()
        pump.ignore(watch)
    meter.end()
    if deployment.point is not None and not runtime.closed:
        driver_of(runtime).recorder.stream({"name": name, **watch.table(deployment.point, deployment.route, 0, meter)})
