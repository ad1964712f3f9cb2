"""Main of the process that a raced function runs in: loads it from one checkout, and times bursts of calls.

It needs only Python's own library, so that it starts quickly, and so that the checkout may be one of this library.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

BURST_SECONDS = 5e-3
"""The shortest sample."""

MAX_BURST = 1 << 22
FILE_MODULE = "tunewright_raced_file"
INSTALLED = frozenset({"site-packages", "dist-packages", ".tox", ".nox"})
SET_PARENT_DEATH_SIGNAL = 1


class CannotCall(Exception):
    """Raised for a function that cannot be raced; the message says why."""


class FunctionMissing(CannotCall):
    """Raised for a function that is not there."""


def load(target: str, *, beside: bool) -> Callable[[], Any]:
    """Returns the function at FILE.py:NAME, module:NAME or LIBRARY.so:NAME; `beside`: a file imports neighbors."""
    place, _, name = target.rpartition(":")
    if place.endswith(".so"):
        function = getattr(ctypes.CDLL(place), name, None)
        if function is None:
            raise FunctionMissing(f"the C source defines no function {name!r}")
        function.restype = None
        return function  # type: ignore[no-any-return]
    if beside and place.endswith(".py"):
        sys.path.insert(0, str(Path(place).parent))
    value: Any
    try:
        value = _load_file(place) if place.endswith(".py") else importlib.import_module(place)
    except ImportError as error:
        raise FunctionMissing(f"loading {Path(place).name} raised {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(value, part):
            raise FunctionMissing(f"{Path(place).name} defines no {name!r} here")
        value = getattr(value, part)
    require_no_arguments(target, value)
    return value  # type: ignore[no-any-return]


def _load_file(place: str) -> Any:
    spec = importlib.util.spec_from_file_location(FILE_MODULE, place)
    if spec is None or spec.loader is None or not Path(place).is_file():
        raise FunctionMissing(f"there is no {Path(place).name} here")
    module = sys.modules[FILE_MODULE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def require_no_arguments(name: str, call: Any) -> None:
    """Raises CannotCall unless this can be called without arguments, and does its work when it is called."""
    if not callable(call):
        raise CannotCall(f"{name} cannot be called: it is {call!r}")
    if inspect.iscoroutinefunction(call):
        raise CannotCall(f"{name} is a coroutine; race a function that runs it with asyncio.run")
    try:
        inspect.signature(call).bind()
    except TypeError as error:
        raise CannotCall(f"{name}: {error}; race a function without arguments that calls it") from error
    except ValueError:  # a builtin without a signature
        pass


def require_own_modules(foreign: str, allowed: str) -> None:
    """Raises CannotCall if a module came from the other checkout: then both sides would run the same code."""
    if not foreign:
        return
    other = Path(foreign)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        path = Path(file).resolve() if file else None
        if path is None or not path.is_relative_to(other) or str(path) == allowed:
            continue
        if not INSTALLED.intersection(path.parts) and not path.is_relative_to(sys.prefix):
            raise CannotCall(
                f"{name} was imported from {path}, which is in the other checkout; name the function as module:NAME, "
                "and install the package so that PYTHONPATH comes first, or not at all"
            )


def run_delay() -> float | None:
    """Returns the seconds that this thread has waited for a processor; None if the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


def measure(call: Callable[[], Any], count: int) -> dict[str, float | None]:
    """Returns the seconds of a call by each clock, over a burst."""
    delay, cpu, own, wall = run_delay(), process_time_ns(), thread_time_ns(), perf_counter_ns()
    for _ in range(count):
        call()
    wall, own, cpu = perf_counter_ns() - wall, thread_time_ns() - own, process_time_ns() - cpu
    later, scale = run_delay(), 1e-9 / count
    waited = None if delay is None or later is None else (later - delay) / count
    return {"wall": wall * scale, "cpu": cpu * scale, "own_cpu": own * scale, "delay": waited}


def calibrate(call: Callable[[], Any]) -> int:
    """Returns how many calls make a sample; the calls also warm up."""
    count = 1
    while True:
        seconds = (measure(call, count)["wall"] or 0.0) * count
        if seconds >= BURST_SECONDS / 2 or count >= MAX_BURST:
            return max(1, min(MAX_BURST, round(count * BURST_SECONDS / max(seconds, 1e-9))))
        count *= 4


def serve(setup: Mapping[str, Any], send: Callable[[Any], None]) -> None:
    """Loads the function, then answers each line with a burst of so many calls."""
    sys.path[:] = setup["path"]
    sys.argv[:] = [""]
    try:
        call = load(setup["target"], beside=not setup["allowed"])
        require_own_modules(setup["foreign"], setup["allowed"])
        count = calibrate(call)
        require_own_modules(setup["foreign"], setup["allowed"])  # it may import when it is called
        send({"count": count})
        for line in sys.stdin.buffer:
            send(measure(call, int(line)))
    except CannotCall as error:
        send({"error": str(error), "missing": isinstance(error, FunctionMissing)})
    except BaseException as error:
        send({"error": f"{setup['target']} raised {type(error).__name__}: {error}"})
        raise


def main() -> None:
    """Entry of the process: what the function prints is discarded, and it dies with its parent."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.dup(1)
    os.set_inheritable(replies, False)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)

    def send(value: Any) -> None:
        os.write(replies, json.dumps(value).encode() + b"\n")

    serve(json.loads(sys.stdin.buffer.readline()), send)


if __name__ == "__main__":
    main()
