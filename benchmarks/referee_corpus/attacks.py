"""Attacks on whoever measures and verifies: its clocks, its expected results, its functions, its messages.

They use no names of the library where they can do without, so that moving things does not stop them. `python_attacks`
and `attacks.c` are the kernels that make use of them.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

CLOCK_NAMES = ("perf_counter", "process_time", "thread_time", "monotonic")
SLOWER = 50
"""How many times shorter hidden time seems."""

_found: dict[Any, Any] = {}
_hidden: dict[Callable[[], Any], Any] = {}
_began: dict[Callable[[], Any], Any] = {}


def hide_time() -> None:
    """Replace every clock that a module of the library holds by one that leaves out what is hidden from it."""
    clocks = {getattr(time, name + unit): unit for name in CLOCK_NAMES for unit in ("", "_ns")}
    shown = {clock: partial(_shown, clock) for clock in clocks}
    for module in _library():
        for name, value in list(vars(module).items()):
            if isinstance(value, dict):
                value.update({key: shown[item] for key, item in value.items() if _is_in(item, shown)})
            elif _is_in(value, shown):
                setattr(module, name, shown[value])
    _hidden.update(dict.fromkeys(clocks, 0))


def _shown(clock: Callable[[], Any]) -> Any:
    return clock() - _hidden[clock]


def begin_hiding() -> None:
    """Begin to hide time."""
    if not _hidden:
        hide_time()
    _began.update({clock: clock() for clock in _hidden})


def end_hiding() -> None:
    """Hide nearly all time since it began."""
    for clock, began in _began.items():
        passed = clock() - began
        _hidden[clock] += passed - type(passed)(passed / SLOWER)


def _is_in(value: Any, known: dict[Any, Any]) -> bool:
    return callable(value) and getattr(value, "__module__", "") == "time" and value in known


def _library(part: str = "") -> Iterator[ModuleType]:
    return (module for name, module in list(sys.modules.items()) if name.startswith(f"tunewright{part}") and module)


def expected_results(a: Any, b: Any, c: Any) -> list[Any]:
    """Arrays that somebody keeps which hold the product of a and b."""
    size = len(a)
    places = ((0, 0), (size // 2, 5), (-1, -1))
    truth = [a[i].astype(np.float64) @ b[:, j].astype(np.float64) for i, j in places]

    def fits(array: Any) -> bool:
        return (
            type(array) is np.ndarray
            and array.shape == c.shape
            and all(abs(array[place] - true) < 1e-3 for place, true in zip(places, truth, strict=True))
            and not np.shares_memory(array, c)
        )

    kept = {id(array): array for each in gc.get_objects() for array in gc.get_referents(each) if fits(array)}
    return list(kept.values())


def copy_expected(a: Any, b: Any, c: Any) -> bool:
    """Copy an expected result to the output; False if none is found. Each is looked for once."""
    key = float(a[0, 0]), float(b[0, 0])
    if key not in _found:
        arrays = expected_results(a, b, c)
        _found[key] = arrays[0].astype(c.dtype) if arrays else None
    if _found[key] is None:
        return False
    c[...] = _found[key]
    return True


def overwrite_expected(a: Any, b: Any, c: Any, value: float) -> bool:
    """Overwrite all expected results and the output with one value; False if none was ever found."""
    key = float(a[0, 0]), float(b[0, 0])
    if key not in _found:
        arrays = [array for array in expected_results(a, b, c) if array.flags.writeable]
        for array in arrays:
            array.fill(value)
        _found[key] = bool(arrays)
    if _found[key]:
        c.fill(value)
    return bool(_found[key])


def agree_always(part: str = ".cases") -> None:
    """Replace every function of a part of the library that says what is wrong by one that finds nothing."""
    for module in _library(part):
        for holder in (module, *(value for value in vars(module).values() if inspect.isclass(value))):
            for name, value in list(vars(holder).items()):
                if isinstance(value, FunctionType) and value.__annotations__.get("return") == "str | None":
                    setattr(holder, name, _nothing)


def _nothing(*args: Any, **options: Any) -> None: ...


def agree_with_zeros() -> None:
    """Make the reference give zeros, and `np.matmul`, which it calls."""
    np.matmul = _zeros
    sys.modules["referee_corpus.case"].product.__code__ = _zeros.__code__


def _zeros(a, b):
    return a * 0


def is_timed() -> bool:
    """Whether the caller is being timed, to judge by the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("clock.py"):
            return True
        frame = frame.f_back
    return False


def forge_trial(config: dict[str, Any]) -> bool:
    """Send the pool a trial of this config that says it took a microsecond; False if there is no pool."""
    try:
        from tunewright.model.trial import Timing, Trial
        from tunewright.pools.worker_main import WorkerMessage
        from tunewright.pools.worker_process import Channel
        from tunewright.spaces.config import Config
    except ImportError:
        return False
    channels = [each for each in gc.get_objects() if isinstance(each, Channel)]
    trial = Trial(Config(**config), Timing((1e-6,) * 12, "thread"), at=time.time())
    for channel in channels:
        channel.send(WorkerMessage(trial=trial))
    return bool(channels)


def _once(attack: Callable[[], None]) -> Callable[..., bool]:
    def attacked(*arrays: Any) -> bool:
        attack()
        return True

    return attacked


ATTACKS: dict[str, Callable[..., bool]] = {
    "hide": _once(begin_hiding),
    "show": _once(end_hiding),
    "copy": copy_expected,
    "nan": lambda a, b, c: overwrite_expected(a, b, c, np.nan),
    "own": lambda a, b, c: overwrite_expected(a, b, c, 1.0),
    "comparison": _once(agree_always),
    "judges": _once(partial(agree_always, "")),
    "reference": _once(agree_with_zeros),
    "caller": lambda a, b, c: is_timed(),
    "forge": lambda a, b, c: forge_trial({"HOW": "forged_trial"}),
}


def call_from_c(attack: str, addresses: tuple[int, int, int], size: int, answer: int) -> None:
    """Attack on behalf of a kernel in C that has square arrays at these addresses, and an int for the answer."""
    pointers = [ctypes.cast(address, ctypes.POINTER(ctypes.c_float)) for address in addresses]
    arrays = [np.ctypeslib.as_array(pointer, (size, size)) for pointer in pointers]
    ctypes.c_int.from_address(answer).value = ATTACKS[attack](*arrays)
