"""Runs nvcc: the PTX, machine code and resources of one config, or what is wrong, with the line and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from tunewright.backends.c_project import check_reads
from tunewright.backends.c_source import parse_make_rules
from tunewright.backends.c_toolchain import run
from tunewright.cuda.resources import DoesNotFit, KernelResources, parse_resources
from tunewright.errors import BackendError

_ERROR = re.compile(
    r"^(?P<file>[^\s():]+)(?:\((?P<line>\d+)\)|:(?P<also>\d+)(?::\d+)?):"
    r"\s*(?:fatal |catastrophic )?error:?\s*(?P<text>.*)"
)
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_TOO_MUCH_SHARED = re.compile(r"uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)")
_TOOLKIT_HEADER = "cuda_runtime.h"

INSTANCE = "instance.cu"
"""The file that instantiates a template; it includes the user's."""


class Nvcc(msgspec.Struct, frozen=True):
    """A compiler of CUDA C++: where it is, and its version."""

    path: str
    version: str
    name: str = "nvcc"

    def compile(self, request: BuildRequest, scratch: Path) -> CudaBuild:
        """Compiles a kernel in a folder that is removed later."""
        return compile_kernel(self, request, scratch)


class CudaBuild(msgspec.Struct, frozen=True):
    """A compiled kernel: its name in the machine code, PTX, machine code (cubin) and resources."""

    entry: str
    ptx: str
    cubin: bytes
    resources: KernelResources


@dataclass(frozen=True)
class BuildRequest:
    """What to compile: a kernel of a source file with options for a target; `template` are its template arguments.

    `known` are the files that may be read besides those of the toolkit and the system.
    """

    source: Path
    function: str
    arch: str
    options: Sequence[str]
    template: Sequence[str] = ()
    known: Sequence[Path] = ()


@cache
def find_nvcc(named: str | None = None) -> Nvcc:
    """Returns the compiler that is named, else the first on the path."""
    import shutil  # noqa: PLC0415 - slow to import, and a cached launch never needs it

    path = shutil.which(named or "nvcc")
    if path is None:
        raise BackendError(
            f"no {named or 'nvcc'} found; install the CUDA toolkit (nvcc and ptxas) and put its bin folder on PATH, "
            "pip install 'tunewright[nvrtc]', or give compiler="
        )
    return Nvcc(path, (run([path, "--version"])[0].strip().splitlines() or [path])[-1].removeprefix("Build "))


def compile_kernel(nvcc: Nvcc, request: BuildRequest, scratch: Path) -> CudaBuild:
    """Compiles a kernel in a folder that is removed later."""
    unit = request.source
    if request.template:
        unit = scratch / INSTANCE
        instance = f"{request.function}<{', '.join(request.template)}>"
        unit.write_text(f'#include "{request.source}"\ntemplate __global__ decltype({instance}) {instance};\n')
    cubin, rules = scratch / "kernel.cubin", scratch / "kernel.d"
    command = [
        nvcc.path, "-cubin", f"-arch={request.arch}", "-lineinfo", *request.options, "-Xptxas", "-v",
        "--keep", "--keep-dir", str(scratch), "-MD", "-MF", str(rules), str(unit), "-o", str(cubin),
    ]  # fmt: skip
    try:
        _, said = run(command, environ={"TMPDIR": str(scratch)})
    except BackendError as error:
        raise explain_error(str(error), request) from error
    _check_reads(rules, [*request.known, unit])
    ptx = (scratch / f"{unit.stem}.ptx").read_text()
    entry = find_entry(re.findall(r"\.entry\s+([\w$]+)", ptx), request)
    return CudaBuild(entry, ptx, cubin.read_bytes(), parse_resources(said, ptx, entry))


def find_entry(entries: Sequence[str], request: BuildRequest) -> str:
    """Returns the name in the machine code of the kernel that is asked for; C++ names contain their arguments."""
    name = request.function
    if name in entries:
        return name
    mangled = re.compile(rf"_Z.*(?<!\d){len(name)}{re.escape(name)}{'I' if request.template else ''}")
    found = [entry for entry in entries if mangled.match(entry)]
    if len(found) == 1:
        return found[0]
    file = request.source.name
    if found:
        raise BackendError(
            f"{file} has {len(found)} kernels called {name}; remove overloads and instantiations, or rename one"
        )
    known = f"it has {', '.join(entries)}" if entries else "it has none; is it a template? Then give template=(...)"
    raise BackendError(f"{file} has no kernel {name}; {known}; name it as in Cuda({file!r}, function=...)")


def explain_error(text: str, request: BuildRequest) -> BackendError:
    """Returns the first error of nvcc or ptxas with its line and what to do."""
    if too_much := _TOO_MUCH_SHARED.search(text):
        needed, most = (int(number, 16) for number in too_much.groups())
        return DoesNotFit(
            f"the kernel declares {needed:,} bytes of shared memory; {most:,} can be declared, and more only asked for "
            "by the launch: use `extern __shared__` and shared=, or smaller tiles"
        )
    if "nsupported gpu architecture" in text:
        return BackendError(f"nvcc does not compile for {request.arch}; choose another target, or another nvcc")
    found = _ERROR.match(text)
    if found is None:
        return BackendError(f"nvcc: {text}; correct {request.source.name}, or flags=")
    if found["file"] == INSTANCE:
        given = ", ".join(request.template)
        return BackendError(f"{request.function}<{given}> cannot be instantiated: {found['text']}; correct template=")
    where = f"{found['file']}, line {found['line'] or found['also']}: {found['text']}"
    if undefined := _UNDEFINED.search(found["text"]):
        name = undefined[1]
        if any(option.startswith(f"-D{name}=") for option in request.options):
            return BackendError(f"{where}: a #pragma does not expand macros; write `constexpr int UNROLL = {name};`")
        return BackendError(f"{where}; declare a knob {name}, or define it in the source or in flags=")
    if "No such file" in found["text"] or "cannot open source file" in found["text"]:
        return BackendError(f"{where}; give its folder with include=[...]")
    return BackendError(f"{where}; correct this line, or exclude the config with a Rule")


def _check_reads(rules: Path, known: Sequence[Path]) -> None:
    """Raises BackendError if nvcc read a file that is neither known nor of the toolkit or the system."""
    read = parse_make_rules(rules.read_text(errors="replace"))
    toolkit = {str(path.parent) + os.sep for path in read if path.name == _TOOLKIT_HEADER}
    own = [path for path in read if not str(path).startswith(tuple(toolkit))]
    advice = "give its folder with include=[...], and include it by its name"
    check_reads(own, [path.resolve() for path in known], advice=advice)
