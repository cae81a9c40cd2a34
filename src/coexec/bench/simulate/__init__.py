"""What simulations are worth: the present machine simulated and measured, and machines of many devices.

Before: backend/simulated/, the programs of apps/ and dag/.  After: harness.py is in the table of benchmarks.
"""
