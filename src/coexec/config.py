"""All options, as one frozen value, parsed once. A typo is an error.

Before: errors.py.  After: runtime.py, cli/.  Functions receive what they need, not the whole Config.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from math import inf
from typing import TypedDict

from .errors import ConfigError, PlanError, UnknownName, unknown_name

PREFIX = "COEXEC_"
POLICIES = ("static", "dynamic", "auto", "even")
OBJECTIVES = ("time", "energy")
DIAGNOSTICS = ("warn", "error", "off")
BUILDING = frozenset({"COMPILE"})
"""Names that are for hatch_build.py, which builds wheels."""
COMPILING = ("auto", "always", "off")
LOOKAHEADS = ("auto", "none", "infinite")
WRITTEN = {bool: "0, 1, true or false", int: "a whole number", float: "a number", str: "a text"}
LARGEST = 1 << 40
"""No count of tasks or processes is larger."""
LONGEST = 200
"""Characters of a value that an error repeats."""


@dataclass(frozen=True, slots=True)
class Config:
    """Defaults of every runtime. Each can be set as COEXEC_<NAME> or as an argument of Runtime."""

    devices: str = ""  # names, comma-separated, e.g. cpu:0,opencl:0@1; empty = every core and every accelerator
    memory: str = ""  # per device, e.g. opencl:0=6GB or opencl:0=shared, comma-separated
    platform: str = ""  # a preset or a TOML file: simulate its devices instead of using those that are here
    ranks: int = 1  # processes that drive a simulated cluster: 1 for all of it, 0 for one on each node
    join: bool = True  # be one of the ranks that a launcher started; else this process works for itself alone
    patience: float = 4.0  # seconds in which a program must make a call after a rank is lost, or it is ended; 0 = ever
    execute: bool = False  # a simulation computes values, on this machine; else reading what it should compute raises
    scenario: str = ""  # a TOML file with what goes wrong in a simulation, and how much durations vary
    trace: str = ""  # file to stream the trace to; empty = none
    sync: bool = False  # run each call at once in the caller, for pdb
    diagnostics: str = "warn"  # odd programs: warn, error (raise for unwritten reads and overlapping writes) or off
    debug: bool = False  # check that cx.write outputs are assigned in full (slow)
    placement: str = "earliest-finish"  # where indivisible tasks go; see `coexec devices --placements`
    data_threshold: float = 0.1  # data-aware placements consider devices that hold more than this share of the inputs
    lanes: str = "disjoint+reuse"  # lane policies: disjoint or same-as-parent, reuse or always-new
    horizon: int = 512  # tasks between horizons; the program runs ahead by at most two of them
    policy: str = "static"  # how divisible tasks are divided: static, dynamic, auto or even
    objective: str = "time"  # what plans minimise: time or energy
    energy_cap: float = 0.0  # joules that one divisible task may need; 0 = no cap
    watts: str = ""  # what devices draw, busy/idle, e.g. cpu:0=15/3,opencl:0=40/10; needed to plan for energy
    store: str = ""  # the file that keeps measurements, "off" for none; empty = one per machine in the cache folder
    reproducible: bool = False  # the same bits whatever the devices, shares, order, ranks and policy
    plan: str = ""  # file with plans to follow: the same shares, places and variants again
    fuse: bool = True  # compute chains of elementwise operations as one kernel, without their dead temporaries
    lookahead: str = "auto"  # hold back what allocates parts of arrays until they stop growing: auto, none or infinite
    replay: bool = True  # make steps that repeat themselves from a template, without analysing them again
    compile_bodies: str = "auto"  # NumPy bodies as machine code: auto (once they are worth it), always (at once) or off
    inline: bool = True  # run calls cheaper than their own scheduling at once, when nothing is pending
    gc_threshold: int = 50_000  # objects between runs of Python's collector while much is open; 0 = the program's own


class RuntimeOptions(TypedDict, total=False):
    """The options that `Runtime` takes by keyword, beside devices, memory and trace. Config says what they mean."""

    ranks: int | None
    join: bool | None
    patience: float | None
    execute: bool | None
    sync: bool | None
    diagnostics: str | None
    debug: bool | None
    placement: str | None
    data_threshold: float | None
    lanes: str | None
    horizon: int | None
    policy: str | None
    objective: str | None
    energy_cap: float | None
    watts: str | None
    store: str | os.PathLike[str] | None
    reproducible: bool | None
    plan: str | os.PathLike[str] | None
    fuse: bool | None
    lookahead: str | None
    replay: bool | None
    compile_bodies: str | None
    inline: bool | None
    gc_threshold: int | None


def parse(environ: Mapping[str, str], prefix: str = PREFIX) -> Config:
    """Read options from the environment."""
    known = {field.name.upper(): field for field in fields(Config)}
    values: dict[str, object] = {}
    for key in (k.removeprefix(prefix) for k in environ if k.startswith(prefix)):
        if key in BUILDING:
            continue
        if key not in known:
            raise ConfigError(str(unknown_name("environment variable", prefix + key, [prefix + k for k in known])))
        text = environ[prefix + key]
        if text.strip():  # an empty variable is one that is not set
            values[key.lower()] = convert(prefix + key, text, known[key].default)
    return Config(**values)  # type: ignore[arg-type]  # each value has its field's type


def convert(name: str, text: str, default: object) -> object:
    """Read `text` as a value of the type of `default`."""
    try:
        if isinstance(default, bool):
            return {"0": False, "1": True, "false": False, "true": True}[text.strip().lower()]
        return type(default)(text)  # type: ignore[call-arg]
    except (KeyError, ValueError):
        raise ConfigError(f"{name}={shortened(text)!r} must be {WRITTEN[type(default)]}") from None


def shortened(text: str) -> str:
    """Return a text that fits into a sentence."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def said(name: str, value: object) -> str:
    """Return the variable that gave an option this value, with its text; empty if the environment did not."""
    variable = PREFIX + name.upper()
    text = os.environ.get(variable, "")
    if not text.strip():
        return ""
    try:
        known: object = parse_memory(text) if isinstance(value, Mapping) else convert(variable, text, value)
    except (ConfigError, TypeError):
        return ""
    return f"{variable}={shortened(text)!r}" if repr(known) == repr(value) else ""  # a NaN is not equal to itself


@contextmanager
def blamed(name: str, value: object) -> Iterator[None]:
    """Let what is wrong with an option that the environment gave begin with the variable and its value."""
    try:
        yield
    except (ConfigError, UnknownName, PlanError) as error:
        variable = said(name, value)
        if variable and PREFIX not in str(error):
            error.args = (f"{variable}: {error}",)
        raise


def merged(config: Config, **given: object) -> Config:
    """Return `config` with every given option that is not None, checked."""
    chosen = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in given.items()
        if value is not None
    }
    names = [field.name for field in fields(Config)]
    for name, value in chosen.items():
        if name not in names:
            raise TypeError(f"Runtime() has no such option: {unknown_name('option', name, names)}")
        kind = type(getattr(config, name))
        if not isinstance(value, kind) and not (kind is float and isinstance(value, int)):
            raise ConfigError(f"Runtime({name}={value!r}): expected a {kind.__name__}")
    config = replace(config, **chosen)  # type: ignore[arg-type]  # checked above
    choices = {
        "policy": POLICIES,
        "objective": OBJECTIVES,
        "diagnostics": DIAGNOSTICS,
        "lookahead": LOOKAHEADS,
        "compile_bodies": COMPILING,
    }
    for name, known in choices.items():
        if (value := getattr(config, name)) not in known:
            with blamed(name, value):
                raise ConfigError(str(unknown_name(name, value, known)))
    ranges = {
        "energy_cap": (0.0 <= config.energy_cap < inf, "must be a number of joules, or 0 for no cap"),
        "data_threshold": (0.0 <= config.data_threshold <= 1.0, "must be a share from 0 to 1"),
        "patience": (0.0 <= config.patience < inf, "must be a number of seconds, or 0 for ever"),
        "horizon": (1 <= config.horizon < LARGEST, f"must be at least 1 and below {LARGEST:,}"),
        "gc_threshold": (0 <= config.gc_threshold < 1 << 31, "must be a number of objects, or 0 for the program's own"),
        "ranks": (0 <= config.ranks < LARGEST, "must be 1, or 0 for one process on each node, or the number of nodes"),
    }
    for name, (right, accepted) in ranges.items():
        if not right:
            value = getattr(config, name)
            raise ConfigError(f"{said(name, value) or f'Runtime({name}={value})'}: {accepted}")
    return config


def parse_memory(text: str) -> dict[str, str]:
    """Read "opencl:0=6GB,host=8GB" as a dictionary."""
    entries = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise ConfigError(f"memory {part!r} must read device=size, e.g. opencl:0=6GB or opencl:0=shared")
        entries[name] = value
    return entries
