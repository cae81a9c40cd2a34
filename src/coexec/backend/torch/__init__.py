"""The torch backend: Python bodies on torch tensors, on this machine's CPU and on whatever accelerators torch drives.

Before: base.py.  After: execute/, runtime.  Importing it does not import torch; driver.py says what is there.
How bodies are called: body.py. What `xp` is there: namespace.py. When a body is trusted: check.py.
"""
