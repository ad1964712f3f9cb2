"""The C and C++ backend: knobs become macros and flags; libraries are loaded with ctypes."""

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

from tunewright.backends.c_source import (
    CArgument,
    SourceFileBackend,
    compiler_options,
    local_includes,
    normalize_source,
    parse_make_rule,
    parse_prototype,
)
from tunewright.backends.host import cpu, digest
from tunewright.errors import BackendError, SignatureError
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.clock import HostTimer
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Parameter, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config
from tunewright.stores import artifacts

log = LazyLogger(__name__)

_COMPILERS = {"c": ("cc", "gcc", "clang"), "c++": ("c++", "g++", "clang++")}
_CPP_SUFFIXES = (".cc", ".cpp", ".cxx", ".C")

# At the link these would add start-up code that makes the whole process flush denormal numbers to zero.
_NOT_AT_LINK = {"-ffast-math", "-Ofast", "-funsafe-math-optimizations"}


class C(SourceFileBackend):
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
            raise BackendError(f'sizes= must be "macros" or "arguments", not {sizes!r}')
        super().__init__(source)
        self._function, self._flags = function, shlex.split(flags)
        self._named_compiler, self._sizes = compiler, sizes
        self._headers_by_text: dict[str, list[Path]] = {}

    @cached_property
    def compiler(self) -> tuple[str, str]:
        """The compiler's path and version."""
        import shutil  # noqa: PLC0415 - as in _run

        language = "c++" if self.path.suffix in _CPP_SUFFIXES else "c"
        for name in [self._named_compiler] if self._named_compiler else _COMPILERS[language]:
            if path := shutil.which(name):
                version_text, _ = _run([path, "--version"])
                return path, (version_text.splitlines() or [name])[0].strip()
        names = self._named_compiler or ", ".join(_COMPILERS[language])
        raise BackendError(f"no compiler found (looked for {names}); install gcc or clang, or give `compiler=`")

    def _headers(self, text: str) -> list[Path]:
        """Returns the user's headers that the source includes: those the compiler finds, and those under any `#if`."""
        if text not in self._headers_by_text:
            try:
                rule, _ = _run([self.compiler[0], "-MM", *self._flags, str(self.path)])
            except BackendError:  # a source that needs its knobs before it includes anything
                rule = ""
            self._headers_by_text = {text: parse_make_rule(rule, self.path)}
        return list(dict.fromkeys(self._headers_by_text[text] + local_includes(self.path)))

    def _files(self) -> dict[str, str]:
        """Returns the current text of the source and its headers, by name."""
        text = self.path.read_text(errors="replace")
        headers = {os.path.relpath(path, self.path.parent): path for path in self._headers(text)}
        return {self.path.name: text} | {name: path.read_text(errors="replace") for name, path in headers.items()}

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns how calls are distinguished."""
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the source without comments and line numbers, this CPU, the compiler and its flags."""
        files = self._files()
        name = self._function or kernel.name
        self._check(kernel, signature, parse_prototype(files[self.path.name], name))
        source = self._source_digest(files, name)
        return Key(kernel.name, source, signature, cpu(), self._toolchain(self._version(kernel)), mode)

    def _source_digest(self, files: Mapping[str, str], name: str) -> str:
        """Returns a digest of what the compiler sees."""
        return digest(*(f"{part}\n{normalize_source(text)}" for part, text in sorted(files.items())), name, self._sizes)

    def _toolchain(self, version: str) -> dict[str, str]:
        return {"compiler": version, "flags": " ".join(self._flags)}

    def _version(self, kernel: Kernel) -> str:
        """Returns the version of the compiler that built the stored artifacts, else of the one installed here."""
        return artifacts.resolve_tool_version(kernel, self._toolchain, "compiler", lambda: self.compiler[1])

    def _check(self, kernel: Kernel, signature: Signature, arguments: list[CArgument] | None) -> None:
        """Raises SignatureError for arguments that C would misread, since it cannot check them itself."""
        passed = len(kernel.parameters) + (len(signature.dims) if self._sizes == "arguments" else 0)
        if arguments is not None and len(arguments) != passed:
            raise SignatureError(
                f"{self.path.name}: the function takes {len(arguments)} arguments, the kernel passes {passed}"
            )
        for i, (parameter, text) in enumerate(zip(kernel.parameters, signature.args, strict=True)):
            if text.rpartition("]")[2].startswith(":"):
                raise SignatureError(
                    f"{parameter.name} is {text}, but a C kernel gets a bare pointer; "
                    f"pass np.ascontiguousarray({parameter.name})"
                )
            if arguments and (mismatch := arguments[i].find_mismatch(text.partition("[")[0])):
                raise SignatureError(f"{parameter.name} is an array of {mismatch} in {self.path.name}")

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Path:
        """Builds a shared library, unless one of the same content exists."""
        options = [*self._flags, *compiler_options(config)]
        if self._sizes == "macros":
            options += [f"-D{name}={size}" for name, size in signature.dims.items()]
        files = self._files()
        texts = [f"{name}\n{text}" for name, text in sorted(files.items())]
        version = self._version(kernel)
        # `-march=native` makes the processor part of the content.
        content = [*options, *texts, *cpu().features, cpu().model]
        name = f"{digest(version, *content)}.so"
        if stored := artifacts.find_artifact(kernel, name):
            return stored
        if version != (local_version := self.compiler[1]):
            message = "%s: no stored build by %s for this call; built here by %s, with which no config was raced"
            log.warning(message, kernel.name, version, local_version)
            name = f"{digest(local_version, *content)}.so"
            if stored := artifacts.find_artifact(kernel, name):
                return stored
        source = self._source_digest(files, self._function or kernel.name)
        label = artifacts.ArtifactLabel(name, kernel.name, source, config, signature, self._toolchain(local_version))
        return self._compile(kernel, options, files, label)

    def _compile(
        self, kernel: Kernel, options: list[str], files: Mapping[str, str], label: artifacts.ArtifactLabel
    ) -> Path:
        import tempfile  # noqa: PLC0415 - as in _run

        if kernel.artifacts is not None:
            kernel.artifacts.before_compile(kernel.name)
        folder = artifacts.artifact_path(kernel.cache, label.name).parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            unit, library = Path(scratch) / "kernel.o", Path(scratch) / "kernel.so"
            _run([self.compiler[0], *options, "-fPIC", "-c", str(self.path), "-o", str(unit)])
            linked = [option for option in options if option not in _NOT_AT_LINK]
            _run([self.compiler[0], "-shared", str(unit), *linked, "-o", str(library), "-lm"])
            if self._files() != files:
                raise BackendError(f"{self.path.name} changed while it was being built; call again")
            return artifacts.save_artifact(kernel.cache, library, label)

    def load(self, kernel: Kernel, artifact: Path) -> Launch:
        """Loads the function from the library; it takes numpy arrays and numbers."""
        library = ctypes.CDLL(str(artifact))
        name = self._function or kernel.name
        try:
            function = library[name]
        except AttributeError as error:
            hint = ' (declare it extern "C")' if self.path.suffix in _CPP_SUFFIXES else ""
            raise BackendError(f"{self.path.name} has no function {name!r}{hint}; name it with `function=`") from error
        function.restype = None
        dims = _dim_places(kernel.parameters) if self._sizes == "arguments" else []
        arguments = parse_prototype(self.path.read_text(errors="replace"), name) or []
        if (
            arguments
            and len(arguments) == len(kernel.parameters) + len(dims)
            and all(argument.ctype for argument in arguments)
        ):
            function.argtypes = [argument.ctype for argument in arguments]
        return CLaunch(function, kernel.parameters, dims)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """Returns a timer of a call as the user makes it, with the conversion of its arguments."""
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
            converted = [_address(arg) if arg.__class__ is np.ndarray else arg for arg in args]
        except (TypeError, ValueError):
            converted = self._convert_all(args)
        sizes = [args[i].shape[axis] for i, axis in self._dims] if self._dims else []
        try:
            function(*converted, *sizes)
        except ctypes.ArgumentError:
            try:
                function(*self._convert_all(args), *sizes)
            except ctypes.ArgumentError as error:
                raise SignatureError(f"an argument is not of the kind that the C function takes: {error}") from error

    def _convert_all(self, args: Sequence[Any]) -> list[Any]:
        return [self._convert(parameter, arg) for parameter, arg in zip(self._parameters, args, strict=True)]

    @staticmethod
    def _convert(parameter: Parameter, arg: Any) -> Any:
        """Converts one argument; a read-only array is passed only to a parameter that is not written."""
        if isinstance(arg, np.generic):
            return arg.item()
        if not isinstance(arg, np.ndarray):
            return arg
        if not arg.flags.writeable and (parameter.role is None or parameter.role.writes):
            raise SignatureError(f"{parameter.name} is read-only; declare it as In if the kernel only reads it")
        return arg.ctypes.data


_address: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer
"""Converts a writable array to what ctypes accepts as a pointer; four times faster than `array.ctypes.data`."""


def _kind(parameter: Parameter, arg: Any) -> Any:
    """Returns the C type of an argument: as declared, else that of the first call."""
    if parameter.role is not None or isinstance(arg, np.ndarray):
        return ctypes.c_void_p
    if parameter.kind is float or (parameter.kind is None and isinstance(arg, float | np.floating)):
        return ctypes.c_double
    if parameter.kind in (int, bool) or isinstance(arg, bool | int | np.integer | np.bool_):
        return ctypes.c_int64
    raise SignatureError(f"a C kernel takes numpy arrays, ints and floats; {parameter.name} is a {type(arg).__name__}")


def _dim_places(parameters: Sequence[Parameter]) -> list[tuple[int, int]]:
    """Returns where each named dimension first occurs: (argument, axis), in order of appearance."""
    places: dict[str, tuple[int, int]] = {}
    for i, parameter in enumerate(parameters):
        for axis, dim in enumerate(parameter.role.dims if parameter.role else ()):
            if isinstance(dim, str):
                places.setdefault(dim, (i, axis))
    return list(places.values())


def _run(command: list[str]) -> tuple[str, str]:
    """Runs a compiler and returns its output; raises BackendError with its first error if it fails."""
    import subprocess  # noqa: PLC0415 - slow to import, and a cached launch never needs it

    process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if process.returncode:
        raise BackendError(_first_error(process.stderr) or f"{command[0]} exited with {process.returncode}")
    return process.stdout, process.stderr


def _first_error(stderr: str) -> str:
    """Returns the first line with "error", without its path; else the last line."""
    for line in stderr.splitlines():
        if "error" in line.lower():
            return re.sub(r"^\S*/", "", line.strip())
    return stderr.strip().splitlines()[-1] if stderr.strip() else ""
