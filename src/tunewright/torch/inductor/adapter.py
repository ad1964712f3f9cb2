"""Adapter of PyTorch's internals: every private part that is used."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple

from tunewright.errors import PluginError
from tunewright.lazy_logging import LazyLogger
from tunewright.ports.plugins import missing

try:
    import torch
except ImportError as error:
    raise missing("backends", "torch", error) from error

log = LazyLogger(__name__)

TESTED_VERSIONS = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""The releases of PyTorch that this adapter was tested on."""

VERSION: str = torch.__version__.partition("+")[0]

HOOKS = {
    "torch._logging._internal.trace_log": "graph breaks, recompilations, caches and phases",
    "torch._inductor.config": "settings in keys",
    "torch._inductor.config.patch": "inert options",
    "torch._inductor.config.aot_inductor": "weights of bundles that are used in place",
    "torch._inductor.config._config": "settings in keys",
    "torch._inductor.config.save_config_portable": "settings in keys",
    "torch._inductor.config._is_default": "settings in keys",
    "torch._inductor.utils.fresh_cache": "inert options",
    "torch._dynamo.config.recompile_limit": "the recompile limit",
    "torch._dynamo.eval_frame.OptimizedModule": "compiled models",
    "torch._dynamo.eval_frame.OptimizeContext": "compiled functions",
    "torch._inductor.aoti_compile_and_package": "bundles",
    "torch._C._aoti.AOTIModelPackageLoader": "bundles",
    "torch._C._aoti.AOTIModelContainerRunnerCpu": "weights of bundles that are used in place",
    "torch.utils._pytree.treespec_loads": "nested results",
    "torch.utils._pytree.tree_unflatten": "nested results",
    "torch.utils._pytree.tree_leaves": "nested arguments",
    "torch.utils._pytree.tree_map": "nested arguments",
    "torch._dynamo.utils.counters": "counts of compilations",
    "torch._inductor.remote_cache.RemoteCacheBackend": "the remote cache",
    "torch._inductor.remote_cache.RemoteFxGraphCache.backend_override_cls": "the remote cache",
    "torch._inductor.remote_cache.RemoteAOTAutogradCache.backend_override_cls": "the remote cache",
    "torch._functorch.config.patch": "the remote cache",
    "torch.fx.passes.graph_transform_observer.GraphTransformObserver": "passes in compile reports",
    "torch._inductor.select_algorithm.get_algorithm_selector_cache": "autotuning in compile reports",
    "torch._inductor.codecache.PyCodeCache.modules": "kernel times in compile reports",
    "torch._inductor.codecache.PyCodeCache": "frozen graphs that are kept",
    "torch._inductor.codecache.PyCodeCache.load_by_key_path": "huge pages, and frozen graphs that are kept",
    "torch._inductor.codecache.PyCodeCache.write": "frozen graphs that are kept",
    "torch._inductor.codecache.pick_vec_isa": "frozen graphs that are kept",
    "torch._inductor.cpu_vec_isa.pick_vec_isa": "frozen graphs that are kept",
    "torch._inductor.cpu_vec_isa.supported_vec_isa_list": "frozen graphs that are kept",
    "torch._inductor.cpu_vec_isa.invalid_vec_isa": "frozen graphs that are kept",
    "torch._inductor.codecache._precompile_header": "frozen graphs that are kept",
    "torch.cpu._init_amx": "frozen graphs that are kept",
    "torch._inductor.runtime.cache_dir_utils.cache_dir": "frozen graphs that are kept",
    "torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr": "frozen graphs that are kept",
    "torch.fx.node._get_qualified_name": "frozen graphs that are kept",
    "torch._guards.TracingContext": "tuned graphs",
    "torch._guards.tracing": "graphs that are swapped in later",
    "torch._dynamo.convert_frame.compile_lock": "graphs that are swapped in later",
    "torch._dynamo.mark_static": "graphs that another process tunes",
    "torch._dynamo.mark_static_address": "graphs that another process tunes",
    "torch._ops.OpOverload": "graphs that another process tunes",
    "torch._ops.OpOverloadPacket": "graphs that another process tunes",
    "torch._subclasses.fake_tensor.FakeTensorMode": "graphs that another process tunes",
    "torch._inductor.compile_fx.compile_fx": "tuned graphs",
    "torch._dynamo.metrics_context.MetricsContext": "tuned graphs of training",
    "torch._inductor.list_mode_options": "modes of torch.compile",
    "torch._inductor.cpp_builder.get_cpp_compiler": "the version of the C++ compiler",
    "torch._inductor.cpp_builder.get_compiler_version_info": "the version of the C++ compiler",
    "torch._inductor.codegen.cpp.get_fused_kernel_name": "decisions in kernel names",
    "torch._inductor.custom_graph_pass.CustomGraphPass": "dead-code removal",
    "torch._inductor.select_algorithm.AlgorithmSelectorCache.__call__": "the choice of GEMMs",
    "torch._inductor.select_algorithm.AlgorithmSelectorCache.get_inputs": "timing of GEMMs",
    "torch._inductor.select_algorithm.DataProcessorChoiceCallerWrapper": "timing of GEMMs",
    "torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate.add_choices": "the choice of GEMMs",
    "torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate._cache_blocking": "the choice of GEMMs",
    "torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate._thread_blocking": "the choice of GEMMs",
    "torch._inductor.codegen.cpp_micro_gemm.CppMicroGemmFP32Vec": "the choice of GEMMs",
    "torch._inductor.codegen.cpp_micro_gemm.micro_gemm_configs": "the choice of GEMMs",
    "torch._inductor.codegen.cpp_utils.GemmBlocking": "the choice of GEMMs",
    "torch._inductor.virtualized.V": "the choice of GEMMs",
    "torch._inductor.kernel.mm.aten_mm": "unpacked GEMMs",
    "torch._inductor.lowering.permute": "unpacked GEMMs",
}
"""Private parts of PyTorch by path, with what needs each of them."""

BREAK, RECOMPILED, METRICS, EVENT = "dynamo_graph_break_reason", "recompile_reasons", "compilation_metrics", "event"
CODE = "inductor_output_code"
CACHES = ("fx_graph_cache", "aotautograd_cache")
GRAPHS = ("dynamo_output_graph",)


class Record(NamedTuple):
    """A structured trace record of the compiler: its kind, the frame being compiled, its fields and its text."""

    name: str
    frame: str
    fields: Mapping[str, Any]
    text: str


def hook(path: str) -> Any:
    """Returns a part of PyTorch's internals by its path."""
    names = path.split(".")
    if "codegen" in names:  # its modules import each other in a cycle, which must be entered here
        with suppress(ModuleNotFoundError):
            import_module("torch._inductor.lowering")
    for split in range(len(names) - 1, 0, -1):
        try:
            value: Any = import_module(".".join(names[:split]))
        except ModuleNotFoundError:
            continue
        for name in names[split:]:
            value = getattr(value, name, _ABSENT)
            if value is _ABSENT:
                break
        else:
            return value
    raise PluginError(
        f"torch {VERSION} has no {path}, which is needed for {HOOKS.get(path, 'this')}; "
        f"install torch=={TESTED_VERSIONS[-1]}, which is supported"
    )


_ABSENT = object()


class _RecordHandler(logging.Handler):
    """Collects records from the logger that TORCH_TRACE writes to files."""

    def __init__(self, records: list[Record], everything: bool) -> None:
        super().__init__()
        self._records, self._everything = records, everything

    def emit(self, record: logging.LogRecord) -> None:
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        text = str(getattr(record, "payload", None) or "")
        frame = f"{metadata['frame_id']}/{metadata.get('frame_compile_id', 0)}" if "frame_id" in metadata else ""
        if (named := _name_and_fields(metadata, text, self._everything)) is not None:
            self._records.append(Record(named[0], frame, named[1], text))


def _name_and_fields(metadata: Mapping[str, Any], text: str, everything: bool) -> tuple[str, Mapping[str, Any]] | None:
    """Returns the name and fields of a record; None if it is not needed."""
    if METRICS in metadata:
        return METRICS, metadata[METRICS]
    if "chromium_event" in metadata:
        return EVENT, json.loads(text)
    if CODE in metadata:
        return CODE, {}
    name = str(metadata.get("artifact", {}).get("name", ""))
    if name.startswith(CACHES):
        fields = json.loads(text) if text.startswith("{") else {}
        return name, fields if isinstance(fields, dict) else {}
    if everything and not name:
        name = next((graph for graph in GRAPHS if graph in metadata), "")
    return (name, {}) if name in (BREAK, RECOMPILED) or (everything and name) else None


@cache
def tree_leaves() -> Callable[[Any], list[Any]]:
    """Returns PyTorch's function for what is nested in a value; looked up once, since every call needs it."""
    leaves: Callable[[Any], list[Any]] = hook("torch.utils._pytree.tree_leaves")
    return leaves


@contextmanager
def capture_records(*, everything: bool = False) -> Iterator[list[Record]]:
    """Collects the compiler's trace records: those that a diagnosis needs, or everything that has a name."""
    records: list[Record] = []
    handler, logger = _RecordHandler(records, everything), hook("torch._logging._internal.trace_log")
    logger.addHandler(handler)
    try:
        yield records
    finally:
        logger.removeHandler(handler)


def recompile_reasons(record: Record) -> list[str]:
    """Returns the guards that failed before a recompilation, newest code first, each as `0/1: guard`."""
    if record.text.startswith("["):
        return [str(reason) for reason in json.loads(record.text)]
    return [record.text]


def recompile_limit() -> int:
    """Returns how often one function is compiled before it runs in eager mode for good."""
    return int(hook("torch._dynamo.config.recompile_limit"))


def compile_isolated(fn: Any, **options: Any) -> Any:
    """Returns `torch.compile` of a model or function whose compiled code is shared with no other, in any release."""
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        return torch.compile(fn, isolate_recompiles=True, **options)
    return torch.compile(_with_own_code(fn), **options)


def _with_own_code(fn: Any) -> Any:
    """Returns a function with a code object of its own, under which compiled code is kept; a module as it is."""
    return (
        FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        if isinstance(fn, FunctionType)
        else fn
    )


def inductor_config(**settings: Any) -> AbstractContextManager[None]:
    """Changes Inductor's settings for the whole process while the context is open."""
    context: AbstractContextManager[None] = hook("torch._inductor.config.patch")(settings)
    return context


def fresh_caches() -> AbstractContextManager[None]:
    """Uses empty caches of compiled code while the context is open."""
    context: AbstractContextManager[None] = hook("torch._inductor.utils.fresh_cache")()
    return context


def unwrap_compiled(fn: Any) -> tuple[Any, dict[str, Any]]:
    """Returns what was given to `torch.compile`, and its options; `fn` itself and none if it is not compiled."""
    get_config = getattr(fn, "get_compiler_config", None)
    if get_config is None:
        return fn, {}
    inner = fn._orig_mod if isinstance(fn, hook("torch._dynamo.eval_frame.OptimizedModule")) else None
    context = next(
        cell.cell_contents
        for cell in get_config.__closure__
        if isinstance(cell.cell_contents, hook("torch._dynamo.eval_frame.OptimizeContext"))
    )
    backend = _innermost(context.callback)
    config = dict(getattr(backend, "config", None) or {})
    options: dict[str, Any] = {"dynamic": context._dynamic} if context._dynamic is not None else {}
    if getattr(backend, "compiler_name", None) == "inductor":
        options |= {"options": config} if config else {}
    else:
        options["backend"] = backend
    return inner if inner is not None else fn._torchdynamo_orig_callable, options


def _innermost(backend: Any) -> Any:
    """Returns the backend itself, without PyTorch's wrappers."""
    for name in ("_torchdynamo_orig_backend", "compiler_fn", "_torchdynamo_orig_callable"):
        if (inner := getattr(backend, name, None)) is not None:
            return _innermost(inner)
    return backend


def capture_backend(capture: Callable[[Any, Any], Callable[..., Any]]) -> Callable[..., Any]:
    """Returns a backend that passes each graph and its example inputs to `capture`, which returns what runs."""

    def backend(graph: Any, inputs: Any, **_: Any) -> Callable[..., Any]:
        return capture(graph, inputs)

    return backend
