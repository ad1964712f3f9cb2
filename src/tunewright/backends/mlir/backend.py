"""Mlir: kernels said as linalg on tensors, built by the schedule that a config stands for."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tunewright.backends.host import cpu, digest
from tunewright.backends.mlir import engine
from tunewright.backends.mlir.launch import MlirLaunch, openmp
from tunewright.backends.mlir.plan import Plan
from tunewright.backends.mlir.script import Script
from tunewright.backends.mlir.steps import Schedule
from tunewright.backends.mlir.writing import Payload
from tunewright.errors import BackendError, SignatureError
from tunewright.measure.clock import HostTimer
from tunewright.model.key import Key
from tunewright.model.signature import Reading, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.sharing import artefacts
from tunewright.spaces.config import Config

Scheduling = Plan | Schedule | Script | str | Callable[[Config], "Schedule | Script | str"]

_BLANKS = re.compile(r'(?P<keep>"(?:\\.|[^"\\])*")|(?:\s|//[^\n]*)+')
_NAMES = {"f32": "float32", "f64": "float64", "f16": "float16", "i8": "int8", "i16": "int16", "i32": "int32",
          "i64": "int64", "i1": "bool"}  # fmt: skip


class Mlir:
    """A payload and how it is scheduled: by a plan, by one schedule or transform script, or by a function of the
    config that gives one.

    What is built is machine code in a shared library: a process that finds it built needs no compiler.
    """

    def __init__(self, payload: Payload | str, schedule: Scheduling, *, threads: int = 1) -> None:
        if threads < 1:
            raise BackendError(f"a kernel runs on 1 thread or more, not on {threads}")
        self.payload = payload if isinstance(payload, Payload) else Payload(payload)
        self.schedule, self.threads = schedule, threads
        self.entry = engine.entry(self.payload.text)
        self.types = argument_types(self.payload.text, self.entry)

    def script(self, config: Mapping[str, Any]) -> Script:
        """The transform script that a config stands for."""
        given: Any = self.schedule
        if isinstance(given, Plan):
            given = given.schedule(config)
        elif callable(given):
            given = given(Config(config))
        if isinstance(given, Schedule):
            return given.script()
        return given if isinstance(given, Script) else Script.parse(given)

    def signature(self, kernel: Kernel) -> Reading:
        """How to tell calls apart."""
        return Reading.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """The payload without comments and blanks, this CPU, and the compiler's release."""
        self._check(kernel, signature)
        source = digest(normalised(self.payload.text), str(self.threads))
        return Key(kernel.name, source, signature, cpu(), _toolchain(_release(kernel)), mode)

    def _check(self, kernel: Kernel, signature: Signature) -> None:
        """Refuse arrays that the payload would read as something else."""
        if len(self.types) != len(kernel.parameters):
            raise SignatureError(f"the payload takes {len(self.types)} arguments, the kernel {len(kernel.parameters)}")
        for parameter, text, kind in zip(kernel.parameters, signature.args, self.types, strict=True):
            if not kind.startswith("memref"):
                continue
            if text.rpartition("]")[2].startswith(":"):
                raise SignatureError(
                    f"{parameter.name} is {text}, but the payload takes it without gaps: "
                    f"pass np.ascontiguousarray({parameter.name})"
                )
            dtype, _, inside = text.rstrip("]").partition("[")
            sizes = [signature.dims.get(one, one) for one in inside.split(",") if one]
            *wanted, element = kind.removeprefix("memref<").rstrip(">").split("x")
            fits = len(sizes) == len(wanted) and all(
                want in ("?", str(have)) for want, have in zip(wanted, sizes, strict=True)
            )
            if dtype != _NAMES.get(element, element) or not fits:
                raise SignatureError(
                    f"{parameter.name} is {dtype}[{','.join(map(str, sizes))}], the payload takes {kind}"
                )

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Path:
        """A shared library; one that was built before from the same texts is not built again."""
        script = self.script(config)
        text, passes = normalised(self.payload.text), engine.lowering(script.options, self.threads)
        # Code is made for this very processor, which so is part of the content.
        release = _release(kernel)
        name = f"{digest(release, text, str(script), passes, *cpu().features, cpu().model)}.so"
        if there := artefacts.found(kernel, name):
            return there
        source = digest(text, str(self.threads))
        label = artefacts.Label(name, kernel.name, source, config, signature, _toolchain(engine.release()))
        return self._compiled(kernel, script, label)

    def _compiled(self, kernel: Kernel, script: Script, label: artefacts.Label) -> Path:
        import tempfile  # noqa: PLC0415 - a cached launch never needs it

        if kernel.supply is not None:
            kernel.supply.compiling(kernel.name)
        library = openmp() if self.threads > 1 else ""
        folder = artefacts.place(kernel.cache, label.name).parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            unit, made = Path(scratch) / "kernel.o", Path(scratch) / "kernel.so"
            engine.compiled(self.payload.text, script, unit, threads=self.threads, openmp=library)
            _link(unit, made)
            return artefacts.keep(kernel.cache, made, label)

    def load(self, kernel: Kernel, artifact: Path) -> Launch:
        """The payload's function, ready for numpy arrays and numbers."""
        if self.threads > 1:
            openmp()
        library = ctypes.CDLL(str(artifact))
        return MlirLaunch(library[f"_mlir_ciface_{self.entry}"], kernel.parameters, self.types)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """A call as the user makes it, conversion of its arguments included."""
        return HostTimer(partial(launch, *args), threads)


def _toolchain(release: str) -> dict[str, str]:
    return {"torch-mlir": release}


def _release(kernel: Kernel) -> str:
    """The release that built what the store brings, else the one here."""
    return artefacts.adopted(kernel, _toolchain, "torch-mlir", engine.release)


def normalised(text: str) -> str:
    """MLIR without comments, and with blanks that do not depend on who wrote it."""
    return _BLANKS.sub(lambda found: found["keep"] or " ", text).strip()


def argument_types(payload: str, entry: str) -> list[str]:
    """The types of the arguments of the payload's function."""
    start = re.search(rf"@{re.escape(entry)}\s*\(([^)]*)\)", payload)
    if start is None:
        raise BackendError(f"cannot read the arguments of {entry} in the payload")
    found = [part.partition(":")[2].strip() for part in re.split(r",(?![^<]*>)", start[1]) if part.strip()]
    return [one.partition("{")[0].strip() for one in found]


def _link(unit: Path, library: Path) -> None:
    """Make a shared library of object code, with whatever links here."""
    import shutil  # noqa: PLC0415 - as in build
    import subprocess  # noqa: PLC0415

    command = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "ld"))), None)
    if command is None:
        raise BackendError("no linker found (looked for cc, gcc, clang, ld); install gcc or clang")
    done = subprocess.run(
        [command, "-shared", "-o", str(library), str(unit)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BackendError(f"linking failed: {done.stderr.strip()[:300]}")
