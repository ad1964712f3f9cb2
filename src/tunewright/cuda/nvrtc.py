"""Compiles by NVRTC, NVIDIA's compiler as a library: a wheel, so that no CUDA toolkit is needed."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tunewright.cuda.nvcc import BuildRequest, CudaBuild, explain_error, find_entry
from tunewright.cuda.resources import parse_resources
from tunewright.errors import BackendError, PluginError

HOST_FLAG = re.compile(r"-O[0-3]")
"""Flags of nvcc that are for the host's code, which NVRTC does not have."""

PTXAS_OPTIONS = ("-Xptxas", "--ptxas-options")
"""Options whose value is the next word."""


class Nvrtc(msgspec.Struct, frozen=True):
    """NVRTC of some version."""

    version: str
    name: str = "nvrtc"

    def compile(self, request: BuildRequest, scratch: Path) -> CudaBuild:
        """Compiles a kernel in this process; `scratch` is not needed."""
        program = _Program(request)
        log = program.compile()
        if program.failed:
            error = next((line for line in log.splitlines() if "error" in line), log.strip())
            raise explain_error(error.replace(f"{request.source.parent}/", ""), request)
        ptx = program.read("PTX").rstrip(b"\0").decode()
        entry = find_entry(re.findall(r"\.entry\s+([\w$]+)", ptx), request)
        return CudaBuild(entry, ptx, program.read("CUBIN"), parse_resources(log, ptx, entry))


@cache
def find_nvrtc() -> Nvrtc | None:
    """Returns NVRTC; None if it is not installed."""
    try:
        status, *version = _library().nvrtcVersion()
    except (ImportError, RuntimeError):  # there are no bindings; or bindings, and no library
        return None
    return None if status.value else Nvrtc(".".join(map(str, version)))


def require_nvrtc() -> Nvrtc:
    """Returns NVRTC; raises PluginError if it is not installed."""
    if (found := find_nvrtc()) is None:
        raise PluginError("NVRTC is not installed; pip install 'tunewright[nvrtc]', or put nvcc on PATH")
    return found


class _Program:
    """A program of NVRTC."""

    def __init__(self, request: BuildRequest) -> None:
        self._request, self.failed = request, False
        source = request.source
        self._program = self._call("CreateProgram", source.read_bytes(), str(source).encode(), 0, [], [])
        if request.template:
            instance = f"{request.function}<{', '.join(request.template)}>"
            self._call("AddNameExpression", self._program, instance.encode())

    def compile(self) -> str:
        """Compiles, and returns what the compiler says."""
        folders = [f"-I{self._request.source.parent}"]  # as nvcc does it
        words = self._request.options
        options = [
            word for before, word in zip(("", *words), words, strict=False)
            if before in PTXAS_OPTIONS or not HOST_FLAG.fullmatch(word)
        ]  # fmt: skip
        given = [f"-arch={self._request.arch}", "-lineinfo", "--ptxas-options=-v", *options, *folders]
        status = _library().nvrtcCompileProgram(self._program, len(given), [option.encode() for option in given])[0]
        self.failed = bool(status.value)
        return self.read("ProgramLog").rstrip(b"\0").decode(errors="replace")

    def read(self, what: str) -> bytes:
        """Returns a result of the compilation."""
        content = bytearray(self._call(f"Get{what}Size", self._program))
        self._call(f"Get{what}", self._program, content)
        return bytes(content)

    def __del__(self) -> None:
        if hasattr(self, "_program"):
            _library().nvrtcDestroyProgram(self._program)

    @staticmethod
    def _call(name: str, *args: Any) -> Any:
        status, *values = getattr(_library(), f"nvrtc{name}")(*args)
        if status.value:
            raise BackendError(f"nvrtc{name}: {status.name}; see the documentation of NVRTC for what it means")
        return values[0] if values else None


def _library() -> Any:
    from cuda.bindings import nvrtc  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - an extra

    return nvrtc
