"""Calibration: measure this machine once, so that calls that were never made can be predicted.

Before: ops/, runtime.py.  After: the package's own namespace, cli/.  Measures through the normal path.
"""

from .calibration import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
