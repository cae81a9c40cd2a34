"""The version, in one place: the build backend reads it from here.

Before: nothing.  After: everything that reports it.  Knows no other module.
"""

__version__ = "0.1.0"
