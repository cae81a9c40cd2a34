"""What happened in a run: trace files, reports and pictures.

Before: execute/ (its records).  After: assembly.py, pump.py, cli/.  Knows only the rows of a trace, never a device or a thread.
"""
