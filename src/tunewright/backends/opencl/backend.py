"""OpenCL: a kernel in a .cl file, built for one device by its driver."""

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

from tunewright.backends.csource import InFile, as_options, local_includes, normalised
from tunewright.backends.host import digest, source_of
from tunewright.backends.opencl.device import Opened, driver, opened
from tunewright.backends.opencl.launch import EventTimer, Geometry, OpenCLLaunch
from tunewright.backends.opencl.source import Taken, first_error, taken
from tunewright.errors import BackendError, SignatureError, SpaceError
from tunewright.model.key import Key
from tunewright.model.signature import Reading, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.sharing import artefacts
from tunewright.spaces.config import Config

Groups = Callable[..., int | Sequence[int]]
"""A function of named sizes and knobs, by the names of its parameters: how many work-groups along each axis."""


class On(msgspec.Struct, frozen=True):
    """Where kernels run: a device by a word of its name or platform, how many of its compute units (None: all), and
    whether it uses arrays where they lie (None: if it is a processor).
    """

    device: str | None = None
    units: int | None = None
    shared: bool | None = None


class Built(msgspec.Struct, frozen=True):
    """A program's binary, and how its kernel is to be launched."""

    path: Path
    geometry: Geometry


class OpenCL(InFile):
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
        groups: Groups,
        local: Sequence[str | int],
        flags: str = "",
        on: On | None = None,
    ) -> None:
        if not 1 <= len(local) <= 3:
            raise BackendError(f'local has one to three parts, as in local=("LX", "LY"), not {len(local)}')
        super().__init__(source)
        self._function, self._flags = function, shlex.split(flags)
        self._groups, self._local, self._on = groups, tuple(local), on or On()

    @property
    def opened(self) -> Opened:
        """The device, opened once in a process."""
        driver()
        return opened(self._on.device, self._on.units)

    def signature(self, kernel: Kernel) -> Reading:
        """How to tell calls apart."""
        return Reading.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """The source without comments, how it is launched, the device with its limits, and its driver."""
        files = self._files()
        self._check(kernel, signature, self._taken(kernel, files))
        return Key(
            kernel.name, self._source(files, kernel), signature, self.opened.described(), self._toolchain(), mode
        )

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Built:
        """A binary of the program, made after a first launch: some drivers compile only then."""
        files, here = self._files(), self.opened
        geometry = self.geometry(config, signature.dims)
        options = self._options(config, signature)
        texts = [f"{name}\n{text}" for name, text in sorted(files.items())]
        content = [*options, *texts, repr(geometry), repr(here.described()), *self._toolchain().values()]
        name = f"{digest(*content, *signature.args)}.clbin"
        if there := artefacts.found(kernel, name):
            return Built(there, geometry)
        if kernel.supply is not None:
            kernel.supply.compiling(kernel.name)
        label = artefacts.Label(name, kernel.name, self._source(files, kernel), config, signature, self._toolchain())
        arguments = self._taken(kernel, files)
        binary = self._compiled(kernel, options, files, self._first(kernel, arguments, signature, geometry))
        made = artefacts.place(kernel.cache, name).with_name(f".{name}.{os.getpid()}.made")
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(binary)
        return Built(artefacts.keep(kernel.cache, made, label), geometry)

    def load(self, kernel: Kernel, artifact: Built) -> Launch:
        """The kernel in the binary, ready for numpy arrays and numbers."""
        cl, here = driver(), self.opened
        with _heard(self.path.name):
            program = cl.Program(here.context, [here.device], [artifact.path.read_bytes()]).build()
        return self._launch(kernel, program, artifact.geometry, self._taken(kernel, self._files()))

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> EventTimer:
        """The launch alone, by the device's events: what is copied there and back is not timed."""
        assert isinstance(launch, OpenCLLaunch)
        return EventTimer(launch, args)

    def geometry(self, config: Mapping[str, Any], dims: Mapping[str, int]) -> Geometry:
        """Work-groups and their work-items for a config and sizes."""
        known = {**dims, **config}
        names = list(inspect.signature(self._groups).parameters)
        if strange := [name for name in (*names, *self._local) if isinstance(name, str) and name not in known]:
            raise SpaceError(f"{strange[0]!r} is neither a knob nor a named size; there are: {', '.join(known)}")
        local = tuple(int(known[part] if isinstance(part, str) else part) for part in self._local)
        given = self._groups(**{name: known[name] for name in names})
        groups = (given,) if isinstance(given, int) else tuple(int(count) for count in given)
        if len(groups) != len(local):
            raise BackendError(f"groups has {len(groups)} axes, local has {len(local)}; they must be as many")
        if min(groups) < 1:
            raise BackendError(f"there would be {groups} work-groups; round up: -(-M // TM)")
        if (items := int(np.prod(local))) > (most := self.opened.most_items):
            raise BackendError(f"a work-group of {items} work-items is too large: this device takes {most}; add a Rule")
        return Geometry(groups, local)

    def _files(self) -> dict[str, str]:
        """The source and its headers, by name, as they are at this moment."""
        files = {os.path.relpath(path, self.path.parent): path for path in [self.path, *local_includes(self.path)]}
        return {name: path.read_text(errors="replace") for name, path in files.items()}

    def _source(self, files: Mapping[str, str], kernel: Kernel) -> str:
        texts = [f"{name}\n{normalised(text)}" for name, text in sorted(files.items())]
        return digest(*texts, self._function or kernel.name, source_of(self._groups), repr(self._local))

    def _toolchain(self) -> dict[str, str]:
        flags = {"opencl flags": " ".join(self._flags)} if self._flags else {}
        return self.opened.toolchain() | flags

    def _options(self, config: Config, signature: Signature) -> list[str]:
        return [*self._flags, *(f"-D{name}={size}" for name, size in signature.dims.items()), *as_options(config)]

    def _taken(self, kernel: Kernel, files: Mapping[str, str]) -> list[Taken]:
        name = self._function or kernel.name
        found = next(filter(None, (taken(text, name) for text in files.values())), None)
        if found is None:
            raise BackendError(f"{self.path.name} has no kernel {name!r} to read; say which with `function=`")
        return found

    def _check(self, kernel: Kernel, signature: Signature, arguments: Sequence[Taken]) -> None:
        """Refuse what the kernel would read as something else: it cannot say so itself."""
        if len(arguments) != len(kernel.parameters):
            raise SignatureError(
                f"{self.path.name}: the kernel takes {len(arguments)} arguments, not {len(kernel.parameters)}"
            )
        for parameter, text, argument in zip(kernel.parameters, signature.args, arguments, strict=True):
            name, is_array = parameter.name, "[" in text
            if argument.is_local:
                raise SignatureError(f"{name} is __local: declare such memory inside the kernel, sized by knobs")
            if argument.is_pointer != is_array:
                raise SignatureError(
                    f"{name} is {text}, but the kernel takes {'a pointer' if argument.is_pointer else 'a number'}"
                )
            if not is_array and argument.dtype is None:
                raise SignatureError(f"{name}: the kernel's type for it is not known; use int, long, float or double")
            if text.rpartition("]")[2].startswith(":"):
                raise SignatureError(
                    f"{name} is {text}, but the kernel takes it without gaps: pass np.ascontiguousarray({name})"
                )
            dtype = text.partition("[")[0]
            if is_array and argument.dtype is not None and argument.dtype != np.dtype(dtype):
                raise SignatureError(
                    f"{name} is an array of {dtype}, but the kernel takes a pointer to {argument.dtype}"
                )

    def _first(
        self, kernel: Kernel, arguments: Sequence[Taken], signature: Signature, geometry: Geometry
    ) -> Callable[[Any], None]:
        """The first launch of a program, on zeros."""
        args = [
            _blank(text, argument, signature.dims) for text, argument in zip(signature.args, arguments, strict=True)
        ]
        return lambda program: self._launch(kernel, program, geometry, arguments)(*args)

    def _launch(self, kernel: Kernel, program: Any, geometry: Geometry, arguments: Sequence[Taken]) -> OpenCLLaunch:
        here, shared = self.opened, self._on.shared
        function = driver().Kernel(program, self._function or kernel.name)
        shared = here.is_cpu if shared is None else shared
        return OpenCLLaunch(here, function, geometry, kernel.parameters, arguments, shared=shared)

    def _compiled(
        self, kernel: Kernel, options: Sequence[str], files: Mapping[str, str], first: Callable[[Any], None]
    ) -> bytes:
        cl, here = driver(), self.opened
        included = ["-I", str(self.path.parent)] if len(files) > 1 else []
        with _heard(self.path.name):
            program = cl.Program(here.context, files[self.path.name]).build([*options, *included], cache_dir=False)
            first(program)
            # Not before: a driver that compiles for the work-group it meets would hand out half a program.
            return bytes(program.get_info(cl.program_info.BINARIES)[0])


@contextmanager
def _heard(name: str) -> Iterator[None]:
    """What the driver's compiler complains of becomes an error that says where; what it merely remarks does not."""
    cl = driver()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except cl.Error as error:
        raise BackendError(f"{name}: {first_error(str(error))}") from error


def _blank(text: str, argument: Taken, dims: Mapping[str, int]) -> Any:
    """An argument like the one that a signature describes: zeros, or the number itself where it is known."""
    if argument.is_pointer:
        dtype, _, inside = text.partition("]")[0].partition("[")
        return np.zeros([int(dims.get(part, part)) for part in inside.split(",") if part], dtype)
    kind, _, value = text.partition("=")
    if kind in ("int", "bool"):
        return int(value == "True") if kind == "bool" else int(value)
    return 0
