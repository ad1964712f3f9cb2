"""Compiles a Triton kernel ahead of time for a GPU that is not installed, exactly as a launch on it would.

All uses of Triton's private functions that prebuilding needs are in this file; `releases` checks that they are there.
Binder, argument packing and cache key are Triton's own, so a launch finds what was compiled here.
"""

from __future__ import annotations

import base64
import hashlib
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
from triton.runtime.jit import create_function_from_signature

from tunewright.errors import BackendError, SignatureError
from tunewright.triton import releases
from tunewright.triton.static.targets import TargetSpec


@dataclass(frozen=True)
class CompileUnit:
    """One config of a kernel for one target, ready to compile, with the key of Triton's cache."""

    target: TargetSpec
    source: Any
    options: Any
    key: str

    @property
    def folder(self) -> str:
        """The name of the folder in Triton's cache."""
        return base64.b32encode(bytes.fromhex(self.key)).decode().rstrip("=")


@dataclass(frozen=True)
class CompiledKernel:
    """Output of the compiler: machine code, assembly, and Triton's metadata."""

    name: str
    suffix: str
    code: bytes
    assembly: str
    metadata: bytes
    shared: int
    tensor_columns: int
    warps: int


def make_unit(function: Any, target: TargetSpec, args: Sequence[Any], settings: Mapping[str, Any]) -> CompileUnit:
    """Binds a launch of the JIT `function` with `args` and `settings`, up to the compiler."""
    releases.require_supported()
    backend = make_backend(_gpu_target(target))
    # JITFunction.run adds these before it binds.
    launch_settings = {
        **settings,
        "debug": function.debug or knobs.runtime.debug,
        "instrumentation_mode": knobs.compilation.instrumentation_mode,
    }
    if hasattr(knobs.compilation, "fpsan_homomorphic_casts"):  # since Triton 3.9
        launch_settings["fpsan_homomorphic_casts"] = knobs.compilation.fpsan_homomorphic_casts
    try:
        binder = create_function_from_signature(function.signature, function.params, backend)
        bound, specialization, rest = binder(*args, **launch_settings)
        options, signature, constants, attributes = function._pack_args(
            backend, launch_settings, bound, specialization, rest
        )
    except (TypeError, KeyError) as error:
        raise SignatureError(f"{function.__name__} cannot be called with these arguments: {error}") from error
    except (ValueError, AssertionError) as error:
        raise BackendError(f"{target} rejects the config: {error}") from error
    source = ASTSource(function, signature, constants, attributes)
    key = get_cache_key(source, backend, options, env_vars=cache_environment())
    return CompileUnit(target, source, options, hashlib.sha256(key.encode()).hexdigest())


def compile_unit(unit: CompileUnit, scratch: Path) -> CompiledKernel:
    """Compiles a unit; temporary files of Triton go to `scratch`."""
    with knobs.cache.scope():
        knobs.cache.dir = str(scratch)
        try:
            kernel = triton.compile(unit.source, target=_gpu_target(unit.target), options=unit.options.__dict__)
        except Exception as error:
            raise BackendError(_error_line(error)) from error
    if kernel.hash != unit.key:
        raise BackendError(
            f"Triton {triton.__version__} computes other cache keys than expected; install triton=="
            f"{releases.TESTED_VERSIONS[-1]}"
        )
    suffix = "cubin" if unit.target.backend == "cuda" else "hsaco"
    metadata_path = kernel.metadata_group[f"{unit.source.name[:150]}.json"]
    return CompiledKernel(
        name=unit.source.name[:150],
        suffix=suffix,
        code=kernel.kernel,
        assembly=kernel.asm["ptx" if suffix == "cubin" else "amdgcn"],
        metadata=Path(metadata_path).read_bytes(),
        shared=kernel.metadata.shared,
        tensor_columns=getattr(kernel.metadata, "tmem_size", None) or 0,
        warps=kernel.metadata.num_warps,
    )


def cache_environment() -> dict[str, str]:
    """Returns the environment variables in Triton's cache key; a launch must have the same values."""
    return dict(get_cache_invalidating_env_vars())


def _gpu_target(target: TargetSpec) -> GPUTarget:
    return GPUTarget(target.backend, target.arch, target.warp_size)


def _error_line(error: Exception) -> str:
    """Returns the compiler's message as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    return f"{type(error).__name__}: {message[:300]}"
