"""What was measured, kept between runs: one SQLite file per machine, safe under several processes, never fatal.

Before: predict/store_file.py, predict/store_tables.py.  After: assembly.py, cli/.  Knows keys; no kernel, no device.
"""

from __future__ import annotations

import hashlib
import os
import platform
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..errors import CoexecWarning
from ..machine.cores import cpu_model
from . import store_file, store_tables
from .sample import Sample, merged
from .store_file import VERSION, Trouble
from .store_tables import Figures, Key, ModelInfo

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
VARIABLE = "COEXEC_STORE"
OFF = "off"
WAIT = 2.0
"""Seconds to wait for another process, in all, before the file counts as locked."""
LINKS, RATES, LAGS, WAITS = "link", "rate", "lag", "wait"

# Whoever holds this uses a file, so at most one connection is open in a process, and none while it forks: SQLite's locks
# belong to a process, and a child must inherit neither them nor an open transaction.
_using = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_using.acquire, after_in_parent=_using.release, after_in_child=_using.release)


def machine_id() -> str:
    """Return a name for this kind of machine; two machines of one kind share it, and so may a network folder."""
    facts = f"{cpu_model()}|{os.cpu_count()}|{platform.machine()}"
    return hashlib.sha256(facts.encode()).hexdigest()[:12]


def default_path(chosen: str | None = None) -> Path | None:
    """Return the file to keep measurements in: as chosen (or as COEXEC_STORE says), else one per machine; None = none."""
    chosen = os.environ.get(VARIABLE, "") if chosen is None else chosen
    if chosen.strip().lower() == OFF:
        return None
    if chosen.strip():
        return Path(os.path.expanduser(chosen.strip()))  # noqa: PTH111  # Path.expanduser raises where there is no home
    from platformdirs import user_cache_dir

    # The version is part of the name: two releases side by side must not set aside each other's file for ever.
    return Path(user_cache_dir("coexec", appauthor=False), f"{machine_id()}-v{VERSION}.sqlite")


def _warn(message: str) -> None:
    warnings.warn(message, CoexecWarning, stacklevel=2)


class Store:
    """Measurements that outlive the process. None as path remembers nothing.

    Trouble with the file is one warning: from then on what cannot be written is kept in memory, and each later save
    tries again without waiting. Any thread may use it; each use opens the file, and closes it again.
    """

    def __init__(self, path: Path | None, *, warn: Callable[[str], None] = _warn) -> None:
        self.path = path
        self._ours = path is not None and path == default_path("")
        self._warn = warn
        self._said: set[str] = set()
        self._unsaid: list[str] = []
        self._wait = WAIT
        self._tidy = False
        self._samples: dict[str, dict[Key, Sample]] = {}  # not in the file yet
        self._figures: dict[str, Figures] = {}

    # Samples ------------------------------------------------------------------------------------------------------

    def load(self, model: str) -> list[Sample]:
        """Return the samples of a model, the newest first."""
        if not store_tables.is_text(model):
            return []
        with _using:
            nothing: tuple[list[Sample], int] = [], 0
            kept, bad = self._use(lambda file: store_tables.read_samples(file, model), nothing)
            self._count_bad(bad)
            samples = {_key(sample): sample for sample in kept}
            for key, sample in self._samples.get(model, {}).items():
                samples = {key: merged(sample, samples.pop(key, None)), **samples}
        self._speak()
        return list(samples.values())

    def save(self, samples: Mapping[str, Iterable[Sample]]) -> None:
        """Merge measurements into the file: the newest first, at most seven of each sample."""
        if self.path is None:
            return
        with _using:
            for model, given in samples.items():
                sound = [store_tables.checked(sample) if store_tables.is_text(model) else None for sample in given]
                self._count_bad(sound.count(None))
                for sample in filter(None, sound):
                    self._keep(model, sample)
            self._flush()
        self._speak()

    def _keep(self, model: str, sample: Sample) -> None:
        known = self._samples.setdefault(model, {})
        known[_key(sample)] = merged(sample, known.pop(_key(sample), None))
        while len(known) > store_tables.ROWS:
            del known[next(iter(known))]

    # Links and rates ----------------------------------------------------------------------------------------------

    def links(self) -> Figures:
        """Return (source memory, target memory) -> (latency in seconds, bytes per second)."""
        return self._load_figures(LINKS)

    def save_links(self, links: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Keep what was measured of links, instead of what was known of them."""
        self._save_figures(LINKS, links)

    def rates(self) -> Figures:
        """Return (device, its software) -> (operations per second, bytes per second) as measured."""
        return self._load_figures(RATES)

    def save_rates(self, rates: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Keep the peak rates measured of devices, instead of what was known of them."""
        self._save_figures(RATES, rates)

    def start_delays(self) -> Figures:
        """Return (device, "") -> (seconds that it begins late, 1) as measured."""
        return self._load_figures(LAGS)

    def save_start_delays(self, start_delays: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Keep how late devices begin, instead of what was known of it."""
        self._save_figures(LAGS, start_delays)

    def waits(self) -> Figures:
        """Return (model, condition) -> (seconds without the interpreter lock per second of work, 1) as measured."""
        return self._load_figures(WAITS)

    def save_waits(self, waits: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Keep how long kernels wait for the interpreter lock, instead of what was known of it."""
        self._save_figures(WAITS, waits)

    def _load_figures(self, what: str) -> Figures:
        with _using:
            nothing: tuple[Figures, int] = {}, 0
            kept, bad = self._use(lambda file: store_tables.read_figures(file, what), nothing)
            self._count_bad(bad)
            kept = {**kept, **self._figures.get(what, {})}
        self._speak()
        return kept

    def _save_figures(self, what: str, figures: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        if self.path is None:
            return
        with _using:
            sound = {names: pair for names, given in figures.items() if (pair := store_tables.figure(*names, *given))}
            self._count_bad(len(figures) - len(sound))
            self._figures.setdefault(what, {}).update(sound)
            self._flush()
        self._speak()

    # The whole ----------------------------------------------------------------------------------------------------

    def models(self) -> list[ModelInfo]:
        """Return what is in the file: every model with its number of samples and the time of the newest."""
        nothing: list[ModelInfo] = []
        with _using:
            found = self._use(store_tables.read_models, nothing)
        self._speak()
        return found

    def clear(self) -> None:
        """Forget everything, in the file too."""
        with _using:
            self._samples.clear()
            self._figures.clear()
            if self.path is not None and os.path.exists(self.path):  # noqa: PTH110  # Path.exists may raise
                self._use(_cleared, False, writing=True)
        self._speak()

    def close(self) -> None:
        """Try once more to write what is only in memory."""
        with _using:
            self._wait = WAIT
            self._flush()
        self._speak()

    # The file; all under the lock ---------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write what is only in memory; leave it there if that fails."""
        if (self._samples or self._figures) and self._use(self._write, False, writing=True):
            self._samples.clear()
            self._figures.clear()

    def _write(self, file: sqlite3.Connection) -> bool:
        store_tables.write_samples(file, self._samples)
        for what, figures in self._figures.items():
            store_tables.write_figures(file, what, figures)
        if not self._tidy:
            store_tables.drop_oldest(file)
            self._tidy = True
        return True

    def _use(self, action: Callable[[sqlite3.Connection], T], empty: T, *, writing: bool = False) -> T:
        """Return the answer of `action` on the open file, or `empty` if there is none or it makes trouble."""
        if self.path is None:
            return empty
        try:
            return store_file.use(
                self.path,
                action,
                writing=writing,
                wait=self._wait,
                empty=empty,
                say=self._unsaid.append,
                ours=self._ours,
            )
        except Trouble as trouble:
            self._wait = 0.0
            self._say_once(
                "trouble",
                f"coexec cannot keep measurements in {self.path}: {trouble}; it goes on with those of this run. "
                f"To keep them, {trouble.remedy}, or set {VARIABLE} to another path (or to off)",
            )
            return empty

    def _count_bad(self, count: int) -> None:
        if count:
            self._say_once(
                "bad",
                f"{count} measurement(s) for {self.path} are no finite, non-negative numbers and are ignored; "
                "`coexec calibrate` measures anew",
            )

    def _say_once(self, what: str, message: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._unsaid.append(message)

    def _speak(self) -> None:
        """Give the warnings, outside of the lock: a warning may be an error, or run the user's code."""
        while self._unsaid:
            self._warn(self._unsaid.pop(0))


def _key(sample: Sample) -> Key:
    return sample.kind, sample.key, sample.together


def _cleared(file: sqlite3.Connection) -> bool:
    store_tables.delete_all(file)
    return True
