"""What a contestant runs: functions, models, libraries and commands, made callable in its process."""

from __future__ import annotations

import ctypes
import json
import linecache
import os
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.cases.foreign_arrays import from_host, to_host
from tunewright.referee.messages import Entry, PlacedLaunch

Arrays = Sequence[NDArray[Any]]
Runner = Callable[[PlacedLaunch, Sequence[Any], Arrays], None]
"""Runs a launch: its description, its arguments, and the arrays that results go to."""

MODULE = "candidate"
"""The name under which the source of a contestant is loaded."""


class BadCandidate(Exception):
    """Raised in the process of a contestant that cannot be loaded, or whose results do not fit."""


def load_entry(entry: Entry) -> Runner:
    """Returns what runs a launch of a contestant."""
    loaders = {"function": _load_function, "model": _load_model, "c": _load_library, "command": _load_command}
    return loaders[entry.kind](entry)


def _load_module(entry: Entry) -> types.ModuleType:
    module = types.ModuleType(MODULE)
    module.__file__ = f"{MODULE}.py"
    sys.modules[MODULE] = module
    lines = entry.source.splitlines(keepends=True)
    linecache.cache[module.__file__] = (len(entry.source), None, lines, module.__file__)  # Triton reads its functions
    exec(compile(entry.source, module.__file__, "exec"), module.__dict__)
    return module


def _load_function(entry: Entry) -> Runner:
    function = getattr(_load_module(entry), entry.name, None)
    if not callable(function):
        raise BadCandidate(f"it defines no function {entry.name!r}")
    return _returning(function, entry.library)


def _load_model(entry: Entry) -> Runner:
    module, torch = _load_module(entry), sys.modules["torch"]
    model_class = getattr(module, entry.name, None)
    if model_class is None:
        raise BadCandidate(f"it defines no class {entry.name!r}")
    torch.manual_seed(entry.seed)
    with torch.no_grad():
        model = model_class(*json.loads(entry.initial))
    model.eval()

    def forward(*args: Any) -> Any:
        with torch.no_grad():
            return model(*args)

    return _returning(forward, "torch")


def _returning(function: Callable[..., Any], library: str) -> Runner:
    """Returns what calls a function and copies what it returns to where results go."""

    def run(launch: PlacedLaunch, arguments: Sequence[Any], results: Arrays) -> None:
        if library:
            arguments = [from_host(a, library, "cpu") if isinstance(a, np.ndarray) else a for a in arguments]
        returned = to_host(function(*arguments))
        parts = returned if isinstance(returned, tuple | list) else (returned,)
        if len(parts) != len(results):
            raise BadCandidate(f"it returns {len(parts)} results, the reference gives {len(results)}")
        for part, place in zip(parts, results, strict=True):
            _deliver(part, place)

    return run


def _deliver(part: Any, place: NDArray[Any]) -> None:
    actual = np.asarray(part)
    if actual.shape != place.shape:
        raise BadCandidate(f"a result has shape {actual.shape}, the reference gives {place.shape}")
    if actual.dtype != place.dtype and isinstance(part, np.ndarray | np.generic):
        raise BadCandidate(f"a result is {actual.dtype}, the reference gives {place.dtype}")
    place[...] = actual


def _load_library(entry: Entry) -> Runner:
    function = getattr(ctypes.CDLL(entry.path), entry.name)
    function.restype = None

    def run(launch: PlacedLaunch, arguments: Sequence[Any], results: Arrays) -> None:
        values = [_c_argument(value) for value in (*arguments, *results)]
        function(*values, *(ctypes.c_int64(size) for size in launch.sizes.values()))

    return run


def _c_argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(int(value))


def _load_command(entry: Entry) -> Runner:
    """Returns what runs a command: {input} and {output} are files of numpy arrays, {M} and others are sizes."""

    def run(launch: PlacedLaunch, arguments: Sequence[Any], results: Arrays) -> None:
        values = {name: str(size) for name, size in launch.sizes.items()}
        for number, value in enumerate(arguments):
            np.save(path := os.path.abspath(f"input{number}.npy"), value)
            values[f"input{number}"] = path
        for number in range(len(results)):
            values[f"output{number}"] = os.path.abspath(f"output{number}.npy")
        values |= {name: values[f"{name}0"] for name in ("input", "output") if f"{name}0" in values}
        words = [word.format_map(values) for word in entry.words]
        status = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if status.returncode:
            raise BadCandidate(f"exit status {status.returncode}: {status.stderr.decode(errors='replace')[-300:]}")
        for number, place in enumerate(results):
            _deliver(np.load(values[f"output{number}"], allow_pickle=False), place)

    return run
