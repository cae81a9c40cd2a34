"""The applications of examples/ in plain NumPy, by hand-written threads, and through coexec on one and two devices.

Before: coexec's public names, examples/.  After: cli/.  One small file per application; harness.py measures them all.
"""
