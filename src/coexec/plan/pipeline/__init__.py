"""Plans for pipelines: a function of one item, cut into stages on groups of unlike devices, for a stream of items.

Before: errors.py.  After: what runs streams.  Pure: numbers in, plans out; no array, clock, thread or device.
"""

from .front import PipelineFront
from .judge import judged
from .planning import plan_on_class, plan_pipeline
from .point import PipelinePoint, PipelineStage
from .system import DeviceClass, Hop, StreamSystem
from .workload import StreamKernel, StreamValue, StreamWork

__all__ = [
    "DeviceClass",
    "Hop",
    "PipelineFront",
    "PipelinePoint",
    "PipelineStage",
    "StreamKernel",
    "StreamSystem",
    "StreamValue",
    "StreamWork",
    "judged",
    "plan_on_class",
    "plan_pipeline",
]
