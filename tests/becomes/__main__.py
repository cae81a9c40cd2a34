"""Record what programs become on every mix of devices, and compare two records.

python -m tests.becomes record --out FILE --programs 500 --jobs 2 --mix cores
python -m tests.becomes compare OLD NEW
python -m tests.becomes tell "random 13/cores"

The coexec that is recorded is the one that Python imports: PYTHONPATH=TREE/src:. for another tree.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .comparing import report
from .recording import Recording, load, told


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _record(chosen: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from .programs import NAMES, names_of

    mixes = NAMES if chosen.mix == "all" else [name.strip() for name in chosen.mix.split(",")]
    if unknown := [name for name in mixes if name not in NAMES]:
        parser.error(f"no mix {', '.join(unknown)}; there are {', '.join(NAMES)}")
    recording = Recording(names_of(range(chosen.first, chosen.programs), mixes, examples=not chosen.no_examples))
    recording.run(chosen.jobs, _say)
    recording.write(chosen.out)
    return 1 if recording.lost else 0


def main() -> int:
    """Return 0 if everything was recorded, or nothing differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.becomes", description="What programs become.")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--out", type=Path, required=True, help="file of JSON lines")
    recording.add_argument("--programs", type=int, default=500, help="random programs have the seeds below this")
    recording.add_argument("--first", type=int, default=0, help="the first of these seeds")
    recording.add_argument("--jobs", type=int, default=1, help="processes side by side")
    recording.add_argument("--mix", default="all", help="mixes of devices, separated by commas")
    recording.add_argument("--no-examples", action="store_true", help="random programs only")
    comparing = commands.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    telling = commands.add_parser("tell")
    telling.add_argument("program", help='such as "random 13/cores" or "example heat/mixed"')
    chosen = parser.parse_args()
    if chosen.command == "record":
        return _record(chosen, recording)
    if chosen.command == "tell":
        _say(told(chosen.program))
        return 0
    text, same = report(load(chosen.old), load(chosen.new))
    _say(text)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
