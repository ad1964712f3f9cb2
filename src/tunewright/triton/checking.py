"""Checks the results of a kernel without a GPU: in Triton's interpreter (rung 3), or compiled and emulated."""

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
    kernel: Checkable,
    shapes: Sequence[Mapping[str, int]] = (),
    configs: Sequence[int] = (),
    seconds: float = 120.0,
    *,
    gpu: str | None = None,
) -> list[Checked]:
    """Runs every config, or those numbered, at every shape, and compares with the reference.

    They run in Triton's interpreter; with `gpu="sm_90"` they are compiled for that GPU and executed in the emulator,
    where data races and other faults of the compiled code are found too.
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
        messages = _run_process(target, remaining, seconds, gpu)
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


def serve_requests(output: str, run: Callable[[Any, Any, Mapping[str, int], Any], str | None]) -> None:
    """Reads what to run from standard input, and appends a line to the file `output` for each result."""
    from tunewright.pools.kernel_loader import load_target  # noqa: PLC0415 - only in the process of a check
    from tunewright.triton.installing import installed  # noqa: PLC0415

    request = json.loads(sys.stdin.read())
    with installed():  # the kernel may be decorated by Triton itself
        kernel = load_target(request["target"])
    with Path(output).open("a") as results:
        for shape, number in request["left"]:
            results.write(json.dumps(run(kernel, kernel.configs[number], shape, request["gpu"])) + "\n")
            results.flush()


def _run_process(
    target: str, remaining: Sequence[tuple[dict[str, int], int]], seconds: float, gpu: str | None
) -> list[str | None]:
    """Returns results of the first of the remaining runs from a process; at least one, even if the process dies."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # noqa: TID251 - passed on
    if gpu is None:
        environ["TRITON_INTERPRET"] = "1"
    else:
        environ.pop("TRITON_INTERPRET", None)
    with tempfile.TemporaryDirectory() as folder:
        request, output, errors = (Path(folder) / name for name in ("request", "output", "errors"))
        request.write_text(json.dumps({"target": target, "left": remaining, "gpu": gpu}))
        output.touch()
        process_name = "tunewright.triton.interpreter_main" if gpu is None else "tunewright.emulator.triton_main"
        command = [sys.executable, "-m", process_name, str(output)]
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
