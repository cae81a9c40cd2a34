"""The store's file under several processes, and under processes that are killed while they write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from coexec.predict.store import Store
from tests.predict.store_files import is_intact, listed, marked, sample
from tests.scripts import ROOT

PROCESSES = 4
HEAD = """
import os, signal, sys, warnings
from pathlib import Path
from coexec.predict import store as store_module, store_file, store_tables
from coexec.predict.sample import Sample
from coexec.predict.store import Store

warnings.simplefilter("error")
store_module.WAIT = 60.0  # nobody may give up because the machine is busy
path = Path(sys.argv[1])
store = Store(path)

def sample(key, *seconds):
    return Sample("float32", key, (1.0,), seconds or (1.0,), False)
"""


def start(text: str, *args: object) -> subprocess.Popen[str]:
    """Start a script that can be talked to by pipes."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + dedent(text), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def run_together(text: str, path: Path) -> None:
    """Run a script in several processes, each with its number, that begin at the same time."""
    ready = 'print("ready", flush=True)\ninput()\n'
    children = [start(ready + dedent(text), path, who) for who in range(PROCESSES)]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
    assert [child.returncode for child in children] == [0] * PROCESSES


def test_processes_that_write_at_the_same_time_lose_nothing(path: Path) -> None:
    text = """
        who = sys.argv[2]
        for i in range(30):
            store.save({"shared": [sample(f"{who} {i}")], f"m{who}": [sample("one", float(i))]})
        store.save({"common": [sample("one", float(who))]})
        store.close()
    """
    run_together(text, path)
    store = Store(path)
    assert {s.key for s in store.load("shared")} == {f"{who} {i}" for who in range(4) for i in range(30)}
    assert [store.load(f"m{who}")[0].seconds for who in range(4)] == [tuple(map(float, range(29, 22, -1)))] * 4
    assert set(store.load("common")[0].seconds) == {0.0, 1.0, 2.0, 3.0}
    assert is_intact(path) and listed(path) == [path.name]


def test_a_killed_writer_leaves_a_file_with_all_that_it_had_saved(path: Path) -> None:
    text = """
        first = int(sys.argv[2])
        for i in range(first, first + 10_000):
            store.save({"m": [sample(str(j)) for j in (i, 0, 1, 2, 3)]})
            print(i, flush=True)
    """
    for round in range(4):
        child = start(text, path, 100 * (round + 1))
        assert child.stdout is not None
        saved = [child.stdout.readline().strip() for _ in range(3 + 2 * round)]
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert {*saved, "0", "1", "2", "3"} <= {s.key for s in Store(path).load("m")}
        assert is_intact(path)


def test_what_a_killed_writer_had_half_written_is_undone(path: Path) -> None:
    text = """
        store.save({"m": [sample("good")]})
        def write(file):
            file.execute("PRAGMA cache_size=1")
            for i in range(2000):
                store_tables.write_samples(file, {f"n{i}": {("k", "half" * 50, False): sample("half" * 50)}})
            os.kill(os.getpid(), signal.SIGKILL)
        store_file.use(path, write, writing=True, wait=1.0, empty=None, say=print)
    """
    child = start(text, path)
    child.communicate()
    assert child.returncode == -signal.SIGKILL and f"{path.name}-journal" in listed(path)
    size = path.stat().st_size
    said: list[str] = []
    store = Store(path, warn=said.append)
    assert store.load("m") == [sample("good")] and len(store.models()) == 1
    assert path.stat().st_size < size and said == [] and is_intact(path) and listed(path) == [path.name]


def test_processes_that_find_a_damaged_file_set_it_aside_once(path: Path) -> None:
    path.write_bytes(marked(b"this is no database" * 100))
    text = """
        warnings.simplefilter("ignore")
        store.save({"m": [sample(sys.argv[2])]})
        store.close()
    """
    run_together(text, path)
    assert {s.key for s in Store(path).load("m")} == {"0", "1", "2", "3"}
    assert listed(path) == [path.name, f"{path.name}.damaged-1"]
