"""coexec runs one Python array program on every device at once.

Before: every stage.  After: the user's program.  Knows only which names are public.
"""

from ._version import __version__

__all__ = ["__version__"]
