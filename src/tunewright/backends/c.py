"""C and C++ kernels: knobs become macros and flags; compiled by any compiler found, loaded with ctypes."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from tunewright.backends.host import cpu, digest
from tunewright.errors import BackendError, SignatureError
from tunewright.measure.clock import HostTimer
from tunewright.model.config import Config
from tunewright.model.key import Key
from tunewright.model.signature import Parameter, Reading, Signature
from tunewright.ports.backend import Kernel, Launch

_COMPILERS = {"c": ("cc", "gcc", "clang"), "c++": ("c++", "g++", "clang++")}
_CPP_SUFFIXES = (".cc", ".cpp", ".cxx", ".C")
_QUOTED = r"""(?P<keep>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_COMMENTS = re.compile(_QUOTED + r"|/\*.*?\*/|//[^\n]*", re.DOTALL)
_BLANKS = re.compile(_QUOTED + r"|\s+")
_LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class C:
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
        self._given, self._function, self._flags = source, function, flags.split()
        self._named_compiler, self._sizes = compiler, sizes

    @cached_property
    def path(self) -> Path:
        """The source file, which must exist."""
        path = Path(self._given).expanduser()
        if not path.is_file():
            raise BackendError(f"no source file {path} (looked in {Path.cwd()}); give its path")
        return path.resolve()

    def relative_to(self, folder: Path) -> None:
        """Look for the source beside the file that declares the kernel, if it is not where we stand."""
        beside = folder / self._given
        if not Path(self._given).is_file() and beside.is_file():
            self._given = beside

    @cached_property
    def compiler(self) -> tuple[str, str]:
        """The compiler's path and what it says of its version."""
        import shutil  # noqa: PLC0415 - as in build
        import subprocess  # noqa: PLC0415

        language = "c++" if self.path.suffix in _CPP_SUFFIXES else "c"
        for name in [self._named_compiler] if self._named_compiler else _COMPILERS[language]:
            if found := shutil.which(name):
                said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
                return found, (said.splitlines() or [name])[0].strip()
        wanted = self._named_compiler or ", ".join(_COMPILERS[language])
        raise BackendError(f"no compiler found (looked for {wanted}); install gcc or clang, or give `compiler=`")

    @cached_property
    def _files(self) -> dict[str, str]:
        """The source and the local headers it includes, by name, as they are now."""
        found: dict[str, str] = {}
        waiting = [self.path]
        while waiting:
            path = waiting.pop()
            name = os.path.relpath(path, self.path.parent)
            if name in found or not path.is_file():
                continue
            found[name] = path.read_text()
            waiting += [path.parent / include for include in _LOCAL_INCLUDE.findall(found[name])]
        return found

    def signature(self, kernel: Kernel) -> Reading:
        """How to tell calls apart."""
        return Reading.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """The source without comments and line numbers, this CPU, the compiler and its flags."""
        for parameter, text in zip(kernel.parameters, signature.args, strict=True):
            if ":" in text:
                raise SignatureError(
                    f"{parameter.name} is {text}, but a C kernel gets a bare pointer: "
                    f"pass np.ascontiguousarray({parameter.name})"
                )
        texts = [f"{name}\n{normalised(text)}" for name, text in sorted(self._files.items())]
        source = digest(*texts, self._function or kernel.name, self._sizes)
        toolchain = {"compiler": self.compiler[1], "flags": " ".join(self._flags)}
        return Key(kernel.name, source, signature, cpu(), toolchain, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Path:
        """A shared library; one that was built before from the same content is not built again."""
        import subprocess  # noqa: PLC0415 - slow to import, and a cached launch never needs it
        import tempfile  # noqa: PLC0415

        command, version = self.compiler
        options = [*self._flags, *_options(config)]
        if self._sizes == "macros":
            options += [f"-D{name}={size}" for name, size in signature.dims.items()]
        texts = [f"{name}\n{text}" for name, text in sorted(self._files.items())]
        # `-march=native` makes the processor part of the content.
        name = digest(version, *options, *texts, *cpu().features, cpu().model)
        artifact = kernel.cache / "artifacts" / name[:2] / f"{name}.so"
        if not artifact.is_file():
            artifact.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=artifact.parent) as scratch:
                fresh = Path(scratch) / "kernel.so"
                link = ["-shared", "-fPIC", "-o", str(fresh), str(self.path), "-lm"]
                done = subprocess.run([command, *options, *link], capture_output=True, text=True, check=False)
                if done.returncode:
                    raise BackendError(_first_error(done.stderr) or f"{command} exited with {done.returncode}")
                os.replace(fresh, artifact)
        return artifact

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
        dims = _dim_names(kernel.parameters) if self._sizes == "arguments" else {}
        return CLaunch(function, list(dims.values()))

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """A call as the user makes it, conversion of its arguments included."""
        return HostTimer(partial(launch, *args), threads)


class CLaunch:
    """A C function that takes numpy arrays and numbers; it keeps its library loaded."""

    def __init__(self, function: Any, dims: Sequence[tuple[int, int]]) -> None:
        self._function, self._dims = function, dims

    def __call__(self, *args: Any) -> None:
        function = self._function
        if function.argtypes is None:
            function.argtypes = [_kind(arg) for arg in args] + [ctypes.c_int64] * len(self._dims)
        try:
            found = [_address(arg) if arg.__class__ is np.ndarray else arg for arg in args]
        except TypeError:  # an array that is read-only has an address too, but a slower way to it
            found = [arg.ctypes.data if isinstance(arg, np.ndarray) else arg for arg in args]
        if self._dims:
            found += [args[i].shape[axis] for i, axis in self._dims]
        try:
            function(*found)
        except ctypes.ArgumentError as error:
            raise SignatureError(f"a C kernel takes the same kinds of arguments in every call: {error}") from error


_address: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer
"""A writable array as something ctypes takes for a pointer: four times faster than `array.ctypes.data`."""


def _kind(arg: Any) -> Any:
    """The C type of an argument."""
    if isinstance(arg, np.ndarray):
        return ctypes.c_void_p
    if isinstance(arg, bool | int | np.integer | np.bool_):
        return ctypes.c_int64
    if isinstance(arg, float | np.floating):
        return ctypes.c_double
    raise SignatureError(f"a C kernel takes numpy arrays, ints and floats, not {type(arg).__name__}")


def _dim_names(parameters: Sequence[Parameter]) -> dict[str, tuple[int, int]]:
    """Where each named dimension is first found: (argument, axis), in order of appearance."""
    found: dict[str, tuple[int, int]] = {}
    for i, parameter in enumerate(parameters):
        for axis, dim in enumerate(parameter.role.dims if parameter.role else ()):
            if isinstance(dim, str):
                found.setdefault(dim, (i, axis))
    return found


def _options(config: Config) -> list[str]:
    """A config as compiler options."""
    options: list[str] = []
    for name, value in config.items():
        if isinstance(value, str) and (value.startswith("-") or not value):
            options += value.split()
        else:
            options.append(f"-D{name}={int(value) if isinstance(value, bool) else value}")
    return options


def normalised(text: str) -> str:
    """C source without comments, blank lines and runs of blanks: what the compiler sees, wherever it stands."""
    plain = _COMMENTS.sub(lambda m: m["keep"] or " ", text)
    lines = (_BLANKS.sub(lambda m: m["keep"] or " ", line).strip() for line in plain.splitlines())
    return "\n".join(line for line in lines if line)


def _first_error(stderr: str) -> str:
    """The first line that says error, without the path before it."""
    for line in stderr.splitlines():
        if "error" in line.lower():
            return re.sub(r"^\S*/", "", line.strip())
    return stderr.strip().splitlines()[-1] if stderr.strip() else ""
