"""What happened in a run: trace files, reports and pictures.

Before: execute/ (its records).  After: runtime.py, cli/.  Knows only the rows of a trace, never a device or a thread.
"""
