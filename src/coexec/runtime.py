"""The runtime, as programs know it: devices to run on, and everything a program can ask of them.

Before: driver.py, ranked.py, which do it.  After: coexec/__init__.py.  Decides nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from . import process
from .backend.machine import Machine
from .cluster.here import check_root, team_here
from .config import RuntimeOptions
from .errors import CoexecError, ProgramError
from .graph.task import Task, raise_unseen
from .machine.platform import Platform
from .plan.plan import Plan
from .program import session
from .program.array import Array, array as make_array
from .program.call import Options
from .program.kernel import Kernel
from .program.storage import Storage

if TYPE_CHECKING:
    from .backend.simulated import Scenario
    from .driver import Driver
    from .joined import RankDriver
    from .ranked import Ranks


class Runtime:
    """Runs a program on devices. The default one starts with the first array; `with cx.Runtime(...)` opens another."""

    def __init__(
        self,
        devices: str | None = None,
        *,
        memory: Mapping[str, str] | str | None = None,
        trace: str | os.PathLike[str] | None = None,
        platform: Platform | str | os.PathLike[str] | None = None,
        scenario: Scenario | str | os.PathLike[str] | None = None,
        machine: Machine | None = None,
        **options: Unpack[RuntimeOptions],
    ) -> None:
        """Open devices of this machine, or of a `platform` that is simulated. Options: `coexec devices --options`."""
        # Importing coexec loads nothing of what runs a program: that comes with the first runtime.
        from .driver import Driver
        from .opening import configured, open_as

        session.check_forked()
        config = self.config = configured(devices, trace, platform, scenario, options)
        self.closed = False  # asked by every call, so it is no property
        self._in_block = False  # a `with` block of the program is about it
        self.asked = 0.0  # when the program last waited for something, by time.perf_counter()
        self._way: Driver | Ranks
        self._joined: RankDriver | None = None  # the way, if this is one of several processes
        self._alone: Runtime | None = None  # on the devices of this rank alone, if it was asked for
        self._memory = memory
        if machine is None and config.ranks != 1:
            from .ranked import Ranks  # few programs have several ranks in one process

            self._way = Ranks(self, config, memory, platform, scenario)
        elif machine is None and not config.platform and config.join and (team := team_here()) is not None:
            from .joined import RankDriver  # nor are most programs started by a launcher

            self._way = self._joined = RankDriver(self, config, memory, team)
        else:
            self._way = Driver(self, config, machine or open_as(config, memory, platform, scenario))
        way = self._way
        self.machine, self.platform, self.lending, self.checks = (
            way.machine, way.platform, way.lending, config.debug
        )  # fmt: skip
        # What is called for every task goes to the driver directly.
        self.submit, self.fuse, self.dropped = way.submit, way.fuse, way.dropped
        process.opened(self)

    @property
    def _driver(self) -> Driver:
        """The driver, where there is one rank."""
        return cast("Driver", self._way)

    @property
    def learned(self) -> Any:
        """What was measured of kernels, here and in earlier runs."""
        return self._way.learned

    @property
    def instructions(self) -> int:
        """How many instructions were made so far."""
        return self._way.instructions

    def quiet(self) -> bool:
        """Tell whether nothing is under way, so that arrays may be written anew without waiting, and no other rank must do the same."""
        return self.config.ranks == 1 and self._joined is None and self._driver.pump.quiet

    @property
    def recorded(self) -> int:
        """How many tasks were recorded so far, where there is one rank."""
        return self._driver.pump.scheduler.link.graph.last

    @property
    def traced(self) -> bool:
        """Whether a trace is written, where there is one rank."""
        return self._driver.recorder.tracing

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Say nothing of the pace of what is called within: coexec itself tries what a program could do."""
        driver = self._driver
        with driver.diagnostics.unpaced():
            yield
            driver.pump.drain()

    @property
    def joined(self) -> bool:
        """Whether it is one of several ranks that a launcher started."""
        return self._joined is not None

    # What ranks do each by itself, and tell each other ------------------------------------------------------------------

    @property
    def place(self) -> tuple[int, int]:
        """The number of this rank, and how many there are that a launcher started."""
        return (0, 1) if self._joined is None else (self._joined.team.rank, self._joined.team.size)

    @property
    def shares(self) -> Sequence[float]:
        """Which part of the work each rank gets."""
        return (1.0,) if self._joined is None else self._joined.balance.shares

    @property
    def device_names(self) -> list[str]:
        """The devices that calls may name: those here, and among ranks those of all, with the rank's number before them."""
        own = [device.name for device in self.platform.devices]
        return own if self._joined is None else [*own, *self._joined.seat.names]

    def told(self, words: bytes, what: str) -> list[bytes]:
        """Return what every rank tells, by rank: `words` here. Waits for all ranks, because of `what`."""
        return [words] if self._joined is None else self._joined.told(words, what)

    def alone(self) -> Runtime:
        """Return a runtime on the devices of this rank, for itself alone, which ends with this one; itself, if there is one rank."""
        if self._joined is None:
            return self
        if self._alone is None:
            own = {name: getattr(self.config, name) for name in RuntimeOptions.__annotations__}
            own |= {"join": False, "plan": "", "store": "off" if self.place[0] else self.config.store}
            self._alone = Runtime(self._joined.devices, memory=self._memory, trace="", **own)
        return self._alone

    # What the program asks --------------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array, with its first contents if `data` is not None."""
        self._way.adopt(storage, data, borrowed=borrowed)

    def adopt_at_home(self, storage: Storage, data: Any) -> None:
        """Register a new array whose contents are `data`, which nobody else has and which is not copied; where there is one rank."""
        self._driver.adopt_at_home(storage, data)

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return how a call would be divided and placed, and how long it is predicted to take. Nothing runs."""
        return self._way.plan(kernel, args, kwargs, options)

    def step_plan(self) -> Plan | None:
        """Return the plan of the step that the program repeats: its calls, what it was compared with, and what was measured.

        None if nothing repeats itself, or if there is one device. `save` it, and `Runtime(plan=file)` follows it.
        """
        return self._way.step_plan()

    def follow(self, *plans: Plan) -> None:
        """Follow plans from now on, as `Runtime(plan=file)` does from the beginning; what is planned already stays so."""
        self._way.follow(plans)

    def begin_step(self, times: int = 0) -> Any:
        """Begin a step that the program names: `with cx.record()`."""
        return self._way.begin_step(times)

    def end_step(self, begun: Any, *, left: bool) -> tuple[bool, str]:
        """End a named step, which an exception may have left; tell whether it was replayed, and else why not."""
        return self._way.end_step(begun, left=left)

    def read(self, array: Array) -> Any:
        """Wait for `array` alone and return its elements as a read-only ndarray."""
        self.asked = perf_counter()
        return self._way.read(array)

    def read_on(self, array: Array, root: int) -> Any:
        """Wait for `array` and return its elements on one rank; None on the others."""
        if self._joined is not None:
            return self._joined.read_on(array, root)
        check_root(root, 1)
        return self.read(array)

    def array_from(self, data: Any, dtype: Any, root: int) -> Array:
        """Return a new array with the contents that one rank gives."""
        if self._joined is not None:
            return self._joined.array_from(data, dtype, root)
        check_root(root, 1)
        return make_array(data, dtype)

    def agree(self, kind: type[CoexecError], step: Callable[[], Any] | None) -> list[Any]:
        """Do a step, if this rank has one; return what every rank found, or raise on all of them what one raised."""
        if self._joined is not None:
            return self._joined.agree(kind, step)
        return [step() if step is not None else None]

    def wait(self) -> None:
        """Wait for everything; raise all failures that the program has not seen yet, as a group."""
        self.asked = perf_counter()
        self._way.wait()
        raise_unseen(self.unseen())

    def flush(self) -> None:
        """Lower and issue everything so far, whatever is still to come. Waits for nothing."""
        self._way.flush()

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Wait for one task; return False on time-out."""
        session.check_forked()
        self.asked = perf_counter()
        return self._way.wait_for(task, timeout)

    def cancel(self, task: Task) -> bool:
        """Cancel a task unless it has begun."""
        return self._way.cancel(task)

    def cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun. What runs is let run."""
        self._way.cancel_pending(reason)

    def unseen(self) -> list[Any]:
        """Return the failures that the program has not looked at yet."""
        return self._way.unseen()

    def forked(self) -> None:
        """Refuse every use from now on: this process is a forked child."""
        self._way.stop_small_calls()

    # Beginning and end ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with self._way.lock:
            self._way.check_open()
            if self._in_block:
                raise ProgramError(
                    f"{self!r} has a `with` block already, whose end closes it; inside that block just call kernels, "
                    "also from other threads"
                )
            self._in_block = True
        session.push(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        session.remove(self)
        if self.closed:
            return
        if kind is not None:
            self.cancel_pending(f"the program left with {kind.__name__}")
            self.close()
            return
        try:
            self.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Wait for everything, bring live arrays to the host, end every thread, complete the trace. Idempotent."""
        way = self._way
        if self.closed:
            return
        try:
            if self._alone is not None:
                self._alone.close()
            way.finish()
        except (KeyboardInterrupt, SystemExit):
            self.cancel_pending("the program was interrupted")
            way.wait_idle()
            raise
        finally:
            with way.signals.deferred():
                self.closed = True
                way.close()
                session.remove(self)
                process.closed(self)
            way.speak()

    def __repr__(self) -> str:
        return f"<cx.Runtime {self._way.about}{', closed' if self.closed else ''}>"
