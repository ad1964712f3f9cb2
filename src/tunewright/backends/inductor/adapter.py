"""Adapter: every part of PyTorch's inside that is touched, in one place, with a self-test that names its version."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from tunewright.errors import PluginError
from tunewright.ports.plugins import missing
from tunewright.remarks import Remarks

try:
    import torch
except ImportError as error:
    raise missing("backends", "torch", error) from error

log = Remarks(__name__)

CHECKED = "2.13.0"
"""The version of PyTorch whose inside this file was written for and tested on."""

VERSION: str = torch.__version__.partition("+")[0]

HOOKS = {
    "torch._logging._internal.trace_log": "graph breaks, recompilations, caches and phases",
    "torch._inductor.config.patch": "which options do nothing",
    "torch._inductor.utils.fresh_cache": "which options do nothing",
    "torch._dynamo.config.recompile_limit": "how many recompilations there may be",
    "torch._dynamo.eval_frame.OptimizedModule": "models that are compiled already",
    "torch._dynamo.eval_frame.OptimizeContext": "functions that are compiled already",
    "torch._inductor.aoti_compile_and_package": "what a bundle holds",
    "torch._C._aoti.AOTIModelPackageLoader": "what a bundle holds",
    "torch.utils._pytree.treespec_loads": "how results are nested",
    "torch.utils._pytree.tree_unflatten": "how results are nested",
    "torch.utils._pytree.tree_leaves": "how arguments are nested",
    "torch._dynamo.utils.counters": "what was compiled after loading",
    "torch._inductor.remote_cache.RemoteCacheBackend": "what other machines compiled",
    "torch._inductor.remote_cache.RemoteFxGraphCache.backend_override_cls": "what other machines compiled",
    "torch._inductor.remote_cache.RemoteAOTAutogradCache.backend_override_cls": "what other machines compiled",
    "torch._functorch.config.patch": "what other machines compiled",
    "torch.fx.passes.graph_transform_observer.GraphTransformObserver": "what each pass changes",
    "torch._inductor.select_algorithm.get_algorithm_selector_cache": "what Inductor races",
    "torch._inductor.codecache.PyCodeCache.modules": "what each kernel takes",
    "torch._inductor.codecache.PyCodeCache.load_by_key_path": "where compiled code has its weights",
    "torch._guards.TracingContext": "what a graph becomes in several ways",
    "torch._inductor.compile_fx.compile_fx": "what a graph becomes in several ways",
    "torch._inductor.cpp_builder.get_cpp_compiler": "which compiler a decision rests on",
    "torch._inductor.cpp_builder.get_compiler_version_info": "which compiler a decision rests on",
    "torch._inductor.codegen.cpp.get_fused_kernel_name": "which decision a kernel comes from",
    "torch._inductor.custom_graph_pass.CustomGraphPass": "what is dead in a graph",
    "torch._inductor.select_algorithm.AlgorithmSelectorCache.__call__": "who computes a matrix product",
    "torch._inductor.select_algorithm.AlgorithmSelectorCache.get_inputs": "how long a matrix product takes",
    "torch._inductor.select_algorithm.DataProcessorChoiceCallerWrapper": "how long a matrix product takes",
    "torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate.add_choices": "who computes a matrix product",
    "torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate._cache_blocking": "who computes a matrix product",
    "torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate._thread_blocking": "who computes a matrix product",
    "torch._inductor.codegen.cpp_micro_gemm.CppMicroGemmFP32Vec": "who computes a matrix product",
    "torch._inductor.codegen.cpp_micro_gemm.micro_gemm_configs": "who computes a matrix product",
    "torch._inductor.codegen.cpp_utils.GemmBlocking": "who computes a matrix product",
    "torch._inductor.virtualized.V": "who computes a matrix product",
    "torch._inductor.kernel.mm.aten_mm": "what an unpacked product takes",
    "torch._inductor.lowering.permute": "what an unpacked product takes",
}
"""What of PyTorch's inside is used, and what needs it."""

BREAK, RECOMPILED, METRICS, EVENT = "dynamo_graph_break_reason", "recompile_reasons", "compilation_metrics", "event"
CODE = "inductor_output_code"
CACHES = ("fx_graph_cache", "aotautograd_cache")
GRAPHS = ("dynamo_output_graph",)


class Record(NamedTuple):
    """One thing that the compiler says while it works: of which kind, compiling what, with which fields or words."""

    name: str
    frame: str
    fields: Mapping[str, Any]
    text: str


def hook(path: str) -> Any:
    """A part of PyTorch's inside."""
    names = path.split(".")
    if "codegen" in names:  # its modules import each other in a circle, which must be entered elsewhere
        with suppress(ModuleNotFoundError):
            import_module("torch._inductor.lowering")
    for split in range(len(names) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(names[:split]))
        except ModuleNotFoundError:
            continue
        for name in names[split:]:
            found = getattr(found, name, _ABSENT)
            if found is _ABSENT:
                break
        else:
            return found
    raise PluginError(
        f"torch {VERSION} has no {path}, without which nobody can say {HOOKS.get(path, 'anything')}; "
        f"this was checked on torch {CHECKED}: install that"
    )


_ABSENT = object()


class _Listener(logging.Handler):
    """Keeps what is said on the channel that TORCH_TRACE writes to files."""

    def __init__(self, heard: list[Record], everything: bool) -> None:
        super().__init__()
        self._heard, self._everything = heard, everything

    def emit(self, record: logging.LogRecord) -> None:
        said: dict[str, Any] = getattr(record, "metadata", {})
        text = str(getattr(record, "payload", None) or "")
        frame = f"{said['frame_id']}/{said.get('frame_compile_id', 0)}" if "frame_id" in said else ""
        if (made := _record(said, text, self._everything)) is not None:
            self._heard.append(Record(made[0], frame, made[1], text))


def _record(said: Mapping[str, Any], text: str, everything: bool) -> tuple[str, Mapping[str, Any]] | None:
    """The name and fields of something said; None for what nobody asks for."""
    if METRICS in said:
        return METRICS, said[METRICS]
    if "chromium_event" in said:
        return EVENT, json.loads(text)
    if CODE in said:
        return CODE, {}
    name = str(said.get("artifact", {}).get("name", ""))
    if name.startswith(CACHES):
        told = json.loads(text) if text.startswith("{") else {}
        return name, told if isinstance(told, dict) else {}
    if everything and not name:
        name = next((one for one in GRAPHS if one in said), "")
    return (name, {}) if name in (BREAK, RECOMPILED) or (everything and name) else None


@contextmanager
def overheard(*, everything: bool = False) -> Iterator[list[Record]]:
    """What the compiler says while this is open: what a doctor asks for, or everything that has a name."""
    heard: list[Record] = []
    listener, channel = _Listener(heard, everything), hook("torch._logging._internal.trace_log")
    channel.addHandler(listener)
    try:
        yield heard
    finally:
        channel.removeHandler(listener)


def reasons(record: Record) -> list[str]:
    """The guards that failed before a recompilation, newest code first, each as `0/1: guard`."""
    if record.text.startswith("["):
        return [str(one) for one in json.loads(record.text)]
    return [record.text]


def recompile_limit() -> int:
    """How often one function is compiled before it is left to Python for good."""
    return int(hook("torch._dynamo.config.recompile_limit"))


def configured(**settings: Any) -> AbstractContextManager[None]:
    """Inductor's settings changed for the whole process while this is open."""
    opened: AbstractContextManager[None] = hook("torch._inductor.config.patch")(settings)
    return opened


def uncached() -> AbstractContextManager[None]:
    """Empty caches of compiled code while this is open."""
    opened: AbstractContextManager[None] = hook("torch._inductor.utils.fresh_cache")()
    return opened


def original(fn: Any) -> tuple[Any, dict[str, Any]]:
    """What was given to `torch.compile` and how: itself and nothing, where `fn` is not compiled."""
    told = getattr(fn, "get_compiler_config", None)
    if told is None:
        return fn, {}
    inner = fn._orig_mod if isinstance(fn, hook("torch._dynamo.eval_frame.OptimizedModule")) else None
    context = next(
        cell.cell_contents
        for cell in told.__closure__
        if isinstance(cell.cell_contents, hook("torch._dynamo.eval_frame.OptimizeContext"))
    )
    backend = _innermost(context.callback)
    options = dict(getattr(backend, "config", None) or {})
    how: dict[str, Any] = {"dynamic": context._dynamic} if context._dynamic is not None else {}
    if getattr(backend, "compiler_name", None) == "inductor":
        how |= {"options": options} if options else {}
    else:
        how["backend"] = backend
    return inner if inner is not None else fn._torchdynamo_orig_callable, how


def _innermost(backend: Any) -> Any:
    """The backend itself, under what PyTorch wraps it in."""
    for name in ("_torchdynamo_orig_backend", "compiler_fn", "_torchdynamo_orig_callable"):
        if (inner := getattr(backend, name, None)) is not None:
            return _innermost(inner)
    return backend


def _rehearsed() -> list[str]:
    """What a small model with a break and two sizes should make the compiler say, and does not."""

    def small(x: Any) -> Any:
        x = x + 1
        torch.compiler.disable(torch.sin)(x)
        return x * 2

    torch.compiler.reset()
    with overheard() as heard:
        compiled = torch.compile(small, backend="eager", dynamic=False)
        for size in (3, 4):
            compiled(torch.ones(size))
    torch.compiler.reset()
    named = {record.name for record in heard}
    said = [f"nothing is said of {name}" for name in (BREAK, RECOMPILED, METRICS, EVENT) if name not in named]
    broken = [record for record in heard if record.name == BREAK]
    if broken and not broken[0].text.startswith("Graph break in user code at "):
        said.append("graph breaks are told in other words")
    failed = [one for record in heard if record.name == RECOMPILED for one in reasons(record)]
    if failed and "size mismatch at index 0" not in failed[0]:
        said.append("failed guards are told in other words")
    fields = {name for record in heard if record.name == METRICS for name in record.fields}
    said += [f"metrics have no {name}" for name in sorted(_METRICS - fields)] if fields else []
    return said


_METRICS = {"co_name", "co_filename", "co_firstlineno", "compile_id", "duration_us"}


def self_test() -> dict[str, str]:
    """Each hook with what is wrong with it, in a sentence: an empty one where all is as it was."""
    found: dict[str, str] = {}
    for path, purpose in HOOKS.items():
        try:
            hook(path)
            found[path] = ""
        except PluginError:
            found[path] = f"there is no {path}, which tells {purpose}"
    channel = next(iter(HOOKS))
    if not found[channel]:
        found[channel] = "; ".join(_rehearsed())
    return found


@cache
def trusted() -> None:
    """Refuse a version of PyTorch whose inside is another; say it once where the version is new and the test passes."""
    if VERSION == CHECKED:
        return
    told = self_test()
    if wrong := [said for said in told.values() if said]:
        works = [HOOKS[path] for path, said in told.items() if not said]
        raise PluginError(
            f"this was checked on torch {CHECKED}; in {VERSION}, {'; '.join(wrong)}. "
            f"What still works: {', '.join(dict.fromkeys(works)) or 'nothing'}. Install torch=={CHECKED}"
        )
    log.warning("this was checked on torch %s; %s passes the self-test, and is used", CHECKED, VERSION)


def capturing(noted: Callable[[Any, Any], Callable[..., Any]]) -> Callable[..., Any]:
    """A backend that hands each graph and its example inputs to `noted`, which says what runs in its place."""

    def backend(graph: Any, inputs: Any, **_: Any) -> Callable[..., Any]:
        return noted(graph, inputs)

    return backend
