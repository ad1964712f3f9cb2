"""The least time that a launch can take on this machine, from the bytes and operations that it needs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tunewright.referee.checking import ResultChecker
from tunewright.referee.contestant import clean_environment, search_path
from tunewright.referee.task import Task
from tunewright.report.roofline import Roofline, measure_bandwidth

MATRIX_ROWS = 512
WORKING_SETS = (64 << 10, 1 << 20, 8 << 20, 64 << 20)
SAMPLES = 8


@cache
def machine_roofline(threads: int) -> Roofline:
    """Measures the peak in single precision and the bandwidth of this machine; once in a process."""
    code = f"import sys; sys.path[:0] = {search_path()!r}; from tunewright.referee.physics import main; main()"
    words, environ = [sys.executable, "-I", "-c", code], clean_environment(threads)
    # In a process of its own, in which numpy has as many threads as a contestant has.
    told = subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout
    return Roofline(2 * MATRIX_ROWS**3 / float(told), measure_bandwidth(WORKING_SETS, threads, samples=SAMPLES))


def main() -> None:
    """Tells the shortest time of a product of matrices."""
    left, right = (np.ones((MATRIX_ROWS, MATRIX_ROWS), np.float32) for _ in range(2))
    sys.stdout.write(str(min(_undisturbed_seconds(lambda: left @ right) for _ in range(SAMPLES))))


def _undisturbed_seconds(call: Callable[[], Any]) -> float:
    """Returns the wall time or the CPU time of a call, whichever is less: on a busy machine, the second."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return min(time.perf_counter() - wall, time.process_time() - cpu)


def least_seconds(task: Task, checker: ResultChecker, constant_seed: int) -> tuple[float, ...]:
    """Returns, for each shape, the time in which its bytes can be moved and its operations be done."""
    roofline = machine_roofline(task.limits.threads)
    times = []
    for shape, sizes in enumerate(task.shapes):
        arguments = task.make_inputs(shape, 0, constant_seed)
        nbytes = moved_bytes(task, arguments, checker.specs(shape, arguments))
        if task.nbytes is not None:
            nbytes = int(task.nbytes(**sizes))
        flops = task.flops(**sizes) if task.flops else 0.0
        times.append(roofline.least_seconds(nbytes, flops)[0])
    return tuple(times)


def moved_bytes(task: Task, arguments: Sequence[Any], specs: Sequence[Any]) -> int:
    """Returns the bytes of arrays that are read and written once; constant ones may be kept in another form."""
    names = task.parameters
    read = [
        int(value.nbytes)
        for i, value in enumerate(arguments)
        if isinstance(value, np.ndarray) and not (i < len(names) and names[i] in task.constant)
    ]
    written = (np.prod(shape, dtype=np.int64) * dtype.itemsize for shape, dtype in specs)
    return sum(read) + sum(map(int, written))
