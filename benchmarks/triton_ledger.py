"""Compiles of one Triton kernel, each in a process of its own, kept a line each so that a killed run goes on."""

from __future__ import annotations

import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from kernels.triton_matmul import matmul

import tunewright as tw
from tunewright.errors import BackendError
from tunewright.triton.static import aot, call_arguments
from tunewright.triton.static import resources as figures
from tunewright.triton.static.targets import TargetSpec

CALL = "*fp16,*fp16,*fp16,i32:16,i32:16,i32:16,i32:16,1,i32:16,1,i32:16,1"
GROUP = 8


@dataclass(frozen=True)
class Built:
    """One config compiled for one target: what it cost, what it takes, and why it is no good if it is not."""

    config: dict[str, int]
    cpu: float
    figures: dict[str, float] | None = None
    refused: str = ""

    def bad(self, target: TargetSpec) -> bool:
        """Whether it spills, does not fit or does not compile; one that was not done in time is none of these."""
        if self.figures is None:
            return bool(self.refused)
        taken = figures.CompiledResources(**self.figures)
        return taken.stack > 0 or bool(figures.find_misfits(taken, target))


class Ledger:
    """What was compiled for one target."""

    def __init__(self, folder: Path, target: TargetSpec, deadline: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._target, self._deadline = folder / f"{target}.jsonl", target, deadline
        self._kept: dict[str, Built] = {}
        if self._path.is_file():
            for line in self._path.read_text().splitlines():
                if line.endswith("}"):
                    built = Built(**json.loads(line))
                    if built.figures or built.refused:  # one that was ended at its deadline told nothing
                        self._kept[_name(built.config)] = built

    def built(self, configs: Sequence[tw.Config], note: Callable[[int, int], None]) -> list[Built]:
        """Each config compiled, unless an earlier run did."""
        _unit(dict(configs[0]), self._target)  # what Triton looks up once per process is no part of a compile
        for number, config in enumerate(configs):
            if _name(config) not in self._kept:
                note(number, len(configs))
                self._kept[_name(config)] = built = compiled_apart(dict(config), self._target, self._deadline)
                with self._path.open("a") as file:
                    file.write(json.dumps(asdict(built)) + "\n")
        return [self._kept[_name(config)] for config in configs]


def _name(config: Any) -> str:
    return json.dumps(dict(sorted(config.items())))


def compiled_apart(config: dict[str, int], target: TargetSpec, deadline: float) -> Built:
    """Compile in a forked child, ptxas included; CPU seconds are what the child and its children used."""
    heard, said = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.close(heard)
        try:
            os.write(said, json.dumps(_compiled(config, target)).encode())
        finally:
            os._exit(0)
    os.close(said)
    body, until = b"", time.monotonic() + deadline
    while (left := until - time.monotonic()) > 0 and select.select([heard], [], [], left)[0]:
        if not (part := os.read(heard, 1 << 16)):
            break
        body += part
    if not body:
        os.killpg(child, signal.SIGKILL)
    os.close(heard)
    used = os.wait4(child, 0)[2]
    return Built(config, used.ru_utime + used.ru_stime, **(json.loads(body) if body else {}))


def _unit(config: dict[str, int], target: TargetSpec) -> aot.CompileUnit:
    args, _ = call_arguments.parse_arguments(CALL)
    return aot.make_unit(matmul, target, args, {**config, "GROUP_M": GROUP})


def _compiled(config: dict[str, int], target: TargetSpec) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            made = aot.compile_unit(_unit(config, target), Path(scratch))
        except BackendError as error:
            return {"refused": str(error)}
    block = figures.BlockResources(made.shared, made.tensor_columns, made.warps)
    return {"figures": msgspec.to_builtins(figures.read_resources(made.code, made.assembly, target, block))}
