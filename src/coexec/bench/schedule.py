"""What scheduling costs: iterative programs on many devices that compute nothing, analysed and replayed.

Before: coexec's public names, bench/apps/programs.py.  After: cli/ through bench.BENCHMARKS.

A task's cost is the time from its call until its instructions are handed over: task graph, plan and lowering. What the
engine and the null devices then do is measured apart (`engine_us`). The programs are those of examples/.

Three kinds of task: *unknown* ones go through all of it, *replayed* ones are part of a loop that repeats itself exactly, *known*
ones have a shape and arrays in a state that were seen before, in a program that does not repeat itself: they are linked, planned
as the steady plan of their shape says, and their instructions come from a recipe. `us_per_task` (medians of wall time) is of
unknown ones, `us_per_task_replayed` of replayed ones; `cpu_us_*` are processor time of the process, the least of all parts, without
what measuring takes; `calls_per_task` are Python calls of known ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as numbers_from
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

import coexec as cx

from ..errors import ConfigError
from ..graph.instruction import Alloc, Copy, Instruction
from .apps.programs import load
from .measure import Data, Others, Progress, core, machine, python_calls

DEVICES = (1, 2, 4, 16, 64)
FEW = 4  # devices; with more, fewer tasks are measured
MOST_INSTRUCTIONS = (
    200_000  # of a case: where tasks are thousands of them, growth is measured over fewer than 10,000 tasks
)
EMPTY_CALLS = 200  # that tell what measuring takes
FEW_TURNS = 12  # on many devices, where each is thousands of copies
OWN_CALLS = 3  # Python functions of the benchmark in one repetition: the turn, the one it mixes, and the next number
TURNS = 60  # tasks of one RSim: its rows grow from step to step, and the whole of it repeats


class Program(NamedTuple):
    """A program that repeats itself."""

    make: Callable[[], Any]  # its arrays
    turn: Callable[[Any], Any]  # one repetition; returns the arrays for the next
    tasks: int  # of one repetition
    written: Callable[[Any], Sequence[cx.Array]]  # those of its arrays whose allocations are counted


def _wave_sim(devices: int) -> Program:
    del devices
    step = load("wave_sim").step

    def turn(arrays: Any) -> Any:
        before, now = arrays
        step(now, before, 0.25)
        return now, before

    return Program(lambda: (cx.zeros((4096, 4096), np.float32), cx.zeros((4096, 4096), np.float32)), turn, 1, list)


def _nbody(devices: int) -> Program:
    del devices
    move = load("nbody").move

    def turn(arrays: Any) -> Any:
        place, other, speed, mass = arrays
        move(place, mass, place, speed, other, 0.01)
        return other, place, speed, mass

    count = 1 << 17
    return Program(
        lambda: (*[cx.zeros((count, 3)) for _ in range(3)], cx.ones(count)), turn, 1, lambda arrays: arrays[:3]
    )


def _rsim(devices: int) -> Program:
    turns = TURNS if devices <= 16 else FEW_TURNS
    bounce, patches = load("rsim").bounce, 2048

    def make() -> Any:
        form, when = cx.zeros((patches, patches)), cx.zeros((patches, patches), np.intp)
        return form, when, cx.zeros((turns + 1, patches))

    def turn(arrays: Any) -> Any:
        form, when, history = arrays
        for t in range(1, turns + 1):
            bounce(form, when, history[:t], history[t])
        return arrays

    return Program(make, turn, turns, lambda arrays: arrays[2:])


PROGRAMS: dict[str, Callable[[int], Program]] = {"wave_sim": _wave_sim, "nbody": _nbody, "rsim": _rsim}


def run(quick: bool, progress: Progress) -> Data:
    """Measure what a task costs until its instructions are handed over, on many devices that compute nothing."""
    return collect((1, 4) if quick else DEVICES, 240 if quick else 10_000, progress)


def collect(devices: tuple[int, ...], tasks: int, progress: Progress) -> Data:
    """Measure on so many devices; `tasks` of them for the growth, fewer for the rest."""
    if core() == "compiled":
        raise ConfigError(
            "`bench schedule` puts its own functions around those of the engine, which a compiled core does not allow; "
            "run `make pure` first (`bench overhead` measures both cores)"
        )
    others = Others()
    cases = []
    for name, program in PROGRAMS.items():
        for count in devices:
            progress(f"{name} on {count} devices")
            cases.append({"app": name, "devices": count, **case(program(count), count, tasks)})
    four = [case for case in cases if case["devices"] == 4]
    return {
        "cases": cases,
        "worst_us_per_task_4": max([case["us_per_task"] for case in four], default=0.0),
        "worst_us_per_task_replayed_4": max([case["us_per_task_replayed"] for case in four], default=0.0),
        "worst_growth": max(case["growth"] for case in cases),
        "others_cores": others.cores(),
        "core": core(),
        "machine": machine(),
    }


def case(program: Program, devices: int, tasks: int) -> Data:
    """Return the figures of one program on so many devices."""
    many = devices > FEW  # one task may be thousands of instructions there
    each, batched = 24 if many else max(120, tasks // 100), 3 if many else 5
    with _runtime(devices, replay=False) as (runtime, meter):
        arrays = meter.warm(program, program.make())
        batches = [meter.tasks(program, arrays, each) for _ in range(batched)]
        counts = meter.count.per_task()
        allocations = meter.count.allocated([array._storage.id for array in program.written(arrays)])
        runtime.wait()
        del arrays
    with _runtime(devices, replay=True) as (runtime, meter):
        arrays = meter.warm(program, program.make())
        steps = min(tasks, int(MOST_INSTRUCTIONS / counts["instructions"]))
        parts = 50 if steps == tasks else 10
        rates = [meter.tasks(program, arrays, max(program.tasks, steps // parts)) for _ in range(parts)]
        live = runtime._driver.scheduler.link.graph.live() + runtime._driver.scheduler.lowering.live()
        replayed = runtime._driver.scheduler.counts.replayed
        runtime.wait()
        del arrays
    rates_known, calls = known(program, devices, each, batched)
    return {
        "us_per_task": median([batch.lowering for batch in batches]),
        "us_per_task_replayed": median([rate.lowering for rate in rates]),
        "engine_us": median([rate.engine for rate in rates]),
        "cpu_us_known": min([rate.cpu for rate in rates_known]),
        "cpu_us_unknown": min([batch.cpu for batch in batches]),
        "cpu_us_replayed": min([rate.cpu for rate in rates]),
        "calls_per_task": calls,
        **counts,
        "allocations": allocations,
        "live_nodes": live,
        "growth": median([r.lowering for r in rates[-5:]]) / median([r.lowering for r in rates[:5]]),
        "growth_tasks": max(steps, 2 * program.tasks * parts),
        "replayed_tasks": replayed,
    }


def known(program: Program, devices: int, tasks: int, batches: int) -> tuple[list[Rate], float]:
    """Return the rates of tasks whose shape is known, in a program that does not repeat itself, and the Python calls of one."""
    with _runtime(devices, replay=True) as (runtime, meter):
        mixed = unrepeated(program)
        arrays = [meter.warm(mixed, mixed.make())]
        rates = [meter.tasks(mixed, arrays[0], tasks) for _ in range(batches + 1)][1:]  # first all states are met
        meter.end()
        calls = python_calls(lambda: mixed.turn(arrays[0]), 31 if program.tasks == 1 else 5)
        runtime.wait()
        arrays.clear()
    return rates, (calls - OWN_CALLS) / program.tasks


def known_calls(app: str, devices: int) -> float:
    """Return how many Python functions the submitting thread calls for one task of a known shape."""
    return known(PROGRAMS[app](devices), devices, 60, 1)[1]


def unrepeated(program: Program) -> Program:
    """Return a program that makes the same calls on three sets of arrays, in an order that never repeats itself."""
    numbers = square_free()

    def turn(sets: Any) -> Any:
        number = next(numbers)
        sets[number] = program.turn(sets[number])
        return sets

    return Program(
        lambda: [program.make() for _ in range(3)],
        turn,
        program.tasks,
        lambda sets: [array for arrays in sets for array in program.written(arrays)],
    )


def square_free() -> Iterator[int]:
    """Yield numbers below 3, of which no two neighbouring runs are alike, however long.

    They are how many ones stand between the zeros of the sequence of Thue and Morse.
    """
    ones = 0
    for number in numbers_from(1):
        if number.bit_count() % 2:
            ones += 1
        else:
            yield ones
            ones = 0


class Rate(NamedTuple):
    """Microseconds per task."""

    lowering: float
    engine: float
    cpu: float  # processor time of lowering


class HandedOver:
    """What was handed over so far."""

    def __init__(self) -> None:
        self.tasks = self.instructions = self.copies = self.bytes = 0
        self._allocations: dict[tuple[int, int], int] = {}  # by memory and array

    def add(self, instructions: list[Instruction]) -> None:
        """Count instructions."""
        self.instructions += len(instructions)
        for instruction in instructions:
            step = instruction.step
            if isinstance(step, Copy):
                self.copies += 1
                self.bytes += step.nbytes
            elif isinstance(step, Alloc):
                at = (step.allocation.memory, step.allocation.array)
                self._allocations[at] = self._allocations.get(at, 0) + 1

    def begin(self) -> None:
        """Count from here on; allocations are counted from the beginning of the program."""
        self.tasks = self.instructions = self.copies = self.bytes = 0

    def allocated(self, arrays: Collection[int]) -> int:
        """Return how many allocations of these arrays there were on the device that had most."""
        found: dict[int, int] = {}
        for (memory, array), count in self._allocations.items():
            if array in arrays:
                found[memory] = found.get(memory, 0) + count
        return max(found.values(), default=0)

    def per_task(self) -> Data:
        """Return instructions, copies and bytes of one task."""
        tasks = self.tasks or 1
        return {
            "instructions": self.instructions / tasks,
            "copies": self.copies / tasks,
            "bytes": self.bytes / tasks,
        }


class RuntimeMeter:
    """Measures the runtime's own time, apart from that of engine and devices."""

    def __init__(self, runtime: cx.Runtime) -> None:
        self._engine = self._engine_cpu = 0.0  # seconds
        self.count = HandedOver()
        self.counting = True
        self._measured, self._own = 0, 0.0  # calls; seconds of processor time that measuring one takes
        executor: Any = runtime._driver.executor
        submit, wait = executor.submit, executor.wait_for

        def counted(instructions: list[Instruction]) -> None:
            if self.counting:
                self.count.add(instructions)
            submit(instructions)

        self._executor = executor
        try:
            executor.submit, executor.wait_for = self._timed(counted), self._timed(wait)
        except AttributeError:  # a compiled core: the engine's time is not told apart, and nothing is counted
            self._executor = None
        self._own = min([self._of_measuring() for _ in range(5)])

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call of the engine, whose time is measured."""

        def measured(*args: Any) -> Any:
            start, cpu = perf_counter(), process_time()
            answer = call(*args)
            self._measured += 1
            self._engine += perf_counter() - start
            self._engine_cpu += process_time() - cpu
            return answer

        return measured

    def _of_measuring(self) -> float:
        """Return the seconds of processor time that measuring a call takes, beyond what it counts as the engine's."""
        measured, self._engine_cpu, begun = self._timed(list), 0.0, process_time()
        for _ in range(EMPTY_CALLS):
            measured()
        return (process_time() - begun - self._engine_cpu) / EMPTY_CALLS

    def end(self) -> None:
        """Measure nothing any more: what is measured here would be in the way of counting calls."""
        if self._executor is not None:
            del self._executor.submit, self._executor.wait_for

    def warm(self, program: Program, arrays: Any) -> Any:
        """Repeat the program until everything is allocated and known; return its arrays."""
        for _ in range(max(6, 24 // program.tasks)):
            arrays = program.turn(arrays)
        cx.flush()  # whatever lookahead still holds
        return arrays

    def tasks(self, program: Program, arrays: Any, tasks: int) -> Rate:
        """Return the rate of so many tasks; an even number of repetitions leaves the arrays as they were."""
        turns = max(2, tasks // program.tasks // 2 * 2)
        self.count.begin()
        self._measured, self._engine, self._engine_cpu = 0, 0.0, 0.0
        start, begun = perf_counter(), process_time()
        for _ in range(turns):
            arrays = program.turn(arrays)
        wall, cpu = perf_counter() - start, process_time() - begun
        done = self.count.tasks = turns * program.tasks
        lowering, of_cpu = wall - self._engine, cpu - self._engine_cpu - self._measured * self._own
        return Rate(lowering / done * 1e6, self._engine / done * 1e6, of_cpu / done * 1e6)


@contextmanager
def _runtime(devices: int, *, replay: bool) -> Iterator[tuple[cx.Runtime, RuntimeMeter]]:
    with cx.Runtime(f"null:{devices}", policy="even", replay=replay, store="off") as runtime:
        yield runtime, RuntimeMeter(runtime)
