"""Every error coexec raises, in one hierarchy.

Before: nothing.  After: everything.  Knows no other module.
"""

from __future__ import annotations

from collections.abc import Sequence


class CoexecError(Exception):
    """The user can act on it.

    CoexecError
    |-- ProgramError         the program asks for something impossible
    |   |-- ArgumentError    a call does not fit the kernel's declaration (also a TypeError)
    |   |-- ShapeError       shapes or boxes do not match (also a ValueError)
    |   |-- UnsupportedError an operation that would gather data silently (also a TypeError)
    |   |-- NestedCallError  coexec was called from inside a kernel
    |   `-- NoValues         a simulated program reads values that nobody computed
    |-- TaskFailed           a kernel raised; the original error is its cause and also its type
    |-- TaskCancelled        a task was cancelled before it began
    |-- ItemFailed           an item of a stream has no result; the original error is its cause
    |-- PlanError            no plan fits the platform
    |   |-- CannotCompute    no device has a rate for the type that a call computes with
    |   `-- DoesNotFit       a working set is larger than the memory it was placed in
    |-- BackendError         a device failed; the original error is the cause
    |   |-- DeviceLost       a device computes nothing any more
    |   `-- VariantRefused   a body gives other values on a device than on NumPy, and stays on NumPy
    |-- ClusterError         ranks cannot go on together
    |   |-- RankLost         a rank is gone, or ended before the others
    |   |-- RankAborted      a rank gave up, and says why
    |   |-- RanksDiverge     ranks are not at the same call of the same program
    |   |-- RanksHang        all ranks wait for each other
    |   `-- RemoteFailure    a rank could not make what it was to send
    |-- ConfigError          an option is unknown or malformed (also a ValueError)
    |   `-- PlatformError    a platform file cannot be read, or contradicts itself
    |-- ModelError           a model cannot be read, or holds what coexec does not have (also a ValueError)
    |-- CheckpointError      a checkpoint cannot be read or written (also a ValueError)
    |-- UnknownName          no extension or device of that name (also a LookupError)
    |-- TraceError           a trace file cannot be read (also a ValueError)
    `-- RuntimeClosed        the runtime was closed, or this is a forked child
    InvariantError           we are wrong (not a CoexecError on purpose)
    """


class ProgramError(CoexecError):
    """The program asks for something impossible."""


class ArgumentError(ProgramError, TypeError):
    """A call does not fit the kernel's declaration."""


class ShapeError(ProgramError, ValueError):
    """Shapes or boxes do not match."""


class UnsupportedError(ProgramError, TypeError):
    """An operation that coexec would only be able to do by gathering data silently."""


class NestedCallError(ProgramError):
    """coexec was called from inside a kernel or host task."""


class NoValues(ProgramError):
    """A simulated program reads values that nobody computed."""


class Reported:
    """Whether the program knows that one call failed: the same object for all of its chunks, on all ranks.

    All calls of one item of a stream share one, which is held while the stream may still tell of the item.
    """

    __slots__ = ("held", "yes")

    def __init__(self, *, held: bool = False) -> None:
        self.yes = False
        self.held = held


class TaskFailed(CoexecError):
    """A kernel raised. `__cause__` is the original error."""

    task: str = ""
    device: str = ""
    chunk: str = ""
    round: int = 0  # of the call among ranks: the same number on all of them
    told: Reported | None = None

    @property
    def reported(self) -> bool:
        """Whether the program has seen it, or that another chunk of the same call failed."""
        return self.told is not None and self.told.yes


class TaskCancelled(CoexecError):
    """A task was cancelled before it began."""


class ItemFailed(CoexecError):
    """An item of a stream has no result. `index` and `stage` say which and where; `__cause__` is the original error."""

    def __init__(self, message: str, index: int = -1, stage: str = "") -> None:
        self.index, self.stage = index, stage
        super().__init__(message)


class PlanError(CoexecError):
    """No plan fits the platform."""


class CannotCompute(PlanError):
    """No device has a rate for the type that a call computes with."""


class DoesNotFit(PlanError):
    """A working set is larger than the memory it was placed in."""

    def __init__(
        self, what: str, memory: str, needs: int, has: int, remedy: str = "declare split= on the kernel"
    ) -> None:
        self.what, self.memory, self.needs, self.has = what, memory, needs, has
        sizes = told_apart(needs, has)
        super().__init__(
            f"{what} needs {sizes[0]} in memory {memory!r}, which has {sizes[1]}; "
            f"{remedy}, allow another device, or raise the limit with Runtime(memory=...)"
        )


def told_apart(*sizes: int) -> list[str]:
    """Return sizes in bytes as text, in MiB where they are large, with as many digits as tell them apart."""
    for digits in (1, 3):
        texts = [f"{n / 2**20:,.{digits}f} MiB" if n >= 1 << 19 else f"{n:,} bytes" for n in sizes]
        if len(set(texts)) == len(set(sizes)):
            return texts
    return [f"{n:,} bytes" for n in sizes]


class BackendError(CoexecError):
    """A device failed; the original error is the cause."""

    begun: bool = False  # some of the work may have been done, so what it wrote is not as it was


class DeviceLost(BackendError):
    """A device computes nothing any more. What it was given last has written nothing."""


class VariantRefused(BackendError):
    """A variant does not compile, or gives other values on a device than on NumPy. Nothing was written; NumPy does it."""


class ClusterError(CoexecError):
    """Ranks cannot go on together. `rank` and `host` say who, where one is to blame."""

    def __init__(self, message: str, rank: int | None = None, host: str = "") -> None:
        self.rank, self.host = rank, host
        super().__init__(message)


class RankLost(ClusterError):
    """A rank is gone: killed, stopped, or ended while others still counted on it."""


class RankAborted(ClusterError):
    """A rank gave up, and says why."""


class RanksDiverge(ClusterError):
    """Two ranks do not agree about a message: they are not at the same call of the same program."""


class RanksHang(ClusterError):
    """All ranks wait for each other, and nothing is on its way."""


class RemoteFailure(ClusterError):
    """A rank could not make what it was to send. Other messages are not concerned."""


class ConfigError(CoexecError, ValueError):
    """An option is unknown or malformed."""


class PlatformError(ConfigError):
    """A platform file cannot be read, or contradicts itself. The message begins with file, line and field."""

    def __init__(self, message: str, file: str = "", line: int | None = None, field: str = "") -> None:
        self.file, self.line, self.field = file, line, field
        place = f"{file}:{line}" if line is not None else file
        super().__init__(": ".join(part for part in (place, field, message) if part))


class UnknownName(CoexecError, LookupError):
    """No extension or device of that name is registered."""


class ModelError(CoexecError, ValueError):
    """A model file cannot be read, or a model holds operators, types or open sizes that coexec cannot take."""


class CheckpointError(CoexecError, ValueError):
    """A checkpoint cannot be read or written: there is none, it is damaged, or another version wrote it."""


class TraceError(CoexecError, ValueError):
    """A trace file cannot be read."""


class RuntimeClosed(CoexecError):
    """The runtime was closed, or the process was forked."""


class InvariantError(Exception):
    """We are wrong, not the user. Please report it with the trace."""


class CoexecWarning(UserWarning):
    """Something works, but not as well or not as the user may expect."""


class PerformanceWarning(CoexecWarning):
    """The results are right, but the program could be faster."""


MOST_LISTED = 48
"""Names that an error lists."""


def unknown_name(kind: str, name: str, known: Sequence[str]) -> UnknownName:
    """Return the error for an unregistered `name`, with the nearest known one."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = sorted(known)
    if len(listed) > MOST_LISTED:  # a cluster has hundreds of devices
        listed[MOST_LISTED // 2 : -2] = ["..."]
    return UnknownName(f"unknown {kind} {name!r}{hint} (known: {', '.join(listed) or 'none'})")
