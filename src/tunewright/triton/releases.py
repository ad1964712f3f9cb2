"""Releases of Triton: which ones are tested, and a self-test that touches every private part that is used.

A release that lacks a part must be refused by name before a kernel is launched, not fail in the middle of tuning.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tunewright.errors import PluginError
from tunewright.lazy_logging import LazyLogger
from tunewright.ports.plugins import missing

try:
    import triton
except ImportError as error:
    raise missing("backends", "triton", error) from error

log = LazyLogger(__name__)

VERSION: str = triton.__version__

TESTED_VERSIONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")
"""The releases of Triton that the tests pass on."""

REQUIREMENT = "triton>=3.6,<3.10"
"""The releases that pip may install."""

AUTOTUNE_PARAMETERS = (
    "configs", "key", "prune_configs_by", "reset_to_zero", "restore_value", "pre_hook", "post_hook", "warmup", "rep",
    "use_cuda_graph", "do_bench", "cache_results",
)  # fmt: skip
"""Parameters of `triton.autotune`, in order."""

CONFIG_FIELDS = ("kwargs", "num_warps", "num_ctas", "num_stages", "maxnreg", "pre_hook", "ir_override")
"""Fields of `triton.Config`, in order."""

PARTS = (
    "triton._C.libtriton.get_cache_invalidating_env_vars",
    "triton._C.libtriton.native_specialize_impl",
    "triton.autotune",
    "triton.backends.BaseBackend",
    "triton.backends.backends",
    "triton.backends.compiler.GPUTarget",
    "triton.backends.driver.DriverBase",
    "triton.compile",
    "triton.compiler.ASTSource",
    "triton.compiler.make_backend",
    "triton.compiler.compiler.make_backend",
    "triton.compiler.compiler.max_shared_mem",
    "triton.knobs.autotuning.print",
    "triton.knobs.cache.dir",
    "triton.knobs.cache.scope",
    "triton.knobs.compilation.instrumentation_mode",
    "triton.knobs.compilation.listener",
    "triton.knobs.language.default_fp_fusion",
    "triton.knobs.language.fp32_default",
    "triton.knobs.runtime.debug",
    "triton.knobs.runtime.interpret",
    "triton.language.constexpr",
    "triton.language.dtype",
    "triton.runtime.autotune",
    "triton.runtime.autotuner.Autotuner.do_bench",
    "triton.runtime.autotuner.Autotuner.prune_configs",
    "triton.runtime.autotuner.Autotuner.run",
    "triton.runtime.autotuner.Autotuner.warmup",
    "triton.runtime.autotuner.Config.all_kwargs",
    "triton.runtime.autotuner.Heuristics",
    "triton.runtime.autotuner.autotune",
    "triton.runtime.autotuner.heuristics",
    "triton.runtime.cache.get_cache_key",
    "triton.runtime.cache.get_cache_manager",
    "triton.runtime.cache.triton_key",
    "triton.runtime.driver.driver.set_active",
    "triton.runtime.interpreter.InterpretedFunction",
    "triton.runtime.jit.JITCallable",
    "triton.runtime.jit.JITFunction._pack_args",
    "triton.runtime.jit.JITFunction.cache_key",
    "triton.runtime.jit.JITFunction.parse",
    "triton.runtime.jit.KernelInterface.__getitem__",
    "triton.runtime.jit.KernelInterface.warmup",
    "triton.runtime.jit.TensorWrapper",
    "triton.runtime.jit.create_function_from_signature",
    "triton.tools.tensor_descriptor.TensorDescriptor",
)
"""What is used of Triton, by path."""

SINCE = {
    "triton.knobs.autotuning.listener": (3, 8),
    "triton.knobs.compilation.fpsan_homomorphic_casts": (3, 9),
    "triton.knobs.language.force_disable_fp_fusion": (3, 9),
}
"""What is used only if it is there, and the release that added it."""

_JIT_ATTRIBUTES = ("__name__", "arg_names", "debug", "fn", "params", "signature")
_PARAM_ATTRIBUTES = ("do_not_specialize", "do_not_specialize_on_alignment", "is_const", "is_constexpr", "name")
_TUNER_ATTRIBUTES = (
    "_do_bench", "arg_names", "base_fn", "cache", "cache_results", "configs", "early_config_prune", "fn", "keys",
    "perf_model", "post_hook", "pre_hook",
)  # fmt: skip
_DRIVER_METHODS = (
    "clear_cache", "get_active_torch_device", "get_benchmarker", "get_current_target", "get_device_interface",
    "get_empty_cache_for_benchmark",
)  # fmt: skip
_ABSENT = object()


def import_failed(error: ImportError) -> PluginError:
    """Returns the error for a part of Triton that cannot be imported."""
    if find_spec("triton") is None:
        return missing("backends", "triton", error)
    return PluginError(f"triton {VERSION} differs from what is supported: {error}. {_advice()}")


@cache
def require_supported() -> None:
    """Raises PluginError if a release of Triton that is not tested fails the self-test; warns once if it passes."""
    if VERSION in TESTED_VERSIONS:
        return
    if differences := self_test():
        raise PluginError(f"triton {VERSION} differs from what is supported: {'; '.join(differences)}. {_advice()}")
    log.warning("triton %s is untested (tested: %s); it passes the self-test", VERSION, ", ".join(TESTED_VERSIONS))


def _advice() -> str:
    return f"Install triton=={TESTED_VERSIONS[-1]}, or another release that fits {REQUIREMENT!r}"


def self_test() -> list[str]:
    """Returns how the installed Triton differs from the tested releases; empty if it does not."""
    needed = [*PARTS, *(path for path, since in SINCE.items() if _release() >= since)]
    differences = [f"there is no {path}" for path in needed if _find(path) is _ABSENT]
    try:
        return [*differences, *_differing_signatures(), *_differing_objects()]
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        return [*differences, f"{type(error).__name__}: {error}"]


def _release() -> tuple[int, ...]:
    """Returns the first two numbers of the version."""
    return tuple(int(part) for part in VERSION.split(".")[:2])


def _find(path: str) -> Any:
    """Returns what a path names, or `_ABSENT`."""
    names = path.split(".")
    for split in range(len(names), 0, -1):
        try:
            value: Any = import_module(".".join(names[:split]))
        except ModuleNotFoundError:
            continue
        for name in names[split:]:
            value = getattr(value, name, _ABSENT)
        return value
    return _ABSENT


def _differing_signatures() -> Iterator[str]:
    """Yields the functions that take something else."""
    from triton.runtime.autotuner import Autotuner, autotune  # noqa: PLC0415 - may be absent
    from triton.runtime.cache import get_cache_key  # noqa: PLC0415
    from triton.runtime.jit import JITFunction, create_function_from_signature  # noqa: PLC0415

    stock = autotune if autotune.__module__.startswith("triton.") else None  # ours may have taken its place
    if stock is not None and (parameters := _parameters(stock)) != AUTOTUNE_PARAMETERS:
        yield f"triton.autotune takes {', '.join(parameters)}"
    if lacking := set(AUTOTUNE_PARAMETERS) - set(_parameters(Autotuner)):
        yield f"Autotuner takes no {', '.join(sorted(lacking))}"
    if lacking := {"grid", "warmup"} - set(_parameters(JITFunction.run)):
        yield f"JITFunction.run takes no {' and no '.join(sorted(lacking))}"
    exact = {
        create_function_from_signature: ("sig", "kparams", "backend"),
        JITFunction._pack_args: ("self", "backend", "kwargs", "bound_args", "specialization", "options"),
        get_cache_key: ("src", "backend", "backend_options", "env_vars"),
    }
    for function, names in exact.items():
        if (parameters := _parameters(function)) != names:
            yield f"{function.__qualname__} takes {', '.join(parameters)}, not {', '.join(names)}"


def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _differing_objects() -> Iterator[str]:
    """Yields what a kernel, its parameters, an autotuner, a config and the drivers lack, and other specializations."""
    from triton._C.libtriton import native_specialize_impl  # noqa: PLC0415 - may be absent
    from triton.backends import BaseBackend, backends  # noqa: PLC0415
    from triton.runtime.autotuner import Autotuner, Config  # noqa: PLC0415
    from triton.runtime.jit import JITFunction  # noqa: PLC0415

    kernel = JITFunction(_example)
    tuner = Autotuner(kernel, kernel.arg_names, [Config({})], [], None, None)
    yield from _lacking("JITFunction", kernel, _JIT_ATTRIBUTES)
    yield from _lacking("KernelParam", kernel.params[0], _PARAM_ATTRIBUTES)
    yield from _lacking("Autotuner", tuner, _TUNER_ATTRIBUTES)
    for name, backend in backends.items():
        yield from _lacking(f"the {name} driver", backend.driver, _DRIVER_METHODS)
    if (fields := tuple(Config({}).__dict__)) != CONFIG_FIELDS:
        yield f"the fields of triton.Config are {', '.join(fields)}"
    specialized = [native_specialize_impl(BaseBackend, value, False, True, True) for value in (16, 17, 1, 1.0)]
    if specialized != [("i32", "D"), ("i32", ""), ("constexpr", 1), ("fp32", None)]:
        yield f"arguments are specialized as {specialized}"


def _lacking(owner: str, value: Any, names: tuple[str, ...]) -> Iterator[str]:
    return (f"{owner} has no {name}" for name in names if not hasattr(value, name))


def _example(x: Any) -> None:
    """Is made a kernel by the self-test, and never launched."""
