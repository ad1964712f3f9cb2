"""C functions without arguments, compiled into a library to be raced."""

from __future__ import annotations

import ctypes
import shlex
import tempfile
from pathlib import Path
from typing import Any

from tunewright.backends.c_toolchain import find_compiler, language_of, run
from tunewright.errors import BackendError

DEFAULT_FLAGS = "-O2"


def compile_function(source: Path, output: Path, flags: str = DEFAULT_FLAGS) -> Path:
    """Compiles one C or C++ file into a shared library and returns it. Raises BackendError with the first error."""
    if not source.is_file():
        raise BackendError(f"there is no {source}; a C function is named as FILE.c:NAME")
    compiler = find_compiler(language_of(source), None)
    words = [*compiler.command, *shlex.split(flags), "-shared", "-fPIC", str(source), "-o", str(output), "-lm"]
    run(words, folder=source.parent)
    return output


def load_function(source: Path, name: str, flags: str = DEFAULT_FLAGS) -> Any:
    """Compiles a file and returns its function of that name, to be called in this process."""
    with tempfile.TemporaryDirectory(prefix="tunewright-c-") as folder:
        library = ctypes.CDLL(str(compile_function(source, Path(folder) / "raced.so", flags)))
    function = getattr(library, name, None)
    if function is None:
        raise BackendError(f"{source} defines no function {name!r}; one that is static cannot be called either")
    function.restype = None
    return function
