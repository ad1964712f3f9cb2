"""Checks the results of a kernel: on a GPU during trials, without one in Triton's interpreter (rung 3)."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol

import msgspec

from tunewright.cases.tolerance import STORAGE_DTYPES, Tolerance, find_mismatch
from tunewright.errors import SignatureError
from tunewright.triton.options import AutotuneOptions

SMALL, RAGGED = 32, (33, 47, 19, 61, 29)
"""Sizes to check if none are declared: one that is a multiple of tiles, and some that are not."""


class Checked(msgspec.Struct, frozen=True):
    """The result of checking a config at one shape: what is wrong, or None."""

    shape: dict[str, int]
    config: str
    wrong: str | None = None


class Checkable(Protocol):
    """What `check` needs of a tuned Triton kernel."""

    options: AutotuneOptions
    configs: Sequence[Any]
    base_fn: Any

    def target(self) -> str | None:
        """Returns where another process finds it."""
        ...


def check(
    kernel: Checkable, shapes: Sequence[Mapping[str, int]] = (), configs: Sequence[int] = (), seconds: float = 120.0
) -> list[Checked]:
    """Runs every config, or those numbered, at every shape in Triton's interpreter, and compares with the reference.

    They run in another process; a config that crashes it or takes longer than `seconds` fails, and the others go on.
    """
    options, target, name = check_options(kernel), kernel.target(), kernel.base_fn.__name__
    if options.reference is None or options.inputs is None:
        raise SignatureError(f"{name} has no reference to check against; declare reference= and inputs=")
    if target is None:
        raise SignatureError(f"{name} cannot be imported by another process; define it at the top of a module")
    checked_shapes = [dict(shape) for shape in shapes or options.shapes or _default_shapes(options.inputs)]
    remaining = [(shape, number) for number in configs or range(len(kernel.configs)) for shape in checked_shapes]
    results: list[Checked] = []
    while remaining:
        messages = _run_interpreter(target, remaining, seconds)
        texts = [str(kernel.configs[number]) for _, number in remaining]
        results += [Checked(remaining[i][0], texts[i], wrong) for i, wrong in enumerate(messages)]
        remaining = remaining[len(messages) :]
    return results


def check_options(kernel: Checkable) -> AutotuneOptions:
    """Returns the options of a kernel; `inputs` and `reference` default to functions of its module, since Triton's own
    decorator takes none.
    """
    module, options = sys.modules.get(kernel.base_fn.__module__), kernel.options
    reference = options.reference or getattr(module, "reference", None)
    inputs = options.inputs or getattr(module, "inputs", None)
    return msgspec.structs.replace(options, reference=reference, inputs=inputs)


def _default_shapes(inputs: Callable[..., Any]) -> list[dict[str, int]]:
    """Returns small and ragged sizes for every parameter of `inputs`."""
    names = list(inspect.signature(inputs).parameters)
    ragged = {name: RAGGED[i % len(RAGGED)] for i, name in enumerate(names)}
    return [dict.fromkeys(names, SMALL), ragged]


def _run_interpreter(target: str, remaining: Sequence[tuple[dict[str, int], int]], seconds: float) -> list[str | None]:
    """Returns results of the first of the remaining runs from a process in the interpreter; at least one, even if the
    process dies.
    """
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # noqa: TID251 - passed on
    with tempfile.TemporaryDirectory() as folder:
        request, output, errors = (Path(folder) / name for name in ("request", "output", "errors"))
        request.write_text(json.dumps({"target": target, "left": remaining}))
        output.touch()
        command = [sys.executable, "-m", "tunewright.triton.interpreter_main", str(output)]
        with request.open() as stdin, errors.open("w") as stderr:
            process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=stderr, env=environ)
            failure = _wait(process, output, seconds)
        if not failure and process.returncode:
            lines = errors.read_text().strip().splitlines() or [f"exit code {process.returncode}"]
            failure = f"the process died: {lines[-1]}"
        messages: list[str | None] = [json.loads(line) for line in output.read_text().splitlines()]
    return [*messages, failure or "the process ended early"] if len(messages) < len(remaining) else messages


def _wait(process: subprocess.Popen[bytes], output: Path, seconds: float) -> str:
    """Waits for a process while `output` grows; returns why it was killed, or ""."""
    size, last_change = 0, monotonic()
    try:
        while process.poll() is None:
            if (new_size := output.stat().st_size) != size:
                size, last_change = new_size, monotonic()
            elif monotonic() - last_change > seconds:
                return f"it did not end within {seconds:g} s"
            sleep(0.05)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return ""


def make_checker(
    options: AutotuneOptions, arguments: Mapping[str, Any], stored: Mapping[str, Any]
) -> Callable[[], str | None] | None:
    """Returns a function that tells what is wrong in the tensors `stored` after a launch; None without a reference."""
    if options.reference is None:
        return None
    parameters = list(inspect.signature(options.reference).parameters)
    if unknown := [name for name in parameters if name not in arguments]:
        raise SignatureError(f"the reference takes {unknown[0]!r}, which is not an argument of the kernel")
    result = options.reference(**{name: _copy_if_tensor(arguments[name]) for name in parameters})
    values = result.values() if isinstance(result, Mapping) else result if isinstance(result, tuple) else (result,)
    names = list(result) if isinstance(result, Mapping) else list(stored)
    expected = [_to_numpy(value) for value in values]
    longest = max([64, *(size for tensor in stored.values() for size in tensor.shape)])
    tolerance = Tolerance(_tolerance(options, stored), longest)
    return lambda: find_mismatch(expected, {name: _to_numpy(stored[name]) for name in names}, tolerance)


def _copy_if_tensor(value: Any) -> Any:
    """Returns a copy of a tensor, which the reference may change; other values unchanged."""
    return value.clone() if hasattr(value, "clone") else value


def _to_numpy(tensor: Any) -> Any:
    """Returns a tensor as a numpy array; in single precision if numpy does not have its dtype."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if str(tensor.dtype).removeprefix("torch.") in _NON_NUMPY_TOLERANCES else tensor).numpy()


_NON_NUMPY_TOLERANCES = {"bfloat16": STORAGE_DTYPES["bfloat16"], "float8_e4m3fn": 0.15, "float8_e5m2": 0.3}


def _tolerance(options: AutotuneOptions, stored: Mapping[str, Any]) -> float | None:
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in stored.values()]
    tolerances = [_NON_NUMPY_TOLERANCES.get(dtype, 0.0) for dtype in dtypes]
    return options.tolerance if options.tolerance is not None else max(tolerances, default=0.0) or None
