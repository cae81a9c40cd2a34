"""`python -m coexec`: the command line where no script was installed.

Before: cli/.  After: nothing.
"""

from .cli import main

if __name__ == "__main__":
    main()
