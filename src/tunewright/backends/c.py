"""C and C++ kernels: knobs become macros and flags; compiled by any compiler found, loaded with ctypes."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from tunewright.backends.csource import Argument, InFile, as_options, listed, local_includes, normalised, prototype
from tunewright.backends.host import cpu, digest
from tunewright.errors import BackendError, SignatureError
from tunewright.measure.clock import HostTimer
from tunewright.model.key import Key
from tunewright.model.signature import Parameter, Reading, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.remarks import Remarks
from tunewright.sharing import artefacts
from tunewright.spaces.config import Config

log = Remarks(__name__)

_COMPILERS = {"c": ("cc", "gcc", "clang"), "c++": ("c++", "g++", "clang++")}
_CPP_SUFFIXES = (".cc", ".cpp", ".cxx", ".C")

# At the link these would bring start-up code that makes the whole process flush denormal numbers to zero.
_NOT_AT_LINK = {"-ffast-math", "-Ofast", "-funsafe-math-optimizations"}


class C(InFile):
    """A kernel in a C or C++ file: a `void` function with one argument per Python parameter.

    Arrays arrive as pointers, ints as `int64_t`, floats as `double`. Each knob is a macro (`-DTILE=32`); a knob
    whose values begin with a dash is a flag. Each named dimension is a macro too, or with `sizes="arguments"` an
    `int64_t` argument after the others, so that one build serves every size.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        function: str | None = None,
        *,
        flags: str = "-O3 -march=native",
        compiler: str | None = None,
        sizes: str = "macros",
    ) -> None:
        if sizes not in ("macros", "arguments"):
            raise BackendError(f'sizes is "macros" or "arguments", not {sizes!r}')
        super().__init__(source)
        self._function, self._flags = function, shlex.split(flags)
        self._named_compiler, self._sizes = compiler, sizes
        self._seen: dict[str, list[Path]] = {}

    @cached_property
    def compiler(self) -> tuple[str, str]:
        """The compiler's path and what it says of its version."""
        import shutil  # noqa: PLC0415 - as in _run

        language = "c++" if self.path.suffix in _CPP_SUFFIXES else "c"
        for name in [self._named_compiler] if self._named_compiler else _COMPILERS[language]:
            if found := shutil.which(name):
                said, _ = _run([found, "--version"])
                return found, (said.splitlines() or [name])[0].strip()
        wanted = self._named_compiler or ", ".join(_COMPILERS[language])
        raise BackendError(f"no compiler found (looked for {wanted}); install gcc or clang, or give `compiler=`")

    def _headers(self, text: str) -> list[Path]:
        """Every header of the user's that the source includes: what the compiler finds, and what any `#if` may add."""
        if text not in self._seen:
            try:
                rule, _ = _run([self.compiler[0], "-MM", *self._flags, str(self.path)])
            except BackendError:  # a source that asks for its knobs before it includes anything
                rule = ""
            self._seen = {text: listed(rule, self.path)}
        return list(dict.fromkeys(self._seen[text] + local_includes(self.path)))

    def _files(self) -> dict[str, str]:
        """The source and its headers, by name, as they are at this moment."""
        text = self.path.read_text(errors="replace")
        headers = {os.path.relpath(path, self.path.parent): path for path in self._headers(text)}
        return {self.path.name: text} | {name: path.read_text(errors="replace") for name, path in headers.items()}

    def signature(self, kernel: Kernel) -> Reading:
        """How to tell calls apart."""
        return Reading.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """The source without comments and line numbers, this CPU, the compiler and its flags."""
        files = self._files()
        name = self._function or kernel.name
        self._check(kernel, signature, prototype(files[self.path.name], name))
        source = self._source(files, name)
        return Key(kernel.name, source, signature, cpu(), self._toolchain(self._version(kernel)), mode)

    def _source(self, files: Mapping[str, str], name: str) -> str:
        """A digest of what the compiler sees."""
        return digest(*(f"{part}\n{normalised(text)}" for part, text in sorted(files.items())), name, self._sizes)

    def _toolchain(self, version: str) -> dict[str, str]:
        return {"compiler": version, "flags": " ".join(self._flags)}

    def _version(self, kernel: Kernel) -> str:
        """What the compiler says of its version: of the one that built what the store brings, else of the one here."""
        return artefacts.adopted(kernel, self._toolchain, "compiler", lambda: self.compiler[1])

    def _check(self, kernel: Kernel, signature: Signature, taken: list[Argument] | None) -> None:
        """Refuse what C would read as something else: it cannot say so itself."""
        given = len(kernel.parameters) + (len(signature.dims) if self._sizes == "arguments" else 0)
        if taken is not None and len(taken) != given:
            raise SignatureError(
                f"{self.path.name}: the function takes {len(taken)} arguments, the kernel passes {given}"
            )
        for i, (parameter, text) in enumerate(zip(kernel.parameters, signature.args, strict=True)):
            if text.rpartition("]")[2].startswith(":"):
                raise SignatureError(
                    f"{parameter.name} is {text}, but a C kernel gets a bare pointer: "
                    f"pass np.ascontiguousarray({parameter.name})"
                )
            if taken and (said := taken[i].misread(text.partition("[")[0])):
                raise SignatureError(f"{parameter.name} is an array of {said} in {self.path.name}")

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Path:
        """A shared library; one that was built before from the same content is not built again."""
        options = [*self._flags, *as_options(config)]
        if self._sizes == "macros":
            options += [f"-D{name}={size}" for name, size in signature.dims.items()]
        files = self._files()
        texts = [f"{name}\n{text}" for name, text in sorted(files.items())]
        version = self._version(kernel)
        # `-march=native` makes the processor part of the content.
        content = [*options, *texts, *cpu().features, cpu().model]
        name = f"{digest(version, *content)}.so"
        if there := artefacts.found(kernel, name):
            return there
        if version != (here := self.compiler[1]):
            said = "%s: no build by %s is brought for this call; built here by %s, which nobody raced"
            log.warning(said, kernel.name, version, here)
            name = f"{digest(here, *content)}.so"
            if there := artefacts.found(kernel, name):
                return there
        source = self._source(files, self._function or kernel.name)
        label = artefacts.Label(name, kernel.name, source, config, signature, self._toolchain(here))
        return self._compiled(kernel, options, files, label)

    def _compiled(self, kernel: Kernel, options: list[str], files: Mapping[str, str], label: artefacts.Label) -> Path:
        import tempfile  # noqa: PLC0415 - as in _run

        if kernel.supply is not None:
            kernel.supply.compiling(kernel.name)
        folder = artefacts.place(kernel.cache, label.name).parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            unit, library = Path(scratch) / "kernel.o", Path(scratch) / "kernel.so"
            _run([self.compiler[0], *options, "-fPIC", "-c", str(self.path), "-o", str(unit)])
            linked = [option for option in options if option not in _NOT_AT_LINK]
            _run([self.compiler[0], "-shared", str(unit), *linked, "-o", str(library), "-lm"])
            if self._files() != files:
                raise BackendError(f"{self.path.name} changed while it was being built; call again")
            return artefacts.keep(kernel.cache, library, label)

    def load(self, kernel: Kernel, artifact: Path) -> Launch:
        """The function in the library, ready for numpy arrays and numbers."""
        library = ctypes.CDLL(str(artifact))
        name = self._function or kernel.name
        try:
            function = library[name]
        except AttributeError as error:
            hint = ' (declare it extern "C")' if self.path.suffix in _CPP_SUFFIXES else ""
            raise BackendError(
                f"{self.path.name} has no function {name!r}{hint}; say which with `function=`"
            ) from error
        function.restype = None
        dims = _dim_places(kernel.parameters) if self._sizes == "arguments" else []
        taken = prototype(self.path.read_text(errors="replace"), name) or []
        if taken and len(taken) == len(kernel.parameters) + len(dims) and all(argument.ctype for argument in taken):
            function.argtypes = [argument.ctype for argument in taken]
        return CLaunch(function, kernel.parameters, dims)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """A call as the user makes it, conversion of its arguments included."""
        return HostTimer(partial(launch, *args), threads)


class CLaunch:
    """A C function that takes numpy arrays and numbers; it keeps its library loaded."""

    def __init__(self, function: Any, parameters: Sequence[Parameter], dims: Sequence[tuple[int, int]]) -> None:
        self._function, self._parameters, self._dims = function, parameters, dims

    def __call__(self, *args: Any) -> None:
        function = self._function
        if function.argtypes is None:
            kinds = [_kind(p, arg) for p, arg in zip(self._parameters, args, strict=True)]
            function.argtypes = kinds + [ctypes.c_int64] * len(self._dims)
        try:
            found = [_address(arg) if arg.__class__ is np.ndarray else arg for arg in args]
        except (TypeError, ValueError):
            found = self._slow(args)
        sizes = [args[i].shape[axis] for i, axis in self._dims] if self._dims else []
        try:
            function(*found, *sizes)
        except ctypes.ArgumentError:
            try:
                function(*self._slow(args), *sizes)
            except ctypes.ArgumentError as error:
                raise SignatureError(f"an argument is not of the kind that the C function takes: {error}") from error

    def _slow(self, args: Sequence[Any]) -> list[Any]:
        return [self._slowly(parameter, arg) for parameter, arg in zip(self._parameters, args, strict=True)]

    @staticmethod
    def _slowly(parameter: Parameter, arg: Any) -> Any:
        """A read-only array has an address too; only a kernel that promises not to write may have it."""
        if isinstance(arg, np.generic):
            return arg.item()
        if not isinstance(arg, np.ndarray):
            return arg
        if not arg.flags.writeable and (parameter.role is None or parameter.role.writes):
            raise SignatureError(f"{parameter.name} is read-only; declare it as In if the kernel only reads it")
        return arg.ctypes.data


_address: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer
"""A writable array as something ctypes takes for a pointer: four times faster than `array.ctypes.data`."""


def _kind(parameter: Parameter, arg: Any) -> Any:
    """The C type of an argument: as declared, else as the first call has it."""
    if parameter.role is not None or isinstance(arg, np.ndarray):
        return ctypes.c_void_p
    if parameter.kind is float or (parameter.kind is None and isinstance(arg, float | np.floating)):
        return ctypes.c_double
    if parameter.kind in (int, bool) or isinstance(arg, bool | int | np.integer | np.bool_):
        return ctypes.c_int64
    raise SignatureError(f"a C kernel takes numpy arrays, ints and floats; {parameter.name} is a {type(arg).__name__}")


def _dim_places(parameters: Sequence[Parameter]) -> list[tuple[int, int]]:
    """Where each named dimension is first found: (argument, axis), in order of appearance."""
    found: dict[str, tuple[int, int]] = {}
    for i, parameter in enumerate(parameters):
        for axis, dim in enumerate(parameter.role.dims if parameter.role else ()):
            if isinstance(dim, str):
                found.setdefault(dim, (i, axis))
    return list(found.values())


def _run(command: list[str]) -> tuple[str, str]:
    """What a compiler says; a BackendError with its first complaint if it fails."""
    import subprocess  # noqa: PLC0415 - slow to import, and a cached launch never needs it

    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise BackendError(_first_error(done.stderr) or f"{command[0]} exited with {done.returncode}")
    return done.stdout, done.stderr


def _first_error(stderr: str) -> str:
    """The first line that says error, without the path before it."""
    for line in stderr.splitlines():
        if "error" in line.lower():
            return re.sub(r"^\S*/", "", line.strip())
    return stderr.strip().splitlines()[-1] if stderr.strip() else ""
