"""The parent of fuzzing: hands batches to worker processes, ends those that hang, has failures shrunk, counts, reports."""

from __future__ import annotations

import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from .mixes import BATCH

SHRINK_SECONDS = 60.0
ALIKE = 3  # failures of one signature that are shrunk: wrong results may have more causes than one


class Worker:
    """One process that runs batches."""

    def __init__(self, number: int, messages: queue.Queue[tuple[Worker, dict[str, Any]]], log: TextIO) -> None:
        self.number = number
        self.heard = time.monotonic()
        self.now: dict[str, Any] = {}  # the program that it runs
        self.mix, self.next, self.left = "", 0, 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | {"COEXEC_STORE": "off"},
        )
        threading.Thread(target=self._listen, args=(messages,), daemon=True).start()

    def _listen(self, messages: queue.Queue[tuple[Worker, dict[str, Any]]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                messages.put((self, json.loads(line)))
        messages.put((self, {"gone": self.process.wait()}))

    def give(self, mix: str, first: int, count: int) -> None:
        """Hand over consecutive seeds."""
        assert self.process.stdin is not None
        self.mix, self.next, self.left = mix, first, count
        self.heard = time.monotonic()
        self.process.stdin.write(f"{mix} {first} {count}\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """End the process: it hangs, or is not needed."""
        self.process.kill()
        self.process.wait()


class Fleet:
    """All of it."""

    def __init__(self, mixes: list[str], folder: Path, *, seed: int | None = None, patience: float = 90.0) -> None:
        self.mixes, self.folder, self.patience = mixes, folder, patience
        self.seed = secrets.randbelow(10**9) * BATCH if seed is None else seed
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)  # by mix and outcome
        self.failures: dict[str, list[str]] = defaultdict(list)  # by signature: "mix seed"
        self.begun = time.monotonic()
        self._messages: queue.Queue[tuple[Worker, dict[str, Any]]] = queue.Queue()
        self._handed = 0
        self._shrinking: list[tuple[subprocess.Popen[str], float]] = []
        self._waiting: list[tuple[str, int, Path]] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._log = (folder / "workers.log").open("a")

    def run(self, *, jobs: int, seconds: float, programs: int = 0) -> None:
        """Run until the time is over, or so many programs are done."""
        self._programs = programs
        self._say(f"seed {self.seed}, mixes: {', '.join(self.mixes)}; reproducers go to {self.folder}")
        workers = [Worker(i, self._messages, self._log) for i in range(jobs)]
        for worker in workers:
            self._hand(worker)
        told = time.monotonic()
        end = self.begun + seconds if seconds else float("inf")
        while time.monotonic() < end and not (programs and self.total >= programs):
            try:
                worker, message = self._messages.get(timeout=1.0)
                if worker in workers:
                    self._hear(workers, worker, message)
            except queue.Empty:
                pass
            self._watch(workers)
            self._shrink_on()
            if time.monotonic() - told > 10:
                told = time.monotonic()
                self._say(self.progress())
                self.write()
        for worker in workers:
            worker.end()
        self._finish_shrinking()
        self.write()
        self._say(self.progress())
        for signature, found in self.failures.items():
            self._say(f"  {signature}: {len(found)} times, first {found[0]}")

    @property
    def total(self) -> int:
        """Programs so far."""
        return sum(sum(outcomes.values()) for outcomes in self.counts.values())

    def progress(self) -> str:
        """Return one line on how far it is."""
        seconds = time.monotonic() - self.begun
        per_mix = ", ".join(f"{mix} {sum(outcomes.values())}" for mix, outcomes in self.counts.items())
        failed = sum(map(len, self.failures.values()))
        return (
            f"{seconds:.0f} s: {self.total} programs ({self.total / seconds:.1f}/s), {failed} failed in "
            f"{len(self.failures)} ways; {per_mix}"
        )

    def _hand(self, worker: Worker) -> None:
        count = self._programs or BATCH
        number = self._handed
        mix = self.mixes[number % len(self.mixes)]
        worker.give(mix, self.seed + number // len(self.mixes) * BATCH, count)
        self._handed += 1

    def _hear(self, workers: list[Worker], worker: Worker, message: dict[str, Any]) -> None:
        worker.heard = time.monotonic()
        if "ready" in message:
            self._hand(worker)
        elif "gone" in message:
            self._failed(worker, f"the process died with {message['gone']}", "see workers.log")
            self._replace(workers, worker)
        elif "done" in message:
            self.counts[message["mix"]][message["signature"]] += 1
            if message["signature"] not in ("right", "refused"):
                self._note(message["signature"], message["mix"], message["done"], message["said"])
        else:
            worker.now = message

    def _watch(self, workers: list[Worker]) -> None:
        for worker in list(workers):
            if time.monotonic() - worker.heard > self.patience:
                worker.process.send_signal(signal.SIGUSR1)  # writes where every thread stands
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(1.0)
                self._failed(worker, "hangs", "where every thread stood is in workers.log")
                self._replace(workers, worker)

    def _failed(self, worker: Worker, signature: str, said: str) -> None:
        mix, seed = worker.now.get("mix", worker.mix), worker.now.get("seed", worker.next)
        self.counts[mix][signature] += 1
        self._note(signature, mix, seed, said)

    def _replace(self, workers: list[Worker], worker: Worker) -> None:
        worker.end()
        workers.remove(worker)
        fresh = Worker(worker.number, self._messages, self._log)
        workers.append(fresh)
        self._hand(fresh)

    def _note(self, signature: str, mix: str, seed: int, said: str) -> None:
        self.failures[signature].append(f"{mix} {seed}")
        if len(self.failures[signature]) <= ALIKE:
            name = "".join(c if c.isalnum() else "-" for c in f"{mix}-{seed}")
            self._say(f"FAILED {mix!r} seed {seed}: {signature}\n{said[:600]}")
            self._waiting.append((mix, seed, self.folder / f"{name}.py"))

    def _shrink_on(self) -> None:
        """Let one failure at a time be shrunk, by a process that may hang as its program does."""
        for process, end in list(self._shrinking):
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                process.wait()
                self._shrinking.remove((process, end))
        if self._waiting and not self._shrinking:
            mix, seed, file = self._waiting.pop(0)
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.shrinking", mix, str(seed), str(file), str(SHRINK_SECONDS)],
                stderr=self._log,
                text=True,
                env=os.environ | {"COEXEC_STORE": "off"},
            )
            self._shrinking.append((process, time.monotonic() + SHRINK_SECONDS + self.patience))

    def _finish_shrinking(self) -> None:
        while self._waiting or self._shrinking:
            self._shrink_on()
            for process, _ in self._shrinking:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)

    def write(self) -> None:
        """Write summary.json."""
        summary = {
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.begun, 1),
            "programs": self.total,
            "mixes": {mix: dict(outcomes) for mix, outcomes in self.counts.items()},
            "failures": dict(self.failures),
        }
        (self.folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")

    def _say(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
