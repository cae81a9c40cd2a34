"""Record programs in one process: names of programs come in, one per line, and records go out.

python -m tests.becomes.worker             one line of JSON per name
python -m tests.becomes.worker --told      instead, all that became of each, for people
"""

from __future__ import annotations

import json
import sys

from . import tap


def main() -> None:
    """Serve the parent until it closes the pipe."""
    tap.freeze()
    tap.prepare()
    from .programs import record_of, told  # not before: coexec's modules keep the clocks they find

    for line in sys.stdin:
        name = line.rstrip("\n")
        lines = list(told(name)) if "--told" in sys.argv else [json.dumps(record_of(name), separators=(",", ":"))]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
