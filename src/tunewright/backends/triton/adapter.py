"""Adapter: every part of Triton's inside that is touched, in one place, with a self-test that names its version."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

from tunewright.errors import PluginError
from tunewright.model.device import Device, Toolchain
from tunewright.ports.plugins import missing
from tunewright.remarks import Remarks

try:
    import triton
    from triton import knobs
    from triton._C.libtriton import get_cache_invalidating_env_vars, native_specialize_impl
    from triton.backends import BaseBackend
    from triton.compiler.compiler import make_backend
    from triton.runtime import autotuner as stock
    from triton.runtime.cache import get_cache_manager, triton_key
    from triton.runtime.driver import driver
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITCallable, JITFunction, KernelInterface
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError as error:
    raise missing("backends", "triton", error) from error

log = Remarks(__name__)

CHECKED = "3.9.0"
"""The version of Triton whose inside this file was written for and tested on."""

Autotuner, Config, Heuristics = stock.Autotuner, stock.Config, stock.Heuristics
heuristics = stock.heuristics

VERSION: str = triton.__version__

LAUNCH_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
"""What a config sets beside the kernel's own parameters, as Triton's `Config` names it."""

AUTOTUNE = (
    "configs", "key", "prune_configs_by", "reset_to_zero", "restore_value", "pre_hook", "post_hook", "warmup", "rep",
    "use_cuda_graph", "do_bench", "cache_results",
)  # fmt: skip
"""What `triton.autotune` takes, in order."""

_LIMITS = {
    "max_shared_mem": "shared memory",
    "max_num_regs": "registers",
    "multiprocessor_count": "processors",
    "warpSize": "warp",
    "mem_bus_width": "memory bus",
}
"""Of what the driver says of a device, that which decides what fits and what pays; clocks are set by people."""


def innermost(fn: Any) -> Any:
    """The jitted function under decorators: a `JITFunction`, or an `InterpretedFunction`."""
    while not isinstance(fn, JITFunction | InterpretedFunction) and hasattr(fn, "fn"):
        fn = fn.fn
    return fn


def is_interpreted(fn: Any) -> bool:
    """Whether a kernel runs in Triton's interpreter, where a time says nothing about a device."""
    return isinstance(innermost(fn), InterpretedFunction)


def is_interpreting() -> bool:
    """Whether this process runs kernels in Triton's interpreter."""
    return bool(knobs.runtime.interpret)


def is_callable_on_device(value: Any) -> bool:
    """Whether a kernel may call `value`, and it is not Triton's own: its source is then part of the kernel's."""
    jitted = isinstance(value, JITCallable | InterpretedFunction)
    return jitted and not str(value.fn.__module__).startswith("triton.")


def constant_of(value: Any) -> str | None:
    """A compile-time constant as text; None for what is no such constant."""
    if isinstance(value, triton.language.constexpr):
        value = value.value
    if isinstance(value, triton.language.dtype):
        return str(value)
    return repr(value) if isinstance(value, bool | int | float | str) else None


def is_tensor(value: Any) -> bool:
    """Whether Triton takes `value` for a pointer."""
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


def tensor_of(value: Any) -> Any:
    """The tensor behind an argument: itself, or what a descriptor describes; None for anything else."""
    if isinstance(value, TensorDescriptor):
        return value.base
    return value if is_tensor(value) else None


class Param(NamedTuple):
    """One parameter of a kernel, and how Triton specialises on it."""

    name: str
    constexpr: bool
    const: bool = False
    specialize: bool = True
    align: bool = True


def params_of(fn: Any) -> tuple[Param, ...]:
    """The parameters of a kernel, in order."""
    jit = innermost(fn)
    if isinstance(jit, JITFunction):
        return tuple(
            Param(p.name, p.is_constexpr, p.is_const, not p.do_not_specialize, not p.do_not_specialize_on_alignment)
            for p in jit.params
        )
    annotated = inspect.signature(jit.fn).parameters.values()
    return tuple(Param(p.name, "constexpr" in str(p.annotation)) for p in annotated)


def specialised(param: Param, value: Any) -> tuple[str, str]:
    """How Triton tells an argument from others: its type, and what of its value the code is compiled for."""
    if param.constexpr:
        return "constexpr", _constexpr(value)
    try:
        kind, special = native_specialize_impl(_backend(), value, param.const, param.specialize, param.align)
    except TypeError:
        return type(value).__name__, _constexpr(value)  # Triton will say what is wrong with it
    return str(kind), "" if special is None else str(special)


def _constexpr(value: Any) -> str:
    """A value that is compiled in, as text that is the same in every process."""
    if isinstance(value, JITCallable | InterpretedFunction):
        return f"{value.fn.__module__}.{value.fn.__qualname__}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_constexpr, value))})"
    known = constant_of(value)
    return known if known is not None else str(value) if value is None else f"{type(value).__name__}"


def _backend() -> Any:
    """What specialises arguments for the current target; any will do where there is none."""
    return BaseBackend if knobs.runtime.interpret else _made(driver.active.get_current_target())


@cache
def _made(target: Any) -> Any:
    return make_backend(target)


def current_device() -> int:
    """The number of the device that the next launch goes to."""
    return int(driver.active.get_current_device())


def runtime() -> Any:
    """Triton's holder of the active driver, for generated code that asks it at every launch."""
    return driver


def interface() -> Any:
    """What stands for `torch.cuda`: events, and whether a graph is being captured; None where a driver has none."""
    found = getattr(driver.active, "get_device_interface", None)
    return found() if found else None


def device() -> Device:
    """The current device as a kind of processor: two cards of one architecture with other limits are two kinds."""
    number, target = current_device(), driver.active.get_current_target()
    told: Mapping[str, Any] = driver.active.utils.get_device_properties(number)
    limits = {word: int(told[name]) for name, word in _LIMITS.items() if name in told}
    named = getattr(interface(), "get_device_name", None)
    architecture = f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)
    model = named(number) if named else f"{target.backend} {architecture}"
    return Device(target.backend, str(model), architecture, limits={"warp": target.warp_size, **limits})


def device_name() -> str:
    """A name for the card itself, by which processes take turns timing on it: its own if it has one."""
    number = current_device()
    asked = getattr(interface(), "get_device_properties", None)
    return f"gpu-{getattr(asked(number) if asked else None, 'uuid', None) or number}"


def toolchain() -> Toolchain:
    """What turns kernels into machine code here: Triton, libtriton with the LLVM inside it, ptxas."""
    if knobs.runtime.interpret:
        return {"triton": VERSION}
    target = driver.active.get_current_target()
    return {"triton": VERSION, "libtriton": _digest(triton_key()), **_assembler(_made(target), target)}


@cache
def _assembler(backend: Any, target: Any) -> dict[str, str]:
    told = str(backend.hash())  # for CUDA, what ptxas says of itself, with the architecture
    release = [part.strip() for line in told.splitlines() for part in line.split(",") if part.strip().startswith("V")]
    return {"ptxas" if target.backend == "cuda" else "assembler": release[0] if release else _digest(told)}


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def execution_mode(*, interpreted: bool) -> dict[str, str]:
    """How kernels are executed: what beside source and arguments changes their code."""
    language = knobs.language
    fused = language.default_fp_fusion and not language.force_disable_fp_fusion
    mode = {"execution": "interpreted" if interpreted else "compiled", "fp fusion": "on" if fused else "off"}
    mode |= {"f32": language.fp32_default} if language.fp32_default else {}
    mode |= {"debug": "on"} if knobs.runtime.debug else {}
    told = sorted(get_cache_invalidating_env_vars().items())
    return mode | {name.lower(): str(value) for name, value in told if "FP_FUSION" not in name}


def is_capturing() -> bool:
    """Whether launches are being recorded into a graph: nothing may be measured then, it would end up in there."""
    asked = getattr(interface(), "is_current_stream_capturing", None)
    return bool(asked()) if asked else False


def prints() -> bool:
    """Whether TRITON_PRINT_AUTOTUNING asks for words on the terminal."""
    return bool(knobs.autotuning.print)


def listener() -> Callable[..., Any] | None:
    """Who wants to hear of decisions."""
    found: Callable[..., Any] | None = knobs.autotuning.listener
    return found


def hear_compiles(heard: Callable[[str], None]) -> None:
    """Tell `heard` the name of each kernel that is compiled, not loaded; who listens already goes on doing so."""
    before = knobs.compilation.listener

    def listen(**told: Any) -> Any:
        if before is not None:
            before(**told)
        if not told["cache_hit"]:
            heard(str(told["src"].name))

    knobs.compilation.listener = listen


def computes() -> bool:
    """Whether launches have results; a pretended driver may have none."""
    return not getattr(driver.active, "pretends", False)


def has_clusters(device: Device) -> bool:
    """Whether blocks can be launched as clusters, and launches can overlap: Hopper and later."""
    return device.kind == "cuda" and int(device.architecture.removeprefix("sm_") or 0) >= 90


class Clock:
    """Events of the active driver, and a cache flush between launches, as Triton's own benchmark uses them."""

    name = "gpu events"

    def __init__(self) -> None:
        self._interface = interface()
        self._cache = driver.active.get_empty_cache_for_benchmark()

    @staticmethod
    def offered() -> bool:
        """Whether the active driver has events."""
        return hasattr(interface(), "Event") and hasattr(driver.active, "get_empty_cache_for_benchmark")

    def event(self) -> Any:
        """A mark in the stream that knows when the device came to it."""
        return self._interface.Event(enable_timing=True)

    def flush(self) -> None:
        """Empty the caches of the device."""
        driver.active.clear_cache(self._cache)

    def wait(self) -> None:
        """Until the device has done everything."""
        self._interface.synchronize()


def keep_timings(fn: Any, key: Sequence[Any], configs: Sequence[Any], timings: Mapping[Any, Any]) -> None:
    """Write what Triton's own autotuner would write beside its compiled kernels, for tools that read that."""
    jit = innermost(fn)
    parts = [triton_key(), _backend().hash(), jit.cache_key, str(sorted(get_cache_invalidating_env_vars().items()))]
    name = sha256("-".join([*parts, str(tuple(key)), *map(str, configs)]).encode()).hexdigest()
    told = [(config.__dict__, times) for config, times in timings.items()]
    text = json.dumps({"key": key, "configs_timings": told})
    get_cache_manager(name).put(text, f"{jit.__name__[:150]}.autotune.json", binary=False)


_PLACES = ((triton, "autotune"), (triton.runtime, "autotune"), (stock, "autotune"))


def stock_autotune() -> Any:
    """Triton's own decorator, patched or not."""
    return _STOCK


_STOCK = stock.autotune


def patch(autotune: Callable[..., Any]) -> None:
    """Put `autotune` where Triton's own is found; with Triton's own, take it away again."""
    for module, name in _PLACES:
        setattr(module, name, autotune)


def self_test() -> list[str]:
    """What of Triton's inside is not as it was in the version this was checked on, in sentences; empty if all is."""
    said = []
    if tuple(inspect.signature(_STOCK).parameters) != AUTOTUNE:
        said.append(f"triton.autotune takes {', '.join(inspect.signature(_STOCK).parameters)}")
    if tuple(name for name in Config({}).__dict__) != tuple(sorted(Config({}).__dict__, key=_FIELDS.index)):
        said.append("the fields of triton.Config have another order")
    if not {"grid", "warmup"} <= set(inspect.signature(JITFunction.run).parameters):
        said.append("JITFunction.run takes no grid or no warmup")
    for owner, names in _EXPECTED:
        said += [f"{owner.__name__} has no {name}" for name in names if not hasattr(owner, name)]
    told = [native_specialize_impl(BaseBackend, value, False, True, True) for value in (16, 17, 1, 1.0)]
    if told != [("i32", "D"), ("i32", ""), ("constexpr", 1), ("fp32", None)]:
        said.append(f"arguments are specialised as {told}")
    return said


_FIELDS = ("kwargs", "num_warps", "num_ctas", "num_stages", "maxnreg", "pre_hook", "ir_override")
_EXPECTED = (
    (stock.Autotuner, ("prune_configs", "warmup", "do_bench", "run")),
    (KernelInterface, ("warmup", "__getitem__")),
    (JITFunction, ("cache_key", "parse")),
    (type(driver), ("active", "set_active")),
)


@cache
def trusted() -> None:
    """Refuse a version of Triton whose inside is another; say it once where the version is new and the test passes."""
    if VERSION == CHECKED:
        return
    if said := self_test():
        raise PluginError(
            f"this was checked on triton {CHECKED}; in {VERSION}, {'; '.join(said)}. Install triton=={CHECKED}"
        )
    log.warning("this was checked on triton %s; %s passes the self-test, and is used", CHECKED, VERSION)
