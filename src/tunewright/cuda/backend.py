"""The CUDA C++ backend: knobs become macros, template arguments and flags; without a GPU, calls are emulated."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec

from tunewright.backends.c_source import (
    SourceFileBackend,
    check_arrays,
    compiler_options,
    find_includes,
    normalize_source,
    parse_prototype,
)
from tunewright.backends.gpu_targets import TARGETS, find_target
from tunewright.backends.grid_launch import GridLaunch, Shape
from tunewright.backends.host import digest, function_digest
from tunewright.cuda.card import CardLaunch, CardTimer
from tunewright.cuda.driver import CudaCard, find_card, require_card
from tunewright.cuda.launch import EmulatedLaunch
from tunewright.cuda.nvcc import BuildRequest, CudaBuild, Nvcc, find_nvcc
from tunewright.cuda.nvrtc import Nvrtc, find_nvrtc, require_nvrtc
from tunewright.cuda.resources import check_resources, check_shape
from tunewright.errors import BackendError, SettingsError, SpaceError
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.ports.backend import Kernel, Launch, Timer
from tunewright.spaces.config import Config
from tunewright.stores import artifacts
from tunewright.stores.scratch import scratch_folder

Sizes = Callable[..., int | Sequence[int]] | int | str | Sequence[str | int]
"""One to three sizes: numbers, names of knobs and sizes, or a function that takes these by name and returns numbers."""

DEFAULT_TARGET = "sm_80"
UNTIMED = (
    "CUDA kernels are executed in the emulator here, which has no times to choose by; "
    "see which configs are right with `tunewright cuda check`, and set one with default= or at a call"
)
"""Why no search can be made without a GPU."""

_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)")


class CudaOptions(TypedDict, total=False):
    """Further options of `Cuda`.

    - `template`: the template arguments of the kernel, in order: names of knobs, or C++ text such as "float". Knobs
      that are named here are no macros.
    - `shared`: bytes of shared memory that a launch adds, a number or a function of sizes and knobs.
    - `flags`: of the compiler, as in "-O3 --use_fast_math".
    - `include`: folders of headers, relative to the source.
    - `sizes`: "arguments" (the kernel takes sizes as it declares) or "macros" (named sizes are macros too).
    - `compiler`: a path of nvcc, or "nvrtc"; by default the first nvcc on the path, or else NVRTC if it is installed.
    - `device`: "gpu" or "emulator" runs calls there; by default on the GPU, if there is one that runs the target.
    """

    template: Sequence[str]
    shared: int | Callable[..., int]
    flags: str
    include: Sequence[str | os.PathLike[str]]
    sizes: str
    compiler: str | None
    device: str


class CudaArtifact(msgspec.Struct, frozen=True):
    """A compiled config: where it is kept, and the shape of its launches."""

    path: Path
    shape: GridLaunch


class Cuda(SourceFileBackend):
    """A kernel in CUDA C++, compiled for `target`, with one argument per Python parameter.

    Each knob is a macro (`-DTILE=32`), or a template argument if `template` names it; a knob whose values begin with a
    dash is a flag. `grid` and `block` give blocks and threads along each axis: functions of named sizes and knobs, or
    for `block` also names of knobs and numbers. A kernel with more arguments than the function has gets the named sizes
    after them. The target is that of the GPU, or sm_80. Without a GPU that runs it, calls are executed in the emulator,
    and nothing is timed. `CudaOptions` lists the other options.

    Example: `Cuda("transpose.cu", grid=lambda M, N, TILE: (-(-N // TILE), -(-M // TILE)), block=("TILE", "ROWS"))`
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        function: str | None = None,
        *,
        grid: Sizes,
        block: Sizes,
        target: str | None = None,
        **options: Unpack[CudaOptions],
    ) -> None:
        if unknown := sorted(set(options) - CudaOptions.__optional_keys__):
            known = ", ".join(CudaOptions.__annotations__)
            raise BackendError(f"Cuda has no option {unknown[0]!r}; options: {known}")
        if options.get("sizes", "arguments") not in ("arguments", "macros"):
            raise BackendError(f'sizes= must be "arguments" or "macros", not {options["sizes"]!r}')
        if options.get("device", "") not in ("", "gpu", "emulator"):
            raise BackendError(f'device= must be "gpu" or "emulator", not {options["device"]!r}')
        super().__init__(source)
        self._function, self._grid, self._block, self._options = function, grid, block, options
        self._flags = shlex.split(options.get("flags", ""))
        self._template = tuple(options.get("template", ()))
        self.compile_for(target or self._find_target())

    def _find_target(self) -> str:
        """Returns the newest target that the card runs."""
        card = None if self._options.get("device") == "emulator" else find_card()
        known = [name for name in TARGETS if name.startswith("sm_") and card and card.runs(name)]
        return known[-1] if known else DEFAULT_TARGET

    @property
    def card(self) -> CudaCard | None:
        """The GPU that runs calls; None if they are emulated. Raises PluginError if `device` needs one."""
        device = self._options.get("device")
        if device == "emulator":
            return None
        card = require_card() if device == "gpu" else find_card()
        if card is None or card.runs(self.arch):
            return card
        if device == "gpu":
            raise BackendError(f"the GPU is of {card.arch} and does not run {self.arch}; leave target= out")
        return None

    @property
    def untimed(self) -> str:
        """Why no search can be made; empty if a GPU runs the calls."""
        return "" if self.card else UNTIMED

    def compile_for(self, target: str) -> None:
        """Sets the target: `sm_80`, or `sm_90a` for what only that architecture has."""
        self.target = find_target(target)
        if self.target.backend != "cuda":
            raise SettingsError(f"{target} is no target of CUDA; choose one such as sm_80 or sm_90")
        self.arch = self.target.name + ("a" if target.strip().lower().endswith("a") else "")

    @property
    def compiler(self) -> Nvcc | Nvrtc:
        """The compiler."""
        named = self._options.get("compiler")
        if named == "nvrtc":
            return require_nvrtc()
        try:
            return find_nvcc(named)
        except BackendError:
            if named is None and (found := find_nvrtc()) is not None:
                return found
            raise

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns how calls are distinguished."""
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the sources without comments, the launch shape, the target, and nvcc with its flags."""
        files = self._files()
        prototype = parse_prototype(_LAUNCH_BOUNDS.sub(" ", files[self.path.name]), self._function or kernel.name)
        check_arrays(kernel.parameters, signature, prototype, self.path.name)
        model = self.card.name if self.card else f"emulated {self.arch}"
        device = Device(kind="cuda", model=model, architecture=self.arch)
        return Key(kernel.name, self._source_digest(files, kernel), signature, device, self._toolchain(), mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> CudaArtifact:
        """Compiles a config, unless the same was compiled; raises DoesNotFit for one that the target cannot launch."""
        shape = self.shape(config, signature.dims)
        check_shape(shape, self.target)
        files, template = self._files(), self._template_arguments(config)
        macros = Config({name: value for name, value in config.items() if name not in self._template})
        options = [*self._flags, *(f"-I{folder}" for folder in self._folders()), *compiler_options(macros)]
        if self._options.get("sizes") == "macros":
            options += [f"-D{name}={size}" for name, size in signature.dims.items()]
        texts = [f"{name}\n{text}" for name, text in sorted(files.items())]
        function = self._function or kernel.name
        content = [*options, *texts, self.compiler.name, self.compiler.version, self.arch, function, *template]
        name = f"{digest(*content)}.cuda"
        if (path := artifacts.find_artifact(kernel, name)) is None:
            if kernel.artifacts is not None:
                kernel.artifacts.before_compile(kernel.name)
            known = [self.path, *find_includes(self.path, self._folders())]
            request = BuildRequest(self.path, function, self.arch, options, template, known)
            label = artifacts.ArtifactLabel(
                name, kernel.name, self._source_digest(files, kernel), config, signature, self._toolchain()
            )
            with scratch_folder(kernel.cache) as scratch:
                built = self.compiler.compile(request, scratch)
            if self._files() != files:
                raise BackendError(f"{self.path.name} changed while it was being built; call again")
            path = artifacts.save_artifact(kernel.cache, msgspec.msgpack.encode(built), label)
        check_resources(self.read(path).resources, shape, self.target)
        return CudaArtifact(path, shape)

    @staticmethod
    def read(path: Path) -> CudaBuild:
        """Returns the compiled kernel that is kept in a file."""
        return _decode(artifacts.read_artifact(path)[0])

    def load(self, kernel: Kernel, artifact: CudaArtifact) -> CardLaunch | EmulatedLaunch:
        """Returns a launch on the GPU, or in the emulator if there is none; it takes numpy arrays and numbers."""
        if (card := self.card) is None:
            return self.load_emulated(kernel, artifact)
        return CardLaunch(self._load(kernel, artifact), artifact.shape, kernel.parameters, card)

    def load_emulated(self, kernel: Kernel, artifact: CudaArtifact) -> EmulatedLaunch:
        """Returns a launch in the emulator."""
        return EmulatedLaunch(self._load(kernel, artifact), artifact.shape, kernel.parameters)

    def _load(self, kernel: Kernel, artifact: CudaArtifact) -> CudaBuild:
        return artifacts.load_artifact(
            artifact.path, _decode, lambda label: self.build(kernel, label.config, label.signature).path
        )

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> Timer:
        """Returns a timer by the events of the GPU; raises BackendError for the emulator, whose time says nothing."""
        if not isinstance(launch, CardLaunch):
            raise BackendError(UNTIMED)
        return CardTimer(launch, args)

    def shape(self, config: Mapping[str, Any], dims: Mapping[str, int]) -> GridLaunch:
        """Returns grid, block and added shared memory for a config and sizes."""
        values = {**dims, **config}
        shared = self._options.get("shared", 0)
        added = _evaluate(shared, values)[0] if callable(shared) else int(shared)
        grid, block = _three("grid", _sizes(self._grid, values)), _three("block", _sizes(self._block, values))
        return GridLaunch(grid, block, added)

    def _template_arguments(self, config: Mapping[str, Any]) -> list[str]:
        given = [config.get(part, part) for part in self._template]
        return [str(value).lower() if isinstance(value, bool) else str(value) for value in given]

    def _folders(self) -> list[Path]:
        return [self.path.parent / folder for folder in self._options.get("include", ())]

    def _files(self) -> dict[str, str]:
        """Returns the current text of the source and its headers, by name."""
        paths = [self.path, *find_includes(self.path, self._folders())]
        return {os.path.relpath(path, self.path.parent): path.read_text(errors="replace") for path in paths}

    def _source_digest(self, files: Mapping[str, str], kernel: Kernel) -> str:
        texts = [f"{name}\n{normalize_source(text)}" for name, text in sorted(files.items())]
        shapes = [self._grid, self._block, self._options.get("shared", 0)]
        launch = [function_digest(part) if callable(part) else repr(part) for part in shapes]
        sizes = self._options.get("sizes", "arguments")
        return digest(*texts, self._function or kernel.name, *launch, repr(self._template), sizes)

    def _toolchain(self) -> dict[str, str]:
        compiler = self.compiler
        flags = {f"{compiler.name} flags": " ".join(self._flags)} if self._flags else {}
        driver = {"cuda driver": self.card.driver_version} if self.card else {}
        return {compiler.name: compiler.version, **flags, **driver}


def _decode(content: bytes) -> CudaBuild:
    try:
        return msgspec.msgpack.decode(content, type=CudaBuild)
    except msgspec.MsgspecError as error:
        raise BackendError(f"a stored CUDA build cannot be read: {error}") from error


def _named(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise SpaceError(f"{name!r} is neither a knob nor a named size; known: {', '.join(values)}")
    return values[name]


def _sizes(given: Sizes, values: Mapping[str, Any]) -> Sequence[int]:
    """Returns the sizes of a grid or a block."""
    if callable(given):
        return _evaluate(given, values)
    parts = (given,) if isinstance(given, int | str) else given
    return [int(_named(values, part) if isinstance(part, str) else part) for part in parts]


def _evaluate(function: Callable[..., Any], values: Mapping[str, Any]) -> list[int]:
    result = function(**{name: _named(values, name) for name in inspect.signature(function).parameters})
    return [int(size) for size in (result if isinstance(result, Sequence) else [result])]


def _three(what: str, sizes: Sequence[int]) -> Shape:
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise BackendError(
            f"{what}= gives {tuple(sizes)}; it must be one to three sizes above 0: round up, -(-N // TILE)"
        )
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
