"""Checking: are the results of a kernel right? On a GPU in trials; without one in Triton's interpreter (rung 3)."""

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

from tunewright.cases.judge import HALVES, Nearness, objection
from tunewright.errors import SignatureError
from tunewright.fronts.triton.telling import Telling

SMALL, RAGGED = 32, (33, 47, 19, 61, 29)
"""Sizes to check at where none are named: one that tiles fit, and some that they do not."""


class Checked(msgspec.Struct, frozen=True):
    """A config on one shape, and what is wrong with its results; None if nothing is."""

    shape: dict[str, int]
    config: str
    wrong: str | None = None


class Checkable(Protocol):
    """A tuned Triton kernel, as far as its results are concerned."""

    said: Telling
    configs: Sequence[Any]
    base_fn: Any

    def target(self) -> str | None:
        """Where another process finds it."""
        ...


def check(
    kernel: Checkable, shapes: Sequence[Mapping[str, int]] = (), configs: Sequence[int] = (), seconds: float = 120.0
) -> list[Checked]:
    """Every config, or those numbered, on every shape in the interpreter, in a process of its own, judged by the
    reference. One that crashes or takes longer than `seconds` is said to, and the others go on.
    """
    said, target, name = told_of(kernel), kernel.target(), kernel.base_fn.__name__
    if said.reference is None or said.inputs is None:
        raise SignatureError(f"{name} has nothing to be checked with; declare reference= and inputs=")
    if target is None:
        raise SignatureError(f"{name} cannot be found by name from another process; put it into a module")
    wanted = [dict(shape) for shape in shapes or said.shapes or _shapes(said.inputs)]
    left = [(shape, number) for number in configs or range(len(kernel.configs)) for shape in wanted]
    done: list[Checked] = []
    while left:
        told = _interpreted(target, left, seconds)
        texts = [str(kernel.configs[number]) for _, number in left]
        done += [Checked(left[i][0], texts[i], wrong) for i, wrong in enumerate(told)]
        left = left[len(told) :]
    return done


def told_of(kernel: Checkable) -> Telling:
    """What is said of a kernel; its module may have functions `inputs` and `reference` where the decorator is
    Triton's own, which takes none.
    """
    module, said = sys.modules.get(kernel.base_fn.__module__), kernel.said
    reference = said.reference or getattr(module, "reference", None)
    return msgspec.structs.replace(said, reference=reference, inputs=said.inputs or getattr(module, "inputs", None))


def _shapes(inputs: Callable[..., Any]) -> list[dict[str, int]]:
    """Small and ragged sizes for every name that `inputs` takes."""
    names = list(inspect.signature(inputs).parameters)
    ragged = {name: RAGGED[i % len(RAGGED)] for i, name in enumerate(names)}
    return [dict.fromkeys(names, SMALL), ragged]


def _interpreted(target: str, left: Sequence[tuple[dict[str, int], int]], seconds: float) -> list[str | None]:
    """What a process in the interpreter says of the first of those left; at least one, also if it dies of it."""
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # noqa: TID251 - handed on
    with tempfile.TemporaryDirectory() as folder:
        asked, place, errors = (Path(folder) / name for name in ("asked", "told", "errors"))
        asked.write_text(json.dumps({"target": target, "left": left}))
        place.touch()
        command = [sys.executable, "-m", "tunewright.fronts.triton.interpreting", str(place)]
        with asked.open() as stdin, errors.open("w") as stderr:
            process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=stderr, env=environ)
            died = _awaited(process, place, seconds)
        if not died and process.returncode:
            said = errors.read_text().strip().splitlines() or [f"exit code {process.returncode}"]
            died = f"the process died: {said[-1]}"
        told: list[str | None] = [json.loads(line) for line in place.read_text().splitlines()]
    return [*told, died or "the process ended early"] if len(told) < len(left) else told


def _awaited(process: subprocess.Popen[bytes], place: Path, seconds: float) -> str:
    """Wait for a process while `place` grows; why it was killed, if it was."""
    size, since = 0, monotonic()
    try:
        while process.poll() is None:
            if (now := place.stat().st_size) != size:
                size, since = now, monotonic()
            elif monotonic() - since > seconds:
                return f"it did not end within {seconds:g} s"
            sleep(0.05)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return ""


def judge_of(said: Telling, named: Mapping[str, Any], stored: Mapping[str, Any]) -> Callable[[], str | None] | None:
    """Says what is wrong with what a launch left in the tensors `stored`; None where there is no reference."""
    if said.reference is None:
        return None
    wanted = list(inspect.signature(said.reference).parameters)
    if strange := [name for name in wanted if name not in named]:
        raise SignatureError(f"the reference takes {strange[0]!r}, which is no argument of the kernel")
    told = said.reference(**{name: _apart(named[name]) for name in wanted})
    right = told.values() if isinstance(told, Mapping) else told if isinstance(told, tuple) else (told,)
    names = list(told) if isinstance(told, Mapping) else list(stored)
    expected = [_array(value) for value in right]
    near = Nearness(_tolerance(said, stored), max([64, *(size for one in stored.values() for size in one.shape)]))
    return lambda: objection(expected, {name: _array(stored[name]) for name in names}, near)


def _apart(value: Any) -> Any:
    """An argument that a reference may do with as it likes."""
    return value.clone() if hasattr(value, "clone") else value


def _array(tensor: Any) -> Any:
    """A tensor as numpy knows it; types that numpy has not, in single precision."""
    found = tensor.detach().cpu()
    return (found.float() if str(found.dtype).removeprefix("torch.") in _FOREIGN else found).numpy()


_FOREIGN = {"bfloat16": HALVES["bfloat16"], "float8_e4m3fn": 0.15, "float8_e5m2": 0.3}


def _tolerance(said: Telling, stored: Mapping[str, Any]) -> float | None:
    foreign = [_FOREIGN.get(str(tensor.dtype).removeprefix("torch."), 0.0) for tensor in stored.values()]
    return said.tolerance if said.tolerance is not None else max(foreign, default=0.0) or None
