"""ONNX's operators as coexec calls.

Before: ops/, models/values.py.  After: models/running.py.  Knows the meaning of operators, no file format and no plan.
"""
