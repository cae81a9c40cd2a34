"""The six GrCUDA benchmarks, each run one kernel after another, through coexec, and by hand-written host code.

Before: coexec's public names.  After: cli/.  One file per program; harness.py measures them all.
"""
