"""Backend for MLIR payloads: the config selects the schedule that builds the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tunewright.backends.host import cpu, digest
from tunewright.backends.libraries import open_library
from tunewright.errors import BackendError, SignatureError
from tunewright.measure.clock import HostTimer
from tunewright.mlir import compiler
from tunewright.mlir.launch import MlirLaunch, load_openmp
from tunewright.mlir.linking import KEPT_BYTES, MEMORY, link, share_memory
from tunewright.mlir.payload import Payload
from tunewright.mlir.plan import SchedulePlan
from tunewright.mlir.processor import USES_TILES, allow_tiles
from tunewright.mlir.schedule import Schedule
from tunewright.mlir.script import TransformScript
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import VARIANT, Config
from tunewright.stores import artifacts
from tunewright.stores.scratch import scratch_folder

ScheduleSource = (
    SchedulePlan | Schedule | TransformScript | str | Callable[[Config], "Schedule | TransformScript | str"]
)

_WHITESPACE = re.compile(r'(?P<keep>"(?:\\.|[^"\\])*")|(?:\s|//[^\n]*)+')
_DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
          "i32": "int32", "i64": "int64", "i1": "bool"}  # fmt: skip


class Mlir:
    """Builds a payload with a plan, one schedule or transform script, or a function from config to one.

    The artifact is machine code in a shared library: a process that finds it built needs no compiler.
    """

    def __init__(self, payload: Payload | str, schedule: ScheduleSource, *, threads: int = 1) -> None:
        if threads < 1:
            raise BackendError(f"a kernel runs on 1 thread or more, not on {threads}")
        self.payload = payload if isinstance(payload, Payload) else Payload(payload)
        self.schedule, self.threads = schedule, threads
        self.entry = compiler.entry_point(self.payload.text)
        self.types = argument_types(self.payload.text, self.entry)

    def script(self, config: Mapping[str, Any]) -> TransformScript:
        """Returns the transform script of a config."""
        schedule: Any = self.schedule
        if isinstance(schedule, SchedulePlan):
            schedule = schedule.schedule(config)
        elif callable(schedule):
            schedule = schedule(Config(config))
        if isinstance(schedule, Schedule):
            return schedule.script()
        return schedule if isinstance(schedule, TransformScript) else TransformScript.parse(schedule)

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns the call signature of a kernel."""
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns the key: the normalized payload, this CPU, and the compiler's release."""
        self._check(kernel, signature)
        source = digest(normalize_mlir(self.payload.text), str(self.threads))
        return Key(kernel.name, source, signature, cpu(), _toolchain(_torch_mlir_release(kernel)), mode)

    def _check(self, kernel: Kernel, signature: Signature) -> None:
        """Raise an error for arrays that do not match the payload's arguments."""
        if len(self.types) != len(kernel.parameters):
            raise SignatureError(f"the payload takes {len(self.types)} arguments, the kernel {len(kernel.parameters)}")
        for parameter, text, kind in zip(kernel.parameters, signature.args, self.types, strict=True):
            if not kind.startswith("memref"):
                continue
            if text.rpartition("]")[2].startswith(":"):
                raise SignatureError(
                    f"{parameter.name} is {text}, but the payload takes contiguous arrays: "
                    f"pass np.ascontiguousarray({parameter.name})"
                )
            dtype, _, inside = text.rstrip("]").partition("[")
            sizes = [signature.dims.get(dim, dim) for dim in inside.split(",") if dim]
            *expected, element = kind.removeprefix("memref<").rstrip(">").split("x")
            fits = len(sizes) == len(expected) and all(
                dim in ("?", str(size)) for dim, size in zip(expected, sizes, strict=True)
            )
            if dtype != _DTYPES.get(element, element) or not fits:
                raise SignatureError(
                    f"{parameter.name} is {dtype}[{','.join(map(str, sizes))}], the payload takes {kind}"
                )

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Path:
        """Returns a shared library, from the cache if it was built from the same texts before."""
        script, threads = self.script(config), self._threads_of(config)
        text = normalize_mlir(self.payload.text)
        passes = compiler.lowering_passes(text, script.options, threads)
        # The code is for this processor, so the processor is part of the name.
        release = _torch_mlir_release(kernel)
        linked = f"{KEPT_BYTES} {MEMORY}"
        name = f"{digest(release, text, str(script), *passes, linked, *cpu().features, cpu().model)}.so"
        if cached := artifacts.find_artifact(kernel, name):
            return cached
        source = digest(text, str(self.threads))
        label = artifacts.ArtifactLabel(
            name, kernel.name, source, config, signature, _toolchain(compiler.installed_release())
        )
        return self._compile(kernel, script, threads, label)

    def _threads_of(self, config: Config) -> int:
        serial = self.schedule.serial if isinstance(self.schedule, SchedulePlan) else ()
        return 1 if config.get(VARIANT) in serial else self.threads

    def _compile(self, kernel: Kernel, script: TransformScript, threads: int, label: artifacts.ArtifactLabel) -> Path:
        if kernel.artifacts is not None:
            kernel.artifacts.before_compile(kernel.name)
        library = load_openmp() if threads > 1 else ""
        with scratch_folder(kernel.cache) as scratch:
            unit, shared = scratch / "kernel.o", scratch / "kernel.so"
            compiler.compile_object(self.payload.text, script, unit, threads=threads, openmp=library)
            link(unit, shared)
            return artifacts.save_artifact(kernel.cache, shared.read_bytes(), label)

    def load(self, kernel: Kernel, artifact: Path) -> Launch:
        """Returns the payload's function as a launch for numpy arrays and scalars."""
        if self.threads > 1:
            load_openmp()
        library = artifacts.load_artifact(
            artifact,
            lambda content: open_library(content, artifact),
            lambda label: self.build(kernel, label.config, label.signature),
        )
        share_memory(library)
        if hasattr(library, USES_TILES) and not allow_tiles():
            raise BackendError(
                "this kernel uses tile registers (AMX), which the system does not let this process use; tune it here "
                "again, which leaves them out"
            )
        return MlirLaunch(library[f"_mlir_ciface_{self.entry}"], kernel.parameters, self.types)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """Returns a timer of calls, conversion of the arguments included."""
        return HostTimer(partial(launch, *args), threads)


def _toolchain(release: str) -> dict[str, str]:
    return {"torch-mlir": release}


def _torch_mlir_release(kernel: Kernel) -> str:
    """Returns the release that built the store's artifact, else the installed one."""
    adopted = artifacts.adopt_toolchain(kernel, lambda fields: _toolchain(fields["torch-mlir"]), ["torch-mlir"])
    return adopted["torch-mlir"] if adopted else compiler.installed_release()


def normalize_mlir(text: str) -> str:
    """Returns MLIR text without comments and with normalized whitespace."""
    return _WHITESPACE.sub(lambda match: match["keep"] or " ", text).strip()


def argument_types(payload: str, entry: str) -> list[str]:
    """Returns the argument types of the payload's function."""
    start = re.search(rf"@{re.escape(entry)}\s*\(([^)]*)\)", payload)
    if start is None:
        raise BackendError(f"cannot read the arguments of {entry} in the payload")
    types = [part.partition(":")[2].strip() for part in re.split(r",(?![^<]*>)", start[1]) if part.strip()]
    return [text.partition("{")[0].strip() for text in types]
