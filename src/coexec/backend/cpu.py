"""The CPU as devices: narrow ones (a core each), a wide one (all cores at once) and the host for the program's side.

Before: backend/launch.py.  After: execute/.  Owns its worker threads; each device has one. Its devices are not eager:
whatever is issued waits for nothing, so a device's thread may take it in any order (by priority), an idle sibling may
take it over, and lanes are but labels. A waiting user thread may help with the host's work.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from ..compile.serving import Bodies
from ..errors import BackendError, InvariantError
from ..graph.instruction import Allocation, HostLaunch, Instruction, Launch
from ..graph.task import Task
from ..machine.cores import pin_thread, sharpen_timers
from ..machine.platform import HOST, USER, Device
from ..machine.switching import restore_turns, shorten_turns
from ..program.session import in_kernel
from .base import CallHelper, Finished, Ran
from .core_policy import cores_free, is_little, may_move, rivals, siblings
from .cpu_worker import Worker
from .host_memory import HostMemory
from .launch import run, run_kernel
from .library_threads import LibraryThreads

LONG = 50e-6  # seconds: from here on a kernel claims its core, and the interpreter lock in short turns
TIMED = 15e-6  # seconds: from here on a kernel's wait for the lock is measured; what is shorter soon runs in its caller
EAGER_SWITCH = 10e-6  # seconds between switches of threads that want the interpreter lock, while long kernels run

_new: Callable[..., Any] = tuple.__new__  # makes a named tuple without its constructor


class CpuBackend:
    """NumPy on this machine's cores."""

    kind = "cpu"
    runs_python = True
    helps = True

    def __init__(
        self, devices: Sequence[Device], *, capacity: int | None = None, debug: bool = False, sync: bool = False
    ) -> None:
        self.devices = tuple(devices)
        self._sync = sync  # no threads: whoever waits runs everything
        self._debug = debug
        self._memory = HostMemory(capacity)
        host = Device("host", "cpu", HOST, (HOST, USER))
        self._workers = {device.name: Worker(device) for device in (*devices, host)}
        for name, others in siblings(devices).items():
            self._workers[name].siblings = [self._workers[other] for other in others]
        self._host = self._workers["host"]
        self._finished: Finished | None = None
        self._stopping = False
        self.threads = LibraryThreads()  # how many a library may use while kernels run
        self._mine: dict[int, Worker] = {}  # by thread
        self._running: set[str] = set()  # narrow devices in a kernel
        self._rivals = rivals(devices)
        self._wide_claims = False  # all cores at once compute, or wait until single ones have finished
        self._quiet = threading.Condition()
        self._long: set[int] = set()  # threads in a long kernel
        self._shortened = False  # turns are short, until every thread sleeps
        self._call_helper: CallHelper = lambda: False
        self.bodies: Bodies | None = None  # compiles, if the runtime says so

    # Contract ---------------------------------------------------------------------------------------------------------

    def start(self, finished: Finished, call_helper: CallHelper | None = None) -> None:
        """Begin to accept work. Threads start with the first instruction for their device."""
        self._finished = finished
        self._call_helper = call_helper or (lambda: False)

    def clock(self) -> float:
        """Return the time in seconds that records refer to."""
        return time.perf_counter()

    def supports(self, dtype: Any) -> bool:
        """Tell whether a device can hold elements of `dtype`: NumPy holds all."""
        del dtype
        return True

    def allocate(self, allocation: Allocation) -> None:
        """Set `allocation.data` to an uninitialised array; its pages appear on first touch."""
        self._memory.allocate(allocation)

    def release(self, allocation: Allocation) -> None:
        """Give the memory back, or keep it for the next allocation of the same size."""
        self._memory.release(allocation)

    def issue(self, instruction: Instruction, lane: int, waits: Sequence[Instruction] = ()) -> Ran | None:
        """Queue an instruction for its device's thread. Never blocks. What is shorter than waking a thread is done here."""
        if waits:
            raise InvariantError("the CPU backend orders nothing across lanes")
        step = instruction.step
        worker = self._workers[step.device]
        if not self._sync and instruction.failure is None and is_little(step):
            return self._run(worker, instruction, lane)
        if isinstance(step, Launch):
            if not self.threads.limited and not worker.device.wide:
                self.threads.limit()
            if worker.idle and (step.predicted or LONG) >= LONG:
                self._hurry()  # or the thread woken here would wait for this one to pause
        worker.put(instruction, lane)
        short = worker is self._host and not isinstance(step, HostLaunch)
        if self._sync or (short and self._call_helper()):
            return None
        mine = self._mine.get(threading.get_ident())
        if mine is None or not self._takes(mine, worker, instruction):
            self._call(worker)
        return None

    def _call(self, worker: Worker) -> None:
        """See to it that a thread looks at a queue soon: the device's own, or an idle sibling's."""
        if not self._call_thread(worker):
            for other in worker.siblings:
                if other.idle:
                    self._rouse(other)
                    break

    def _takes(self, mine: Worker, worker: Worker, instruction: Instruction) -> bool:
        """Tell whether the calling thread, which is about to report something, takes an instruction next; waking another is slow."""
        if worker is mine:
            left, mine.left = mine.left, None
            if left is not None:
                self._call(left)  # now this thread has work of its own
            return len(mine.queue) == 1
        if mine.queue or mine.left or worker not in mine.siblings or len(worker.queue) > 1 or not may_move(instruction):
            return False
        mine.left = worker
        return True

    def withdraw(self, instruction: Instruction) -> bool:
        """Take back an instruction that no thread has begun."""
        worker = self._workers[instruction.step.device]
        for entry in list(worker.queue):
            if entry[0] is instruction:
                return worker.remove(entry)
        return False

    def help(self, waiting_for: Task | None = None) -> bool:
        """Run one piece of host work on the calling thread: what the program itself waits for."""
        if self._sync:
            waiting_for = None  # there is no other thread
        for worker in self._workers.values() if self._sync else (self._host,):
            for entry in list(worker.queue):
                other = waiting_for is not None and entry[0].task is not waiting_for
                foreign = other and isinstance(entry[0].step, HostLaunch)
                if not foreign and worker.remove(entry):
                    self._execute(worker, *entry)
                    return True
        return False

    def limit_threads(self) -> None:
        """Let library calls use one thread, until nothing is open: many short kernels do not bear more."""
        if not self.threads.limited:
            self.threads.limit()

    def run_here(self, instruction: Instruction) -> Ran:
        """Run a short kernel that was not issued on the calling thread, while nothing else runs."""
        if not self.threads.limited:
            self.threads.limit()
        task, step, error = instruction.task, instruction.step, None
        assert isinstance(step, Launch)
        context = task.context or copy_context()
        in_kernel.name = task.name
        start = time.perf_counter()
        try:
            context.run(run_kernel, task, step, self._debug)  # what is so short is not compiled
        except BaseException as caught:  # noqa: BLE001 - reported, never lost
            error = caught
        stop = time.perf_counter()
        in_kernel.name = ""
        ran: Ran = _new(Ran, (instruction, step.device, 0, start, stop, 0.0, error))
        return ran

    def left(self, *, idle: bool) -> None:
        """Let the host thread take over what a helper left; when idle, give the program its library threads back."""
        if self._host.queue and not self._sync:
            self._call_thread(self._host)
        if idle:
            self._unhurry()
            self.threads.restore()

    def stop(self) -> None:
        """Finish what was issued and end every thread."""
        self._stopping = True
        for worker in self._workers.values():
            if worker.thread is not None:
                if worker.idle:
                    self._rouse(worker)
                worker.thread.join()
                worker.thread = None
        self._unhurry()
        self.threads.restore()
        self._memory.clear()

    # Threads ----------------------------------------------------------------------------------------------------------

    def _begin(self, worker: Worker) -> None:
        name = f"coexec-{worker.device.name}"
        worker.thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
        worker.wake.acquire(blocking=False)
        worker.thread.start()

    def _call_thread(self, worker: Worker) -> bool:
        """See to it that the device's thread looks at its queue; False if it is busy already."""
        if worker.thread is None:
            self._begin(worker)
            return True
        if worker.idle:
            self._rouse(worker)
            return True
        return False

    def _rouse(self, worker: Worker) -> None:
        worker.idle = False
        try:
            worker.wake.release()
        except RuntimeError:  # somebody else woke it at the same moment
            return

    def _work(self, worker: Worker) -> None:
        if worker.device.cores:
            pin_thread(*worker.device.cores)
        sharpen_timers()
        self._mine[threading.get_ident()] = worker
        try:
            self._serve(worker)
        finally:
            del self._mine[threading.get_ident()]  # another thread may have this number next

    def _serve(self, worker: Worker) -> None:
        while True:
            entry = self._take(worker)
            if entry is not None:
                self._execute(worker, *entry)
                continue
            worker.idle = True
            if self._shortened and all(other.idle or other.thread is None for other in self._workers.values()):
                self._unhurry()
            if worker.queue:  # issued between the look and the flag
                worker.idle = False
                continue
            if self._stopping:
                return
            worker.wake.acquire()

    def _take(self, worker: Worker) -> tuple[Instruction, int] | None:
        """Return the next instruction: the device's own, else the first of a sibling's that may move."""
        worker.left = None
        try:
            return worker.queue.popleft()
        except IndexError:
            pass
        for other in worker.siblings:
            for entry in list(other.queue):
                if may_move(entry[0]):
                    if other.remove(entry):
                        return entry
                    break
        return None

    def _execute(self, worker: Worker, instruction: Instruction, lane: int) -> None:
        """Run an issued instruction and report it."""
        ran = self._run(worker, instruction, lane)
        if self._finished is None:
            raise BackendError("the CPU backend was not started")
        self._finished(ran)
        if isinstance(ran.error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise ran.error

    def _run(self, worker: Worker, instruction: Instruction, lane: int) -> Ran:
        error: BaseException | None = instruction.failure
        waited = 0.0
        step = instruction.step
        kernel = isinstance(step, Launch) and error is None
        predicted = step.predicted if isinstance(step, Launch) else 0.0
        long = kernel and (predicted is None or predicted > LONG)  # of a first run nothing is known
        timed = kernel and (predicted is None or predicted > TIMED) and not worker.device.wide
        exclusive = kernel and (long or bool(self._rivals.get(worker.device.name)))
        if exclusive:
            self._enter(worker, long=long)
        if self._shortened and not long:
            self._unhurry()
        start = time.perf_counter()  # not before: waiting for the cores is no part of the kernel
        try:
            if kernel:
                waited = self._run_kernel(instruction, step, timed=timed)  # type: ignore[arg-type]
            elif error is None:
                run(instruction.task, step)
        except BaseException as caught:  # noqa: BLE001 - reported, never lost
            error = caught
        stop = time.perf_counter()
        if exclusive:
            self._leave(worker, long=long)
        ran: Ran = _new(Ran, (instruction, worker.device.name, lane, start, stop, waited, error))
        return ran

    def _run_kernel(self, instruction: Instruction, step: Launch, *, timed: bool) -> float:
        """Run a body in the caller's context; return the seconds it waited for the interpreter lock, if `timed`."""
        task: Task = instruction.task
        context = task.context
        if context is None or task.open > 1:  # sibling chunks run at the same time
            context = context.copy() if context is not None else copy_context()
        in_kernel.name = task.name
        try:
            if not timed:
                instruction.odd = not context.run(run_kernel, task, step, self._debug, self.bodies)
                return 0.0
            wall, cpu = time.perf_counter(), time.thread_time()
            instruction.odd = not context.run(run_kernel, task, step, self._debug, self.bodies)
            return max(0.0, (time.perf_counter() - wall) - (time.thread_time() - cpu))
        finally:
            in_kernel.name = ""

    def _enter(self, worker: Worker, *, long: bool) -> None:
        """Claim the cores, as backend/core_policy.py says, and the interpreter lock in short turns for a long kernel."""
        device = worker.device
        if long:
            self._long.add(threading.get_ident())
            self._hurry()
        if device.wide:
            self._wide_claims = True
            with self._quiet:
                while not cores_free(device, rival_runs=bool(self._running), rival_waits=False):
                    self._quiet.wait()
            self.threads.restore()
            return
        if not self._rivals.get(device.name):
            return
        while True:
            self._running.add(device.name)
            if cores_free(device, rival_runs=False, rival_waits=self._wide_claims):
                return
            self._running.discard(device.name)
            with self._quiet:
                self._quiet.notify_all()
                while self._wide_claims:
                    self._quiet.wait()

    def _hurry(self) -> None:
        """Shorten the switch interval while long kernels run.

        Beside a thread that runs Python, a kernel gets the interpreter lock back after one interval per NumPy call.
        """
        if sys.getswitchinterval() > EAGER_SWITCH * 1.01:  # the interpreter rounds to microseconds
            shorten_turns(self, EAGER_SWITCH)
        self._shortened = True  # at the end: whoever takes it back meanwhile does so once more

    def _unhurry(self) -> None:
        """Give the program its switch interval back, if no long kernel runs: not between one and the next."""
        if self._shortened and not self._long:
            self._shortened = False
            restore_turns(self)

    def _leave(self, worker: Worker, *, long: bool) -> None:
        device = worker.device
        if long:
            self._long.discard(threading.get_ident())
        if device.wide:
            if len(self.devices) > 1:
                self.threads.limit()
            with self._quiet:
                self._wide_claims = False
                self._quiet.notify_all()
            return
        if self._rivals.get(device.name):
            self._running.discard(device.name)
            if self._wide_claims:
                with self._quiet:
                    self._quiet.notify_all()
