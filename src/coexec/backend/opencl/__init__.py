"""The OpenCL backend: any OpenCL device, among them this machine's CPU through PoCL.

Before: base.py.  After: execute/, runtime.  Importing it loads no driver; making an OpenCLBackend does.
Which devices work: probe.py. How kernels are written in OpenCL C: source.py.
"""

from __future__ import annotations

from .backend import OpenCLBackend

__all__ = ["OpenCLBackend"]
