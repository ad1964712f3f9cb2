"""Aot: a Triton kernel compiled for a GPU that is not here, as a launch on that GPU would compile it.

Everything private that this needs of Triton stands in this file; `checked()` compares it with what is installed.
The binder, the packing of arguments and the key are Triton's own, so that a launch finds what is compiled here.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.cache import get_cache_key
from triton.runtime.jit import JITFunction, create_function_from_signature

from tunewright.backends.triton.targets import Target
from tunewright.errors import BackendError, SignatureError

CHECKED_ON = "3.9.0"


@dataclass(frozen=True)
class Unit:
    """One config of a kernel for one target, ready to be compiled, with the key a launch looks it up by."""

    target: Target
    source: Any
    options: Any
    key: str

    @property
    def folder(self) -> str:
        """The name of its folder in Triton's cache."""
        return base64.b32encode(bytes.fromhex(self.key)).decode().rstrip("=")


@dataclass(frozen=True)
class Compiled:
    """What the compiler made: machine code, the assembly it was made of, and what Triton notes of it."""

    name: str
    suffix: str
    code: bytes
    assembly: str
    metadata: bytes
    shared: int
    tensor_columns: int
    warps: int


def checked() -> list[str]:
    """What of Triton's private parts is not as this file expects it; empty where all is well."""
    wrong = [] if triton.__version__ == CHECKED_ON else [f"Triton is {triton.__version__}, checked was {CHECKED_ON}"]
    wanted = {
        create_function_from_signature: ["sig", "kparams", "backend"],
        JITFunction._pack_args: ["self", "backend", "kwargs", "bound_args", "specialization", "options"],
        get_cache_key: ["src", "backend", "backend_options", "env_vars"],
    }
    for function, names in wanted.items():
        if (found := list(inspect.signature(function).parameters)) != names:
            wrong.append(f"{function.__qualname__} takes {', '.join(found)}, not {', '.join(names)}")
    return wrong


def unit(function: Any, target: Target, args: Sequence[Any], settings: Mapping[str, Any]) -> Unit:
    """A launch of the JIT `function` with `args` and `settings`, as far as the compiler."""
    backend = make_backend(_gpu(target))
    # What JITFunction.run adds before it binds.
    given = {
        **settings,
        "debug": function.debug or knobs.runtime.debug,
        "instrumentation_mode": knobs.compilation.instrumentation_mode,
        "fpsan_homomorphic_casts": knobs.compilation.fpsan_homomorphic_casts,
    }
    try:
        binder = create_function_from_signature(function.signature, function.params, backend)
        bound, specialization, rest = binder(*args, **given)
        options, signature, constants, attributes = function._pack_args(backend, given, bound, specialization, rest)
    except (TypeError, KeyError) as error:
        raise SignatureError(f"{function.__name__} cannot be called so: {error}") from error
    except (ValueError, AssertionError) as error:
        raise BackendError(f"{target} refuses it: {error}") from error
    source = ASTSource(function, signature, constants, attributes)
    key = get_cache_key(source, backend, options, env_vars=environment())
    return Unit(target, source, options, hashlib.sha256(key.encode()).hexdigest())


def compiled(what: Unit, scratch: Path) -> Compiled:
    """Compile it; files that Triton writes meanwhile go to `scratch`."""
    with knobs.cache.scope():
        knobs.cache.dir = str(scratch)
        try:
            kernel = triton.compile(what.source, target=_gpu(what.target), options=what.options.__dict__)
        except Exception as error:
            raise BackendError(_complaint(error)) from error
    if kernel.hash != what.key:
        raise BackendError(f"Triton {triton.__version__} computes another key than {CHECKED_ON}; use that version")
    suffix = "cubin" if what.target.backend == "cuda" else "hsaco"
    noted = kernel.metadata_group[f"{what.source.name[:150]}.json"]
    return Compiled(
        name=what.source.name[:150],
        suffix=suffix,
        code=kernel.kernel,
        assembly=kernel.asm["ptx" if suffix == "cubin" else "amdgcn"],
        metadata=Path(noted).read_bytes(),
        shared=kernel.metadata.shared,
        tensor_columns=getattr(kernel.metadata, "tmem_size", None) or 0,
        warps=kernel.metadata.num_warps,
    )


def environment() -> dict[str, str]:
    """The variables that are part of Triton's key: a launch must have them alike to find what was compiled."""
    return dict(get_cache_invalidating_env_vars())


def _gpu(target: Target) -> GPUTarget:
    return GPUTarget(target.backend, target.arch, target.warp_size)


def _complaint(error: Exception) -> str:
    """What the compiler says, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    return f"{type(error).__name__}: {telling[:300]}"
