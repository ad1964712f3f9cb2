"""The OpenCL backend: a kernel in a .cl file, built for one device by its driver."""

from __future__ import annotations

import inspect
import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tunewright.backends.c_source import SourceFileBackend, compiler_options, local_includes, normalize_source
from tunewright.backends.host import digest, function_digest
from tunewright.errors import BackendError, SignatureError, SpaceError
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.opencl.device import OpenCLContext, driver, open_device
from tunewright.opencl.launch import EventTimer, Geometry, OpenCLLaunch
from tunewright.opencl.source import KernelArgument, first_error, parse_arguments
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config
from tunewright.stores import artifacts

GroupCount = Callable[..., int | Sequence[int]]
"""A function that takes sizes and knobs by name, and returns the number of work-groups along each axis."""


class DeviceSelector(msgspec.Struct, frozen=True):
    """Where kernels run: a device by a part of its name or platform, how many of its compute units (None: all), and
    whether it uses host arrays in place (None: if it is a CPU).
    """

    device: str | None = None
    units: int | None = None
    shared: bool | None = None


class OpenCLBinary(msgspec.Struct, frozen=True):
    """The binary of a program, and the geometry of its launches."""

    path: Path
    geometry: Geometry


class OpenCL(SourceFileBackend):
    """A kernel in an OpenCL file, with one argument per Python parameter.

    Arrays arrive as `__global` pointers, numbers as the kernel declares them. Each knob is a macro (`-DTILE=32`), a
    knob whose values begin with a dash is a build option, and each named dimension is a macro too. `local` gives the
    work-items of a group along each axis, as names of knobs or as numbers; `groups` says how many groups there are,
    as a function of sizes and knobs: `groups=lambda M, N, TM, TN: (N // TN, M // TM)`.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        function: str | None = None,
        *,
        groups: GroupCount,
        local: Sequence[str | int],
        flags: str = "",
        on: DeviceSelector | None = None,
    ) -> None:
        if not 1 <= len(local) <= 3:
            raise BackendError(f'local= has {len(local)} axes; write one to three, as in local=("LX", "LY")')
        super().__init__(source)
        self._function, self._flags = function, shlex.split(flags)
        self._groups, self._local, self._selector = groups, tuple(local), on or DeviceSelector()

    @property
    def context(self) -> OpenCLContext:
        """The device with its context and queue, opened once per process."""
        driver()
        return open_device(self._selector.device, self._selector.units)

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns how calls are distinguished."""
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the source without comments, the launch geometry, the device with its limits, its driver."""
        files = self._files()
        self._check(kernel, signature, self._kernel_arguments(kernel, files))
        return Key(
            kernel.name, self._source_digest(files, kernel), signature, self.context.describe(), self._toolchain(), mode
        )

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> OpenCLBinary:
        """Builds the binary of the program, after a first launch: some drivers compile only then."""
        files, context = self._files(), self.context
        geometry = self.geometry(config, signature.dims)
        options = self._options(config, signature)
        texts = [f"{name}\n{text}" for name, text in sorted(files.items())]
        content = [*options, *texts, repr(geometry), repr(context.describe()), *self._toolchain().values()]
        name = f"{digest(*content, *signature.args)}.clbin"
        if stored := artifacts.find_artifact(kernel, name):
            return OpenCLBinary(stored, geometry)
        if kernel.artifacts is not None:
            kernel.artifacts.before_compile(kernel.name)
        label = artifacts.ArtifactLabel(
            name, kernel.name, self._source_digest(files, kernel), config, signature, self._toolchain()
        )
        arguments = self._kernel_arguments(kernel, files)
        binary = self._compile(kernel, options, files, self._first_launch(kernel, arguments, signature, geometry))
        return OpenCLBinary(artifacts.save_artifact(kernel.cache, binary, label), geometry)

    def load(self, kernel: Kernel, artifact: OpenCLBinary) -> Launch:
        """Loads the kernel from the binary; it takes numpy arrays and numbers."""
        program = artifacts.load_artifact(
            artifact.path, self._open, lambda label: self.build(kernel, label.config, label.signature).path
        )
        return self._launch(kernel, program, artifact.geometry, self._kernel_arguments(kernel, self._files()))

    def _open(self, binary: bytes) -> Any:
        """Returns the program in a binary."""
        cl, context = driver(), self.context
        with _driver_errors(self.path.name):
            return cl.Program(context.context, [context.device], [binary]).build()

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> EventTimer:
        """Returns a timer of the launch alone by device events; transfers are not timed."""
        assert isinstance(launch, OpenCLLaunch)
        return EventTimer(launch, args)

    def geometry(self, config: Mapping[str, Any], dims: Mapping[str, int]) -> Geometry:
        """Returns work-groups and their work-items for a config and sizes."""
        values = {**dims, **config}
        names = list(inspect.signature(self._groups).parameters)
        if unknown := [name for name in (*names, *self._local) if isinstance(name, str) and name not in values]:
            raise SpaceError(f"{unknown[0]!r} is neither a knob nor a named size; known: {', '.join(values)}")
        local = tuple(int(values[part] if isinstance(part, str) else part) for part in self._local)
        group_count = self._groups(**{name: values[name] for name in names})
        groups = (group_count,) if isinstance(group_count, int) else tuple(int(count) for count in group_count)
        if len(groups) != len(local):
            raise BackendError(f"groups= has {len(groups)} axes, but local= has {len(local)}; they must be equal")
        if min(groups) < 1:
            raise BackendError(f"groups= returned {groups}, fewer than one work-group; round up: -(-M // TM)")
        if (items := int(np.prod(local))) > (limit := self.context.max_work_group_size):
            raise BackendError(f"a work-group of {items} work-items is too large: the limit is {limit}; add a Rule")
        return Geometry(groups, local)

    def _files(self) -> dict[str, str]:
        """Returns the current text of the source and its headers, by name."""
        files = {os.path.relpath(path, self.path.parent): path for path in [self.path, *local_includes(self.path)]}
        return {name: path.read_text(errors="replace") for name, path in files.items()}

    def _source_digest(self, files: Mapping[str, str], kernel: Kernel) -> str:
        texts = [f"{name}\n{normalize_source(text)}" for name, text in sorted(files.items())]
        return digest(*texts, self._function or kernel.name, function_digest(self._groups), repr(self._local))

    def _toolchain(self) -> dict[str, str]:
        flags = {"opencl flags": " ".join(self._flags)} if self._flags else {}
        return self.context.toolchain() | flags

    def _options(self, config: Config, signature: Signature) -> list[str]:
        return [*self._flags, *(f"-D{name}={size}" for name, size in signature.dims.items()), *compiler_options(config)]

    def _kernel_arguments(self, kernel: Kernel, files: Mapping[str, str]) -> list[KernelArgument]:
        name = self._function or kernel.name
        arguments = next(filter(None, (parse_arguments(text, name) for text in files.values())), None)
        if arguments is None:
            raise BackendError(f"{self.path.name} has no single kernel {name!r}; name it with `function=`")
        return arguments

    def _check(self, kernel: Kernel, signature: Signature, arguments: Sequence[KernelArgument]) -> None:
        """Raises SignatureError for arguments that the kernel would misread, since it cannot check them itself."""
        if len(arguments) != len(kernel.parameters):
            raise SignatureError(
                f"{self.path.name}: the kernel takes {len(arguments)} arguments, not {len(kernel.parameters)}"
            )
        for parameter, text, argument in zip(kernel.parameters, signature.args, arguments, strict=True):
            name, is_array = parameter.name, "[" in text
            if argument.is_local:
                raise SignatureError(f"{name} is a __local argument; declare it inside the kernel, sized by knobs")
            if argument.is_pointer != is_array:
                raise SignatureError(
                    f"{name} is {text}, but the kernel takes {'a pointer' if argument.is_pointer else 'a number'}"
                )
            if not is_array and argument.dtype is None:
                raise SignatureError(f"the kernel's type of {name} is not known; use int, long, float or double")
            if text.rpartition("]")[2].startswith(":"):
                raise SignatureError(
                    f"{name} is {text}, but the kernel needs contiguous arrays; pass np.ascontiguousarray({name})"
                )
            dtype = text.partition("[")[0]
            if is_array and argument.dtype is not None and argument.dtype != np.dtype(dtype):
                raise SignatureError(
                    f"{name} is an array of {dtype}, but the kernel takes a pointer to {argument.dtype}"
                )

    def _first_launch(
        self, kernel: Kernel, arguments: Sequence[KernelArgument], signature: Signature, geometry: Geometry
    ) -> Callable[[Any], None]:
        """Returns a function that launches a program on zeros."""
        args = [
            _zero_argument(text, argument, signature.dims)
            for text, argument in zip(signature.args, arguments, strict=True)
        ]
        return lambda program: self._launch(kernel, program, geometry, arguments)(*args)

    def _launch(
        self, kernel: Kernel, program: Any, geometry: Geometry, arguments: Sequence[KernelArgument]
    ) -> OpenCLLaunch:
        context, shared = self.context, self._selector.shared
        function = driver().Kernel(program, self._function or kernel.name)
        shared = context.is_cpu if shared is None else shared
        return OpenCLLaunch(context, function, geometry, kernel.parameters, arguments, shared=shared)

    def _compile(
        self, kernel: Kernel, options: Sequence[str], files: Mapping[str, str], first: Callable[[Any], None]
    ) -> bytes:
        cl, context = driver(), self.context
        included = ["-I", str(self.path.parent)] if len(files) > 1 else []
        with _driver_errors(self.path.name):
            program = cl.Program(context.context, files[self.path.name]).build([*options, *included], cache_dir=False)
            first(program)
            # Not before the launch: a driver that compiles for the work-group size would return half a program.
            return bytes(program.get_info(cl.program_info.BINARIES)[0])


@contextmanager
def _driver_errors(name: str) -> Iterator[None]:
    """Turns errors of the driver into BackendError with the file name; ignores its warnings."""
    cl = driver()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except cl.Error as error:
        raise BackendError(f"{name}: {first_error(str(error))}") from error


def _zero_argument(text: str, argument: KernelArgument, dims: Mapping[str, int]) -> Any:
    """Returns an argument that fits a signature: zeros, or the number itself if it is known."""
    if argument.is_pointer:
        dtype, _, inside = text.partition("]")[0].partition("[")
        return np.zeros([int(dims.get(part, part)) for part in inside.split(",") if part], dtype)
    kind, _, value = text.partition("=")
    if kind in ("int", "bool"):
        return int(value == "True") if kind == "bool" else int(value)
    return 0
