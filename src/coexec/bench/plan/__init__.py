"""The benchmark `plan`: whether more devices ever make a program slower, in simulation, where times are exact.

Before: backend/simulated/.  After: bench/__init__.py.
"""
