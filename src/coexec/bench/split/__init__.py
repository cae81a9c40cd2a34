"""The benchmark of one task divided over unlike devices, against each device alone and against what all could do.

Before: ops/, calibrate/.  After: bench.BENCHMARKS.  cases.py says what is computed, the ways how, harness.py compares.
"""
